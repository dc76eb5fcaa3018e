"""Where a model's neurons live: which linear maps end an MLP, by their names and shapes.

    find("mixtral", stacks, {"model.layers.0.block_sparse_moe.experts.3.w2": (32, 48), ...}, {})
    -> [DownProjection(layer=0, path="model.layers.0.block_sparse_moe.experts.3.w2", expert=3, ...), ...]

A neuron is one coordinate of the down projection's input. Where names or shapes leave a doubt, the layer is out of
reach, and the reason is said: nothing is guessed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from editkit.checkpoints import config_fields
from editkit.checkpoints.config_fields import Fields
from editkit.checkpoints.projections import Stack
from editkit.checkpoints.sites import Site
from editkit.units import PLAIN

Shapes = Mapping[str, tuple[int, ...]]

TAILS: Mapping[str, str] = {"cpmant": r"ffn\.ffn\.w_out", "ctrl": r"ffn\.2", "openai-gpt": r"mlp\.c_proj"}
"""The path inside a layer, where the general rule finds nothing or too much."""

ONE_MATRIX = frozenset({"dbrx"})
"""Types that keep all experts of a layer in one matrix."""

_MLP = r"(?:mlp|mlps|mlp_block|ffn|feed_forward|block_sparse_moe|mixer|shared_mlp)"
_DOWN = r"(?:down_proj|fc2|c_proj|fc_out|w2|Wo|wo|output|output_linear|dense_4h_to_h)(?:\.linear)?"
_DENSE = rf"(?:.*\.)?{_MLP}(?:\.\d+)?(?:\.(?:shared_experts?|shared_mlp))?\.{_DOWN}|fc2|output\.dense"
_EXPERT = re.compile(rf"(?:.*\.)?{_MLP}\.experts\.(?P<expert>\d{{1,5}})\.{_DOWN}")
_FUSED = re.compile(
    rf"(?:.*\.)?{_MLP}\.(?P<shared>shared_)?(?:experts\.)?(?:experts\.)?"
    r"(?P<name>down_proj|fc2\.weight|output_linear\.weight|w2_weight)"
)
_UPS = ("gate_up_proj", "up_proj", "fc1.weight", "input_linear.weight", "w13_weight")
_FOREIGN = re.compile(
    r"(?:^|\.)(?:[^.]*(?:vision|visual|image|audio|speech)[^.]*|mtp[^.]*|encoder_attn|cross_?attn[^.]*|crossattention"
    r"|self_attn|attn|attention|self_attention|conv|mamba[^.]*|linear_attn|indexer|router|gate|[^.]*norm[^.]*)(?:\.|$)"
)
"""Inside a layer: what is no MLP, or not the language model's."""


@dataclass(frozen=True)
class DownProjection:
    """One down projection. ``path`` is a linear map's, without ``.weight``; of a ``fused`` tensor [experts, ., .] the
    full name. ``axis`` is that of its inputs among the last two: 1 for [out, in]. None: as the linear map is stored.
    """

    layer: int
    path: str
    expert: int = PLAIN
    fused: bool = False
    axis: int | None = None


@dataclass
class _Layer:
    """What one layer has: candidates for its own MLP, and its experts, or why those are out of reach."""

    plain: list[str] = field(default_factory=list)
    experts: dict[int, DownProjection] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


def find(
    model_type: str, stacks: Sequence[Stack], linear: Iterable[str], tensors: Shapes, *, hidden: int
) -> tuple[list[DownProjection], dict[str, list[int]]]:
    """The down projections of the language model's MLPs, by layer and expert; and reason -> layers out of reach.

    Args:
        stacks: where the layers are, from the attention output projections.
        linear: paths of all linear maps, without ``.weight``.
        tensors: full name -> shape, of all tensors of three axes.
        hidden: the model's width, which every down projection puts out.
    """
    layers: dict[int, _Layer] = defaultdict(_Layer)
    dense = re.compile(TAILS.get(model_type, _DENSE))
    for layer, tail, path in _inside(stacks, linear):
        if _FOREIGN.search(tail):
            continue
        if expert := _EXPERT.fullmatch(tail):
            number = int(expert["expert"])
            layers[layer].experts[number] = DownProjection(layer, path, number)
        elif dense.fullmatch(tail):
            layers[layer].plain.append(path)
    for layer, tail, name in _inside(stacks, tensors):
        if not _FOREIGN.search(tail) and (match := _FUSED.fullmatch(name, len(name) - len(tail))):
            _fused(layers[layer], layer, match, tensors, hidden)
    projections: list[DownProjection] = []
    absent: dict[str, list[int]] = {}
    for layer in range(sum(stack.layers for stack in stacks)):
        here = layers[layer]
        if len(here.plain) == 1:
            projections.append(DownProjection(layer, here.plain[0]))
        projections += [here.experts[number] for number in sorted(here.experts)]
        reasons = list(here.refused)
        if len(here.plain) > 1:
            reasons.append("more than one MLP")
        elif not here.plain and not here.experts and not reasons:
            reasons.append(
                "experts in one matrix" if model_type in ONE_MATRIX else "no MLP of a known form, or a packed one"
            )
        for reason in reasons:
            absent.setdefault(reason, []).append(layer)
    return projections, absent


