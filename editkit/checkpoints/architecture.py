"""What a checkpoint's or a live model's heads and neurons are: read from ``config.json`` and safetensors headers, or
from the modules; no weights are looked at.

    read(Path("Llama-3.2-1B"))      Architecture of 512 heads in 16 layers, and 131072 neurons
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from editkit.checkpoints import config_fields, headers, neurons, projections
from editkit.checkpoints.config_fields import Fields
from editkit.checkpoints.sites import Architecture as Architecture
from editkit.checkpoints.sites import Site as Site
from editkit.checkpoints.sites import Unreachable as Unreachable
from editkit.errors import EditkitError

if TYPE_CHECKING:
    import torch

_PACKED = re.compile(r"(attn|attention)\b.*\.(qweight|weight_packed|weight\.absmax)$")


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
    experts = {name: info.shape for name, info in tensors.items() if len(info.shape) == 3}
    return describe(value["model_type"], config_fields.from_json(value), shapes, experts=experts)


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
    experts = {
        name: tuple(weight.shape)
        for name, weight in model.named_parameters(remove_duplicate=False)
        if len(weight.shape) == 3
    }
    return describe(config.model_type, config_fields.from_config(config), shapes, transposed, experts=experts)


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
    at = {site.key: site for site in live.all_sites}
    neuron_sites = [site for site in stored.neuron_sites if _inputs(at.get(site.key)) == _inputs(site)]
    lost = sorted({site.layer for site in stored.neuron_sites} - {site.layer for site in neuron_sites})
    differing_neurons = (Unreachable(tuple(lost), "in memory these MLPs are other modules"),) if lost else ()
    return replace(
        stored,
        sites=tuple(_placed(site, at[site.key]) for site in stored.sites),
        neuron_sites=tuple(_placed(site, at[site.key]) for site in neuron_sites),
        unreachable_neurons=(*stored.unreachable_neurons, *differing_neurons),
    )


def _placed(site: Site, live: Site) -> Site:
    return replace(site, module=live.module, weight=live.weight, twins=live.twins)


def _inputs(site: Site | None) -> tuple[int, int] | None:
    """Number and axis of the inputs that a site cuts; counted from the end, as experts are one tensor or many."""
    return site and (site.units, len(site.shape) - site.axis)


def describe(
    model_type: str,
    fields: Fields,
    shapes: Mapping[str, tuple[int, ...]],
    transposed: Collection[str] | None = None,
    *,
    experts: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Architecture:
    """Sites from the config's fields and the shapes of all linear maps.

    Args:
        shapes: path without ``.weight`` -> shape of the weight.
        transposed: the paths whose weight is [in, out]; None: as the shapes say (``projections.transposed``).
        experts: full name -> shape of the tensors of three axes, which may hold all experts of a layer.
    """
    transposed = projections.transposed(shapes) if transposed is None else transposed
    attention = projections.find(model_type, shapes, layers=config_fields.depth(fields))
    names = _names_by_layer(shapes)
    sites: dict[int, Site] = {}
    absent: dict[str, list[int]] = {}
    for layer in range(attention.layers):
        path = attention.paths.get(layer)
        owner = config_fields.owner(fields, layer)
        if owner in sites:
            twins = (path,) if path else ()
            site = sites[owner]
            sites[owner] = replace(site, shared=(*site.shared, layer), twins=(*site.twins, *twins))
        elif path is None or config_fields.kind(fields, layer) in config_fields.HEADLESS:
            absent.setdefault(_reason(fields, names[str(layer)], layer), []).append(layer)
        else:
            axis = 0 if path in transposed else 1
            sites[layer] = _site(model_type, fields, layer=layer, path=path, shape=shapes[path], axis=axis)
    unreachable = tuple(Unreachable(tuple(layers), reason) for reason, layers in absent.items())
    hidden = next((site.shape[1 - site.axis] for site in sites.values()), 0)
    mlps, missing = neurons.find(model_type, attention.stacks, shapes, experts, hidden=hidden)
    all_shapes = {**shapes, **experts}
    separate = [neurons.site_of(projection, all_shapes, transposed) for projection in mlps]
    neuron_sites = neurons.shared(separate, fields, attention.layers)
    reached = {layer for site in neuron_sites for layer in site.shared}
    without = ((reason, tuple(layer for layer in layers if layer not in reached)) for reason, layers in missing.items())
    return Architecture(
        model_type,
        attention.layers,
        tuple(sites.values()),
        unreachable,
        neuron_sites,
        tuple(Unreachable(layers, reason) for reason, layers in without if layers),
    )


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
    if any("mamba" in name for name in inside):
        return "Mamba"
    if "linear_attn" in inside:
        return "linear attention"
    if "linear_y" in inside or "rg_lru" in inside:
        return "a recurrent block"
    if any("cross_attn" in name for name in inside):
        return "cross-attention to another input"
    return config_fields.HEADLESS.get(config_fields.kind(fields, layer) or "", "no attention output projection")
