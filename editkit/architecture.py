"""Where a model's heads live: read from ``config.json`` and safetensors headers, no weights loaded.

A head is a slice of the input of the attention output projection: ``units * width == shape[axis]``. Knocking it
out multiplies that slice by zero, which is the same as zeroing that slice of the weight.

    Site(kind="head", layer=3, tensor="model.layers.3.self_attn.o_proj.weight", module="model.layers.3.self_attn.o_proj",
         shape=(2048, 2048), axis=1, units=32, width=64)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from editkit.errors import EditkitError
from editkit.units import Head, Unit, show


@dataclass(frozen=True)
class Site:
    """Where one layer's units live. Invariant: ``units * width == shape[axis]``.

    ``axis`` is the weight's input axis: 1 for ``nn.Linear`` ([out, in]), 0 for GPT-2's ``Conv1D`` ([in, out]).
    ``tensor`` is the name in the checkpoint; ``module`` the dotted path in the loaded model (they may differ by a prefix).
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

    def slice(self, index: int) -> slice:
        """The span of ``axis`` that belongs to unit ``index``."""
        return slice(index * self.width, (index + 1) * self.width)


@dataclass(frozen=True)
class Unreachable:
    """A layer without head sites, and why: ``Unreachable((0, 1, 2), "linear attention")``."""

    layers: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Architecture:
    """The ordered head sites of one model. Columns of a mask are ``heads``, in this order."""

    model_type: str
    layers: int
    sites: tuple[Site, ...]
    unreachable: tuple[Unreachable, ...] = ()

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """Every head, by layer and index: the columns of a mask."""
        return tuple(Head(site.layer, index) for site in self.sites for index in range(site.units))

    @cached_property
    def column(self) -> dict[Head, int]:
        """Head -> column of a mask."""
        return {head: place for place, head in enumerate(self.heads)}

    def site(self, unit: Unit) -> Site:
        """The site a unit lives in.

        Raises:
            EditkitError: if this model has no such unit.
        """
        self.check([unit])
        return next(site for site in self.sites if site.layer == unit.layer)

    def check(self, units: Iterable[Unit]) -> None:
        """Raises EditkitError listing every unit this model does not have."""
        absent = [unit for unit in units if unit not in self.column]
        if absent:
            spans = ", ".join(f"L{site.layer}H0-{site.units - 1}" for site in self.sites[:2])
            raise EditkitError(
                f"{', '.join(show(absent))}: this {self.model_type} has no such head. "
                f"It has {len(self.heads)} in {len(self.sites)} of {self.layers} layers ({spans}, ...); `editkit inspect` lists them."
            )

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
