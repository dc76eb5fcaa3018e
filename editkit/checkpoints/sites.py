"""Where a model's heads and neurons live, as values: sites, and the order in which their units count.

A head is a slice of the input of the attention output projection: ``units * width == shape[axis]``; a neuron is one
coordinate of the input of an MLP's down projection. Knocking it out multiplies that slice by zero, which is the same as
zeroing that slice of the weight.

    Site(kind="head", layer=3, tensor="model.layers.3.self_attn.o_proj.weight",
         module="model.layers.3.self_attn.o_proj", shape=(2048, 2048), axis=1, units=32, width=64)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from editkit.checkpoints.knockout import Knockout
from editkit.errors import EditkitError
from editkit.units import PLAIN, Head, Neuron, Unit, show


@dataclass(frozen=True)
class Site:
    """Where the units of one linear map live. Invariant: ``units * width == shape[axis]``.

    ``axis`` is the weight's input axis: 1 for ``nn.Linear`` ([out, in]), 0 for GPT-2's ``Conv1D`` ([in, out]). A tensor
    of three axes holds all experts of a layer, on its first.
    ``tensor`` is the name in the checkpoint; ``module`` the dotted path in the loaded model (they may differ), and
    ``weight`` what the weight is called there.
    """

    kind: Literal["head", "neuron"]
    layer: int
    tensor: str
    module: str
    shape: tuple[int, ...]
    axis: int
    units: int
    width: int
    groups: int | None = None
    """Key/value groups (GQA), if known: heads ``i`` with equal ``i * groups // units`` share one."""
    shared: tuple[int, ...] = ()
    """Deeper layers that use the very same weights (Zamba): an edit here is an edit there."""
    twins: tuple[str, ...] = ()
    """The live modules of those layers; a knockout hooks them too."""
    expert: int = PLAIN
    """The routed expert whose neurons these are."""
    weight: str = "weight"

    @property
    def part(self) -> int | None:
        """Which plane of ``tensor`` is meant, where it holds several experts."""
        return self.expert if len(self.shape) == 3 else None

    @property
    def key(self) -> tuple[str, int, int]:
        """Kind, layer, expert: what tells a model's sites apart."""
        return self.kind, self.layer, self.expert

    def unit(self, index: int) -> Unit:
        return Head(self.layer, index) if self.kind == "head" else Neuron(self.layer, index, self.expert)

    def slice(self, index: int) -> slice:
        """The span of ``axis`` that belongs to unit ``index``."""
        return slice(index * self.width, (index + 1) * self.width)


