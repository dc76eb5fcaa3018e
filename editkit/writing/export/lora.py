"""The edit as a LoRA adapter for peft, vLLM and the like: loaded on the base it subtracts what the units add.

    adapter_config.json         r, lora_alpha and rank_pattern: rank = inputs switched off, map by map; alpha == rank
    adapter_model.safetensors   base_model.model.model.layers.3.self_attn.o_proj.lora_A.weight  [64, 2048]  the inputs
                                base_model.model.model.layers.3.self_attn.o_proj.lora_B.weight  [2048, 64]  - the slice

Merged, it is the baked checkpoint exactly. Unmerged, ``W x - (W x)_slice`` is rounded where ``W' x`` is not: equal up
to that rounding. The adapter is made of the slices alone: no model is loaded for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editkit.checkpoints import architecture, config_fields, headers
from editkit.checkpoints.architecture import Architecture, Site
from editkit.checkpoints.files import digest_of, inside, printable
from editkit.checkpoints.source import Source
from editkit.checkpoints.staging import beside, check_apart, check_free, save
from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.units import in_order, show
from editkit.writing import manifest, undo_file
from editkit.writing.export.checkpoint import Written, plain_card
from editkit.writing.manifest import Manifest
from editkit.writing.plan import Plan, plan_of
from editkit.writing.serving import RANKS
from editkit.writing.slices import Slice, read_runs, runs_of
from editkit.writing.undo_file import Kept, Undo

if TYPE_CHECKING:
    import torch

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


Removed = tuple[tuple[int, ...], "torch.Tensor"]
"""Inputs of a map that went, and their weights [outputs, inputs that went]."""


@dataclass(frozen=True)
class Map:
    """One adapted linear map: its module, its weight, and which of its inputs are switched off (sorted)."""

    module: str
    tensor: str
    shape: tuple[int, ...]
    axis: int
    inputs: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.inputs) or 1


def write(edit: Edit, base: Source, out: Path, *, allow_large_rank: bool = False) -> Written:
    """Write the adapter to ``out``.

    Args:
        allow_large_rank: write it even where a layer's rank passes 512, which vLLM cannot serve.

    Raises:
        EditkitError: for a rank above 512, and for weights that are not plain floats (fp8 has scales of its own).
    """
    out = Path(out)
    plan = plan_of(edit, base)
    maps = maps_of(plan, base)
    _check(plan, maps, allow_large_rank)
    check_apart(out, base.folders, "the base checkpoint")
    check_free(out, needed=4 * sum(runs.bytes for each in plan.runs.values() for runs in each))
    with beside(out) as directory:
        save(tensors_of(base, plan, maps), directory / WEIGHTS)
        (directory / CONFIG).write_text(config_of(plan.edit, maps), encoding="utf-8")
        notes = _notes(maps)
        (directory / "README.md").write_text(plain_card(plan.edit, base, "lora", notes=notes), encoding="utf-8")
        undo_file.save(directory, base, plan.slices, {name: _kept(base, name) for name in plan.copied}, plan.recorded)
        (directory / "editkit" / "edit.json").write_text(plan.edit.to_json(), encoding="utf-8", newline="\n")
        manifest.write(directory, Manifest("lora", plan.edit.base, {}))
    return Written(out, "lora", (), plan.left_out, notes)


def _kept(base: Source, name: str) -> Kept:
    file = inside(base.directory, name)
    return Kept(None, base.digests.get(name) or digest_of(file), file.stat().st_size)


def maps_of(plan: Plan, base: Source) -> list[Map]:
    """One map per site in the edit, and per depth at which the layer's block is used.

    An empty edit still needs one: an adapter of rank 1 that adds nothing.

    Raises:
        EditkitError: for neurons of a mixture of experts. peft takes every down projection of such a type for the
            experts', and what an adapter says of another one has no effect.
    """
    named = _named(base)
    if plan.edit.neurons and config_fields.has_experts(
        config_fields.from_json(config_fields.read_json(base.directory))
    ):
        raise EditkitError(
            f"{', '.join(show(plan.edit.neurons)[:5])}: in a mixture of experts neurons cannot go with an adapter, "
            "as peft knows its MLPs by the experts alone. Use --format checkpoint."
        )
    inputs: dict[Site, list[int]] = {}
    for unit in in_order(plan.edit.units):
        site = named.site(unit)
        inputs.setdefault(site, []).extend(range(site.slice(unit.index).start, site.slice(unit.index).stop))
    return [
        Map(module, site.tensor, site.shape, site.axis, tuple(off))
        for site, off in (inputs or {named.sites[0]: []}).items()
        for module in dict.fromkeys((site.module, *site.twins))
    ]


def _named(base: Source) -> Architecture:
    """The architecture with the module paths of the live model, which a checkpoint's tensor names need not be."""
    import torch
    from transformers import AutoConfig

    stored = architecture.read(base.directory)
    try:
        config = AutoConfig.from_pretrained(base.directory, trust_remote_code=False)
        with torch.device("meta"):
            model = _model_class(config).from_config(config)
    except Exception:  # remote code is never run for this, and what odd configs raise, nobody can list: names decide
        return stored
    return architecture.join(stored, architecture.from_model(model))


