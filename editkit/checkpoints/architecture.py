"""Where a model's heads live: read from ``config.json`` and safetensors headers, no weights loaded.

A head is a slice of the input of the attention output projection: ``units * width == shape[axis]``. Knocking it
out multiplies that slice by zero, which is the same as zeroing that slice of the weight.

    Site(kind="head", layer=3, tensor="model.layers.3.self_attn.o_proj.weight",
         module="model.layers.3.self_attn.o_proj", shape=(2048, 2048), axis=1, units=32, width=64)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from editkit.checkpoints import config_fields, headers, projections
from editkit.checkpoints.config_fields import Fields
from editkit.errors import EditkitError
from editkit.units import Head, Unit, show

if TYPE_CHECKING:
    import torch

_PACKED = re.compile(r"(attn|attention)\b.*\.(qweight|weight_packed|weight\.absmax)$")


@dataclass(frozen=True)
class Site:
    """Where one layer's units live. Invariant: ``units * width == shape[axis]``.

    ``axis`` is the weight's input axis: 1 for ``nn.Linear`` ([out, in]), 0 for GPT-2's ``Conv1D`` ([in, out]).
    ``tensor`` is the name in the checkpoint; ``module`` the dotted path in the loaded model (they may differ).
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
                f"It has {len(self.heads)} in {len(self.sites)} of {self.layers} layers ({spans}, ...); "
                "`editkit inspect` lists them."
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


def read(directory: Path) -> Architecture:
    """The sites of a checkpoint, from ``config.json`` and safetensors headers; ``module`` is guessed from ``tensor``.

    Raises:
        EditkitError: if the type is refused, if nothing or more than one thing looks like an output projection, or if
            the config's heads do not fit the tensors.
    """
    value = config_fields.read_json(directory)
    tensors = headers.read(directory).tensors
    packed = sorted(name for name in tensors if _PACKED.search(name))
    if packed:
        raise EditkitError(
            f"{packed[0]}: the attention of this checkpoint is packed by a quantizer (GPTQ, AWQ, bitsandbytes or the "
            "like), and packed weights cannot be cut at heads. Edit the unquantized checkpoint, then quantize that."
        )
    shapes = {
        name.removesuffix(".weight"): info.shape
        for name, info in tensors.items()
        if name.endswith(".weight") and len(info.shape) == 2
    }
    return describe(value["model_type"], config_fields.from_json(value), shapes)


def from_model(model: torch.nn.Module) -> Architecture:
    """The sites of a live model; ``tensor`` is guessed from ``module``.

    Raises:
        EditkitError: as ``read``.
    """
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        raise EditkitError(f"{type(model).__name__} has no transformers config; editkit needs one to know its heads.")
    shapes: dict[str, tuple[int, ...]] = {}
    transposed: set[str] = set()
    module: Any
    for path, module in model.named_modules(remove_duplicate=False):
        if hasattr(module, "in_features") and hasattr(module, "out_features"):
            shapes[path] = (module.out_features, module.in_features)
        elif type(module).__name__ == "Conv1D":
            shapes[path] = (module.nx, module.nf)
            transposed.add(path)
    return describe(config.model_type, config_fields.from_config(config), shapes, transposed)


def join(stored: Architecture, live: Architecture) -> Architecture:
    """The stored sites with the module paths of the live model: tensor names and module paths may differ.

    Raises:
        EditkitError: if the two do not have the same heads in the same layers.
    """
    left = {site.layer: (site.units, site.width, site.axis) for site in stored.sites}
    right = {site.layer: (site.units, site.width, site.axis) for site in live.sites}
    differing = sorted(layer for layer in left | right if left.get(layer) != right.get(layer))
    if differing:
        layer = differing[0]
        raise EditkitError(
            f"The loaded {live.model_type} is not what its checkpoint says: layer {layer} has (heads, width, axis) "
            f"{left.get(layer)} in the files and {right.get(layer)} in memory ({len(differing)} layers differ)."
        )
    at = {site.layer: site for site in live.sites}
    sites = (replace(site, module=at[site.layer].module, twins=at[site.layer].twins) for site in stored.sites)
    return replace(stored, sites=tuple(sites))


def describe(
    model_type: str,
    fields: Fields,
    shapes: Mapping[str, tuple[int, ...]],
    transposed: Collection[str] | None = None,
) -> Architecture:
    """Sites from the config's fields and the shapes of all linear maps.

    Args:
        shapes: path without ``.weight`` -> shape of the weight.
        transposed: the paths whose weight is [in, out]; None: as the shapes say (``projections.transposed``).
    """
    transposed = projections.transposed(shapes) if transposed is None else transposed
    found = projections.find(model_type, shapes, layers=config_fields.depth(fields))
    names = _names_by_layer(shapes)
    sites: dict[int, Site] = {}
    absent: dict[str, list[int]] = {}
    for layer in range(found.layers):
        path = found.paths.get(layer)
        owner = config_fields.owner(fields, layer)
        if owner in sites:
            twins = (path,) if path else ()
            site = sites[owner]
            sites[owner] = replace(site, shared=(*site.shared, layer), twins=(*site.twins, *twins))
        elif path is None or config_fields.is_headless(fields, layer):
            absent.setdefault(_reason(fields, names[str(layer)], layer), []).append(layer)
        else:
            axis = 0 if path in transposed else 1
            sites[layer] = _site(model_type, fields, layer=layer, path=path, shape=shapes[path], axis=axis)
    unreachable = tuple(Unreachable(tuple(layers), reason) for reason, layers in absent.items())
    return Architecture(model_type, found.layers, tuple(sites.values()), unreachable)


def _site(model_type: str, fields: Fields, *, layer: int, path: str, shape: tuple[int, ...], axis: int) -> Site:
    """The width of a head is in_features / query heads, never hidden / heads."""
    heads = config_fields.query_heads(fields, layer)
    declared = config_fields.head_width(fields, layer)
    if not shape[axis] or shape[axis] % heads or declared not in (None, shape[axis] // heads):
        raise EditkitError(
            f"{path}.weight of this {model_type} has {shape[axis]} input features, but config.json says {heads} heads"
            f"{f' of width {declared}' if declared else ''}: the config does not fit the weights."
        )
    return Site(
        kind="head",
        layer=layer,
        tensor=f"{path}.weight",
        module=path,
        shape=tuple(shape),
        axis=axis,
        units=heads,
        width=shape[axis] // heads,
        groups=config_fields.groups(fields, layer, heads),
    )


def _names_by_layer(paths: Iterable[str]) -> Mapping[str, set[str]]:
    """Number in a path -> all components of the paths that it occurs in: what is inside a layer."""
    names = defaultdict[str, set[str]](set)
    for path in paths:
        parts = path.split(".")
        for number in filter(str.isdigit, parts):
            names[number].update(parts)
    return names


def _reason(fields: Fields, inside: Collection[str], layer: int) -> str:
    """Why a layer has no heads: what its tensors are called says more than the config's word for it."""
    if any("mamba" in part for part in inside):
        return "Mamba"
    if "linear_attn" in inside:
        return "linear attention"
    if "linear_y" in inside or "rg_lru" in inside:
        return "a recurrent block"
    if any("cross_attn" in part for part in inside):
        return "cross-attention to another input"
    return config_fields.HEADLESS.get(config_fields.kind(fields, layer) or "", "no attention output projection")
