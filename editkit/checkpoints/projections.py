"""Which linear maps end an attention block: a rule over names, and the few model types the rule gets wrong.

    find("qwen3_next", ["model.layers.0.linear_attn.out_proj", "model.layers.3.self_attn.o_proj", ...], layers=48)
    -> Projections({3: "model.layers.3.self_attn.o_proj", ...}, (Stack("model.layers.", offset=0, depth=48, parts=1),))

Names are matched by whole path components, never by suffix: ``linear_attn.out_proj`` and ``mamba.out_proj`` are not
attention, and neither is a vision tower.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from editkit.errors import EditkitError

REFUSED: Mapping[str, str] = {
    "bitnet": "a norm over all heads sits between the heads and the output projection, so no slice is one head alone",
    "blt": "bytes run through four separate attention stacks whose layers are not one sequence",
    "deepseek_v4": "the output projection is factored in groups of heads (o_a_proj, o_b_proj), not one slice per head",
    "diffllama": "heads work in pairs whose difference is normalised together, so no slice is one head alone",
    "falcon_mamba": "it has no attention heads (Mamba)",
    "gemma4_assistant": "it is a draft model that runs inside another model",
    "gemma4_unified_assistant": "it is a draft model that runs inside another model",
    "jetmoe": "the output projection is a mixture of experts, not one linear map",
    "mamba": "it has no attention heads (Mamba)",
    "mamba2": "it has no attention heads (Mamba)",
    "musicgen": "it makes audio codes, not text",
    "musicgen_melody": "it makes audio codes, not text",
    "reformer": "hashed attention draws its buckets at random, so no two runs are the same model",
    "rwkv": "it has no attention heads (RWKV)",
    "xlm": "transformers runs it as an encoder only",
    "xlnet": "the output projection is a three-dimensional einsum, not a linear map",
    "xlstm": "it has no attention heads (xLSTM)",
}
"""Model types without one column slice per head, and why."""

TAILS: Mapping[str, str] = {
    "bailing_hybrid": r"(attention\.dense|self_attn\.o_proj)",
    "minimax": r"self_attn\.o_proj",
    "nemotron_h": r"mixer\.o_proj",
    "recurrent_gemma": r"temporal_block\.o_proj",
}
"""The path inside a layer, where the general rule finds nothing or too much."""

STACKS: Mapping[str, tuple[str, ...]] = {"hrm_text": ("L_module", "H_module")}
"""Types with several stacks of layers that all belong to the language model: counted through, in this order."""

_TAIL = (
    r"(?:.*\.)?(?:self_attn|attn|attention|self_attention|multi_head_attention)(?:\.\d+)?(?:\.output)?"
    r"\.(?:o_proj|out_proj|dense|c_proj|Wo|wo|wo_ud|attention_out)(?:\.linear)?"
)
_PLACE = re.compile(r"(?P<stack>(?:[^.0-9][^.]*\.)*)(?P<layer>\d{1,5})\.(?P<tail>.+)")
_FOREIGN = re.compile(
    r"(?:^|\.)(?:[^.]*(?:vision|visual|image|audio|speech)[^.]*|vit|mtp[^.]*|encoder_attn|cross_?attn[^.]*|crossattention"
    r"|linear_attn|mamba[^.]*|conv|indexer|mlp|experts)(?:\.|$)"
)
"""Other modalities, extra prediction layers, cross-attention, token mixers without heads."""


@dataclass(frozen=True)
class Stack:
    """One list of layers: ``prefix + "3."`` begins what is in its layer 3, which counts as ``offset + 3 * parts``."""

    prefix: str
    offset: int
    depth: int
    parts: int

    @property
    def layers(self) -> int:
        return self.depth * self.parts


@dataclass(frozen=True)
class Projections:
    """Layer -> path of its attention output projection; layers without one are absent."""

    paths: Mapping[int, str]
    stacks: tuple[Stack, ...]

    @property
    def layers(self) -> int:
        return sum(stack.layers for stack in self.stacks)


def find(model_type: str, paths: Iterable[str], *, layers: int | None) -> Projections:
    """The attention output projections of the language model.

    Args:
        paths: names of all linear maps, without ``.weight``: from a checkpoint or from a live model.
        layers: how many layers the config says one stack has; extra prediction layers beyond them are left out.

    Raises:
        EditkitError: if the type is refused, or if the rule finds nothing or more than one answer; lists what it found.
    """
    if model_type in REFUSED:
        raise EditkitError(f"editkit cannot edit heads of a {model_type}: {REFUSED[model_type]}.")
    names = list(paths)
    candidates = _match(model_type, names)
    if len(candidates) > 1 and model_type not in STACKS:
        decoders = {key: of_layer for key, of_layer in candidates.items() if ".encoder." not in f".{key[0]}"}
        candidates = decoders or candidates
    if not candidates:
        raise EditkitError(_nothing(model_type, names))
    if len(candidates) > 1 and model_type not in STACKS:
        raise EditkitError(_ambiguous(model_type, candidates))
    return _number(model_type, candidates, layers)


def transposed(shapes: Mapping[str, tuple[int, ...]]) -> frozenset[str]:
    """The projections stored as [in, out], which are transformers' ``Conv1D`` and not ``nn.Linear``.

    A square one does not show it, but the map to queries, keys and values in the same layer does: it has more outputs
    than inputs.
    """
    fused = {
        path.rsplit(".", 2)[0]
        for path, shape in shapes.items()
        if re.search(r"\.c_attn$", path) and shape[0] < shape[1]
    }
    return frozenset(f"{layer}.{name}" for layer in fused for name in ("attn.c_proj", "mlp.c_proj"))


def _match(model_type: str, paths: Collection[str]) -> dict[tuple[str, str], dict[tuple[int, int], str]]:
    """(stack, path inside the layer) -> {(layer, part): path}; a layer has several parts where it attends twice."""
    tail = re.compile(TAILS.get(model_type, _TAIL))
    candidates: dict[tuple[str, str], dict[tuple[int, int], str]] = defaultdict(dict)
    for path in paths:
        match = _PLACE.fullmatch(path)
        if match is None or _FOREIGN.search(path) or not tail.fullmatch(match["tail"]):
            continue
        part = re.search(r"\.(\d+)\.", match["tail"])
        inside = re.sub(r"\.\d+\.", ".*.", match["tail"])
        candidates[match["stack"], inside][int(match["layer"]), int(part[1]) if part else 0] = path
    return candidates


def _number(
    model_type: str, candidates: Mapping[tuple[str, str], Mapping[tuple[int, int], str]], layers: int | None
) -> Projections:
    """Count layers through: parts inside a layer first (LongCat attends twice per layer), then stack after stack."""
    order = STACKS.get(model_type, ())
    stacks = sorted(candidates, key=lambda key: next((at for at, name in enumerate(order) if name in key[0]), 0))
    numbered: dict[int, str] = {}
    counted: list[Stack] = []
    for key in stacks:
        paths = candidates[key]
        parts = 1 + max(part for _, part in paths)
        depth = layers if layers is not None else 1 + max(layer for layer, _ in paths)
        stack = Stack(key[0], sum(before.layers for before in counted), depth, parts)
        for (layer, part), path in sorted(paths.items()):
            if layer < depth:
                numbered[stack.offset + layer * parts + part] = path
        counted.append(stack)
    return Projections(numbered, tuple(counted))


def _nothing(model_type: str, paths: Collection[str]) -> str:
    if {"encoder", "decoder"} <= {path.split(".")[0] for path in paths}:
        return (
            f"{model_type} reads with an encoder and writes with a decoder: editkit edits models that do both "
            "in one stack. Give a causal language model, such as those of docs/architectures.md."
        )
    inside = {re.sub(r"\.\d+\.", ".N.", path) for path in paths if re.search(r"attn|attention|mixer", path)}
    listed = ", ".join(sorted(inside)[:12]) or "none with attention in its name"
    return (
        f"No attention output projection found in this {model_type}: expected a name like layers.N.self_attn.o_proj. "
        f"Found {len(paths)} linear maps; those near attention: {listed}. See docs/adding-an-architecture.md."
    )


def _ambiguous(model_type: str, candidates: Mapping[tuple[str, str], Mapping[tuple[int, int], str]]) -> str:
    listed = "; ".join(sorted(f"{stack}N.{tail} ({len(paths)} layers)" for (stack, tail), paths in candidates.items()))
    return (
        f"This {model_type} has more than one candidate for the attention output projection: {listed}. "
        "Which of them are heads of the language model cannot be told from names. See docs/adding-an-architecture.md."
    )