def _model_class(config: Any) -> Any:
    """The class of transformers that opens such a model: the one the checkpoint names, else one for text.

    A model for text and images may have a class for either, with other module paths: servers take the one it names.

    Raises:
        ValueError: if there is none: the model runs on code of its own, or is not made to continue text.
    """
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
    )

    known: Any = (
        (MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM),
        (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoModelForImageTextToText),
    )
    classes = {auto: mapping[type(config)].__name__ for mapping, auto in known if type(config) in mapping}
    if not classes:
        raise ValueError(f"transformers opens no {config.model_type} to continue text.")
    return next((auto for auto, name in classes.items() if name in (config.architectures or ())), next(iter(classes)))


def _check(plan: Plan, maps: Sequence[Map], allow_large_rank: bool) -> None:
    packed = sorted({plan.headers.tensors[each.tensor].dtype for each in maps} - DTYPES.keys())
    if packed:
        raise EditkitError(
            f"The weights are stored as {', '.join(packed)}: an adapter cannot hold their slices. "
            "Use --format checkpoint, which edits the bytes, or an unquantized base."
        )
    if _rank(maps) > RANKS[-1] and not allow_large_rank:
        worst = max(maps, key=lambda each: each.rank)
        raise EditkitError(
            f"{worst.module} needs rank {worst.rank}; vLLM serves at most {RANKS[-1]}. "
            "Use --format checkpoint, remove fewer units of that layer, or allow large ranks (peft itself takes any)."
        )
    if len({each.axis for each in maps}) > 1:
        raise EditkitError("This model stores some weights as [in, out], others as [out, in]: use --format checkpoint.")


def tensors_of(base: Source, plan: Plan, maps: Sequence[Map]) -> dict[str, torch.Tensor]:
    """What ``adapter_model.safetensors`` holds: both factors of each map."""
    import torch

    tensors: dict[str, torch.Tensor] = {}
    for each in maps:
        weight = plan.headers.tensors[each.tensor]
        dtype, outputs = getattr(torch, DTYPES[weight.dtype]), each.shape[1 - each.axis]
        removed = torch.zeros(outputs, 0, dtype=dtype)
        if each.inputs:
            piece = Slice("", weight, each.axis, each.inputs, 1)
            raw = b"".join(read_runs(inside(base.directory, weight.file), runs_of(piece)))
            stored = torch.frombuffer(bytearray(raw), dtype=dtype).reshape(piece.shape)
            removed = stored if each.axis == 1 else stored.T
        down, up = _factors(each.inputs, removed, each.shape[each.axis])
        tensors[f"base_model.model.{each.module}.lora_A.weight"] = down
        tensors[f"base_model.model.{each.module}.lora_B.weight"] = up
    return tensors