def _fused(here: _Layer, layer: int, match: re.Match[str], tensors: Shapes, hidden: int) -> None:
    """All experts of a layer in one tensor: the axis that is not the model's width is the neurons'."""
    name = match.string
    if match["shared"]:
        here.refused.append("shared experts in one tensor")
        return
    shape, parent = tensors[name], name.removesuffix(match["name"])
    axes = {axis for axis in (0, 1) if shape[2 - axis] == hidden}
    for up in filter(None, (tensors.get(parent + each) for each in _UPS)):
        axes &= _input_axis(shape, up)
    if len(axes) != 1:
        here.refused.append("experts whose neurons cannot be told from the model's width")
        return
    axis = axes.pop()
    for expert in range(shape[0]):
        here.experts[expert] = DownProjection(layer, name, expert, True, axis)


def _input_axis(down: tuple[int, ...], up: tuple[int, ...]) -> set[int]:
    """1 where ``down`` is [experts, hidden, neurons] and ``up`` [experts, neurons or twice that, hidden]; 0 where both
    are the other way round; both where either may be.
    """
    straight = up[2] == down[1] and up[1] in (down[2], 2 * down[2])
    turned = up[1] == down[2] and up[2] in (down[1], 2 * down[1])
    return {axis for axis, fits in ((1, straight), (0, turned)) if fits}


def _inside(stacks: Sequence[Stack], names: Iterable[str]) -> Iterable[tuple[int, str, str]]:
    """(layer, path inside the layer, whole name) of what lies in the language model's layers."""
    for name in names:
        for stack in stacks:
            match = re.match(r"(\d{1,5})\.(.+)", name[len(stack.prefix) :]) if name.startswith(stack.prefix) else None
            if match and int(match[1]) < stack.depth:
                mlp = re.match(r"mlps\.(\d+)\.", match[2]) if stack.parts > 1 else None
                yield stack.offset + int(match[1]) * stack.parts + (int(mlp[1]) if mlp else 0), match[2], name
                break


def site_of(projection: DownProjection, shapes: Shapes, transposed: Collection[str]) -> Site:
    """A down projection as a site. ``transposed``: the paths whose weight is [in, out]."""
    shape = shapes[projection.path]
    inputs = projection.axis if projection.axis is not None else 0 if projection.path in transposed else 1
    module, _, weight = projection.path.rpartition(".") if projection.fused else (projection.path, "", "weight")
    return Site(
        kind="neuron",
        layer=projection.layer,
        tensor=f"{module}.{weight}",
        module=module,
        shape=tuple(shape),
        axis=inputs + len(shape) - 2,
        units=shape[inputs + len(shape) - 2],
        width=1,
        expert=projection.expert,
        weight=weight,
    )


def shared(sites: Sequence[Site], fields: Fields, layers: int) -> tuple[Site, ...]:
    """The sites with those that are used at several depths (Zamba) as one each."""
    by_key = {(site.layer, site.expert): site for site in sites}
    for layer in range(layers):
        owner = config_fields.owner(fields, layer)
        for (at, expert), site in list(by_key.items()) if owner != layer else ():
            if at == owner:
                twin = by_key.pop((layer, expert), None)
                twins = (*site.twins, twin.module) if twin else site.twins
                by_key[at, expert] = replace(site, shared=(*site.shared, layer), twins=twins)
    return tuple(by_key.values())