@dataclass(frozen=True)
class Unreachable:
    """Layers without sites of one kind, and why: ``Unreachable((0, 1, 2), "linear attention")``."""

    layers: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Architecture:
    """The ordered sites of one model: ``sites`` of heads and ``neuron_sites``, which may be none.

    Columns of a mask are ``heads``, in this order. The places of a ``Knockout`` are these, then the neurons'.
    """

    model_type: str
    layers: int
    sites: tuple[Site, ...]
    unreachable: tuple[Unreachable, ...] = ()
    neuron_sites: tuple[Site, ...] = ()
    unreachable_neurons: tuple[Unreachable, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.model_type}: {len(self.heads)} heads and {self.neurons} neurons in {self.layers} layers>"

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """Every head, by layer and index: the columns of a mask."""
        return tuple(Head(site.layer, index) for site in self.sites for index in range(site.units))

    @cached_property
    def column(self) -> dict[Head, int]:
        """Head -> column of a mask."""
        return {head: place for place, head in enumerate(self.heads)}

    @property
    def neurons(self) -> int:
        """How many neurons can be reached."""
        return sum(site.units for site in self.neuron_sites)

    @cached_property
    def all_sites(self) -> tuple[Site, ...]:
        """The sites of heads, then those of neurons: the order of places."""
        return (*self.sites, *self.neuron_sites)

    @cached_property
    def starts(self) -> np.ndarray:
        """int[sites + 1]: the place of each site's first unit; then how many units there are."""
        return np.cumsum([0, *(site.units for site in self.all_sites)])

    @cached_property
    def layout(self) -> str:
        """A digest of which unit is at which place: what is stored under places is worth nothing without it."""
        rows = [(*site.key, site.units) for site in self.all_sites]
        return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]

    @cached_property
    def _number(self) -> dict[tuple[str, int, int], int]:
        return {site.key: number for number, site in enumerate(self.all_sites)}

    def site(self, unit: Unit) -> Site:
        """The site a unit lives in.

        Raises:
            EditkitError: if this model has no such unit.
        """
        self.check([unit])
        return self.all_sites[self._number[_key(unit)]]

    def check(self, units: Iterable[Unit]) -> None:
        """Raises EditkitError listing every unit this model does not have."""
        absent = [unit for unit in units if self._place(unit) is None]
        if absent:
            has = [_spans("head", len(self.heads), self.sites, self.layers)]
            if any(isinstance(unit, Neuron) for unit in absent):
                has.append(_spans("neuron", self.neurons, self.neuron_sites, self.layers))
                has += [f"no neurons can be reached: {each.reason}" for each in self.unreachable_neurons]
            words = {"head" if isinstance(unit, Head) else "neuron" for unit in absent}
            raise EditkitError(
                f"{', '.join(show(absent)[:20])}: this {self.model_type} has no such {' or '.join(sorted(words))}. "
                f"It has {'; '.join(has)}; `editkit inspect` lists them."
            )

    def knockout(self, units: Iterable[Unit]) -> Knockout:
        """Units of both kinds, out together.

        Raises:
            EditkitError: for units this model does not have.
        """
        chosen = list(units)
        self.check(chosen)
        return Knockout.of(np.array([self._place(unit) for unit in chosen], dtype=int))

    def all_of(self, sites: Iterable[Site]) -> Knockout:
        """Every unit of some sites."""
        starts = [(int(self.starts[self._number[site.key]]), site.units) for site in sites]
        return Knockout.of(np.concatenate([np.arange(start, start + units) for start, units in starts] or [[]]))

    def knockouts(self, masks: np.ndarray | Sequence[Knockout]) -> tuple[Knockout, ...]:
        """One knockout per row: of bool[rows, len(heads)], True = out; knockouts stay as they are.

        Raises:
            EditkitError: masks of another width.
        """
        if not isinstance(masks, np.ndarray):
            return tuple(masks)
        self.check_shape(masks.shape, axes=(2,))
        return tuple(Knockout.of(np.flatnonzero(row)) for row in masks)

    def check_shape(self, masks: Sequence[int], *, axes: tuple[int, ...] = (1, 2)) -> None:
        """Raises EditkitError for masks that are not [heads] or [batch, heads]."""
        heads = len(self.heads)
        if len(masks) not in axes or masks[-1] != heads:
            raise EditkitError(
                f"Masks of a {self.model_type} with {heads} heads have the shape [{heads}] or [batch, {heads}]; "
                f"found {list(masks)}."
            )

    def by_site(self, knockout: Knockout) -> list[tuple[Site, np.ndarray]]:
        """The sites with a unit that is out, in order, and the indexes of these units: int[n], rising."""
        edges = np.searchsorted(knockout.places, self.starts)
        return [
            (self.all_sites[number], knockout.places[edges[number] : edges[number + 1]] - self.starts[number])
            for number in np.flatnonzero(np.diff(edges)).tolist()
        ]

    def units(self, knockout: Knockout) -> frozenset[Unit]:
        """The units at a knockout's places."""
        return frozenset(site.unit(index) for site, out in self.by_site(knockout) for index in out.tolist())

    def first_layer(self, knockout: Knockout) -> int | None:
        """The lowest layer with a unit that is out; None where nothing is."""
        return min((site.layer for site, _ in self.by_site(knockout)), default=None)

    def mask(self, units: Iterable[Unit]) -> np.ndarray:
        """One mask row, bool[len(heads)]; True = knocked out."""
        chosen = list(units)
        self.check(chosen)
        row = np.zeros(len(self.heads), dtype=bool)
        row[[self.column[unit] for unit in chosen]] = True  # type: ignore[index]
        return row

    def masks(self, sets: Sequence[Iterable[Unit]]) -> np.ndarray:
        """A stack of mask rows, bool[len(sets), len(heads)]."""
        return np.stack([self.mask(units) for units in sets]) if sets else np.zeros((0, len(self.heads)), dtype=bool)

    def _place(self, unit: Unit) -> int | None:
        number = self._number.get(_key(unit))
        if number is None or not 0 <= unit.index < self.starts[number + 1] - self.starts[number]:
            return None
        return int(self.starts[number]) + unit.index


def _key(unit: Unit) -> tuple[str, int, int]:
    return ("head", unit.layer, PLAIN) if isinstance(unit, Head) else ("neuron", unit.layer, unit.expert)


def _spans(word: str, count: int, sites: Sequence[Site], layers: int) -> str:
    """``16 heads in 2 of 2 layers (L0H0-7, L1H0-7, ...)``."""
    spans = ", ".join(f"{site.unit(0)}-{site.units - 1}" for site in sites[:2])
    listed = f" ({spans}, ...)" if sites else ""
    return f"{count} {word}s in {len({site.layer for site in sites})} of {layers} layers{listed}"