def _factors(off: Sequence[int], removed: torch.Tensor, inputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A picks the inputs that are off, B is minus their weights: ``B A = -W`` on them and zero elsewhere.

    Args:
        removed: [outputs, inputs that are off]; none: both factors are of rank 1, and zero.
    """
    import torch

    down = torch.zeros(len(off) or 1, inputs, dtype=removed.dtype)
    down[range(len(off)), list(off)] = 1
    return down, (-removed if len(off) else removed.new_zeros(len(removed), 1)).contiguous()


def config_of(edit: Edit, maps: Sequence[Map]) -> str:
    """The text of ``adapter_config.json``."""
    rank = _rank(maps)
    ranks = {each.module: each.rank for each in maps if each.rank != rank}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": edit.base.model,
        "revision": None if (edit.base.revision or "sha256:").startswith("sha256:") else edit.base.revision,
        "target_modules": [each.module for each in maps],
        "r": rank,
        "lora_alpha": rank,
        "rank_pattern": ranks,
        "alpha_pattern": ranks,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": maps[0].axis == 0,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
        "inference_mode": True,
        "modules_to_save": None,
    }
    return json.dumps(config, indent=2) + "\n"


def _rank(maps: Sequence[Map]) -> int:
    return max(each.rank for each in maps)


def _notes(maps: Sequence[Map]) -> tuple[str, ...]:
    rank = _rank(maps)
    servable = next((most for most in RANKS if most >= rank), None)
    serving = f"vLLM: start it with `--max-lora-rank {servable}`." if servable else f"vLLM serves up to {RANKS[-1]}."
    notes = [f"Rank {rank}. {serving}"]
    if len({each.tensor for each in maps}) < len(maps):
        notes.append(
            "Do not merge it: this model uses a block at several depths, and merging would subtract each time."
        )
    else:
        notes.append("Merged, it is the baked checkpoint; unmerged, the last bits of the weights' dtype are rounded.")
    return tuple(notes)


def problems(out: Path, back: Undo) -> list[str]:
    """What is wrong with an adapter on disk: it must be built of the slices in its undo file, and of nothing else."""
    import torch

    stored = _load(out, WEIGHTS)
    tensors: dict[str, list[Removed]] = {}
    for key, kept in _load(out, undo_file.NAME).items():
        row = back.removed[key]
        off = tuple(start + step for start in row.starts for step in range(row.width))
        tensors.setdefault(row.tensor, []).append((off, kept if row.axis == 1 else kept.T))
    if any(len({removed.shape[0] for _, removed in pieces}) > 1 for pieces in tensors.values()):
        return [f"{undo_file.NAME}: slices of one tensor differ in shape"]
    expected: list[Removed | None] = []
    for pieces in tensors.values():
        pieces.sort(key=lambda piece: piece[0])
        off = tuple(each for inputs, _ in pieces for each in inputs)
        expected.append((off, torch.cat([removed for _, removed in pieces], dim=1)))
    expected = expected or [None]
    prefixes = sorted(key.removesuffix("lora_B.weight") for key in stored if key.endswith("lora_B.weight"))
    matched: set[int] = set()
    for prefix in prefixes:
        down, up = stored.get(f"{prefix}lora_A.weight"), stored[f"{prefix}lora_B.weight"]
        matches = {at for at, removed in enumerate(expected) if down is not None and _is(down, up, removed)}
        if not matches:
            return [f"{WEIGHTS}: {prefix}lora is not minus the removed slices"]
        matched |= matches
    is_complete = len(matched) == len(expected) and len(stored) == 2 * len(prefixes)
    return [] if is_complete else [f"{WEIGHTS}: does not hold exactly the removed slices"]


def _is(down: torch.Tensor, up: torch.Tensor, removed: Removed | None) -> bool:
    """Whether two stored factors are those of the inputs that went."""
    if down.dim() != 2 or up.dim() != 2:
        return False
    off, weights = removed or ((), up.new_zeros(len(up), 0))
    if off and off[-1] >= down.shape[1]:
        return False
    expected = _factors(off, weights, down.shape[1])
    return _same_bytes(down, expected[0]) and _same_bytes(up, expected[1])


def differing(out: Path, plan: Plan, base: Source) -> list[str]:
    """What of an adapter on disk is not what the edit makes of ``base``: it is built again and compared."""
    maps = maps_of(plan, base)
    expected, stored = tensors_of(base, plan, maps), _load(out, WEIGHTS)
    names = {name for name in expected.keys() & stored.keys() if not _same_bytes(expected[name], stored[name])}
    wrong = [
        f"{WEIGHTS}: {printable(name)} is not what the edit makes of the base"
        for name in sorted(names | (expected.keys() ^ stored.keys()))
    ]
    if inside(out, CONFIG).read_bytes() != config_of(plan.edit, maps).encode():
        wrong.append(f"{CONFIG}: not the one that the edit needs on the base")
    return wrong


def _load(out: Path, name: str) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    headers.read_file(inside(out, name), name)  # strictly, before a reader that believes more
    return load_file(inside(out, name))


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    import torch

    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
