"""The edit as a LoRA adapter for peft, vLLM and the like: loaded on the base it subtracts what the heads add.

    adapter_config.json         r, lora_alpha and rank_pattern: rank = width x heads, layer by layer; alpha == rank
    adapter_model.safetensors   base_model.model.model.layers.3.self_attn.o_proj.lora_A.weight  [64, 2048]  the inputs
                                base_model.model.model.layers.3.self_attn.o_proj.lora_B.weight  [2048, 64]  - the slice

Merged, it is the baked checkpoint exactly. Unmerged, ``W x - (W x)_slice`` is rounded where ``W' x`` is not: equal up
to that rounding, which is measured and written into the card.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editkit.checkpoints import architecture
from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.files import inside, printable
from editkit.checkpoints.source import Source
from editkit.checkpoints.staging import save
from editkit.edit import Edit
from editkit.errors import EditkitError, first_line
from editkit.models.memory import available
from editkit.writing.export.checkpoint import Plan, Written, plan_of
from editkit.writing.export.deviation import Deviation, measure, model_class
from editkit.writing.export.plain import plain_card
from editkit.writing.export.sidecar import sidecar
from editkit.writing.packing import read_tensor

if TYPE_CHECKING:
    import torch

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"

SERVABLE = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM accepts as ``--max-lora-rank``."""

UNMEASURABLE = (ValueError, ImportError, RuntimeError, TypeError, KeyError, IndexError, AttributeError)
"""What loading and running somebody's model ends in, where it needs code of its own, images, or more memory."""

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Map:
    """One adapted linear map: its module, its weight, and the spans of its inputs that are switched off."""

    module: str
    tensor: str
    shape: tuple[int, ...]
    axis: int
    spans: tuple[tuple[int, int], ...]

    @property
    def rank(self) -> int:
        return sum(stop - start for start, stop in self.spans) or 1


def write(
    edit: Edit,
    base: Source,
    out: Path,
    *,
    allow_large_rank: bool = False,
    measured: bool = True,
    recipe: Mapping[str, Any] | None = None,
    seeds: Mapping[str, int] | None = None,
) -> Written:
    """Write the adapter to ``out``.

    Args:
        allow_large_rank: write it even where a layer's rank passes 512, which vLLM cannot serve.
        measured: load the base once in float32, if it fits in memory so, and once in its own dtype, and record how far
            the adapter is from the bake. The adapter itself needs no memory.

    Raises:
        EditkitError: for a rank above 512, and for weights that are not plain floats (fp8 has scales of its own).
    """
    out = Path(out)
    plan = plan_of(edit, base)
    maps = maps_of(plan, base)
    _check(plan, maps, allow_large_rank)
    with sidecar(plan, base, out, "lora", recipe=recipe, seeds=seeds) as (directory, _):
        _save(directory, base, plan, maps)
        needed, free = 4 * sum(math.prod(tensor.shape) for tensor in plan.headers.tensors.values()), available()
        deviations, unmeasured = (), ""
        try:
            deviations = measure(base.directory, directory, maps, wide=needed < free) if measured else ()
        except UNMEASURABLE as error:
            unmeasured = f": {printable(first_line(error)).rstrip('.')}"
        notes = _notes(maps, deviations, unmeasured)
        if deviations and needed >= free:
            notes += (f"Not measured in float32, which takes {needed / 1e9:.1f} GB: {free / 1e9:.1f} GB were free.",)
        value = {"rank": _rank(maps), "deviation": [asdict(row) for row in deviations]}
        (directory / "editkit" / "deviation.json").write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        card = plain_card(plan.edit, base, "lora", extra="\n".join(f"{note}\n" for note in notes))
        (directory / "README.md").write_text(card, encoding="utf-8")
    return Written(out, "lora", (), plan.contents.left_out, notes)


def _named(base: Source) -> Architecture:
    """The architecture with the module paths of the live model, which a checkpoint's tensor names need not be."""
    import torch
    from transformers import AutoConfig

    stored = architecture.read(base.directory)
    try:
        config = AutoConfig.from_pretrained(base.directory, trust_remote_code=False)
        with torch.device("meta"):
            model = model_class(config).from_config(config)
    except (ValueError, KeyError, OSError, ImportError):  # remote code is never run for this: names decide
        return stored
    return architecture.join(stored, architecture.from_model(model))


def maps_of(plan: Plan, base: Source) -> list[Map]:
    """One map per layer in the edit, and per depth at which the layer's block is used.

    An empty edit still needs one: an adapter of rank 1 that adds nothing.
    """
    named = _named(base)
    spans: dict[int, list[tuple[int, int]]] = {}
    for unit in sorted(plan.edit.units, key=lambda unit: (unit.layer, unit.index)):
        site = named.site(unit)
        spans.setdefault(site.layer, []).append((site.slice(unit.index).start, site.slice(unit.index).stop))
    sites = {site.layer: site for site in named.sites}
    for layer in spans or [named.sites[0].layer]:
        spans.setdefault(layer, [])
    return [
        Map(module, site.tensor, site.shape, site.axis, tuple(sorted(set(spans[layer]))))
        for layer in sorted(spans)
        for site in [sites[layer]]
        for module in dict.fromkeys((site.module, *site.twins))
    ]


def _check(plan: Plan, maps: Sequence[Map], allow_large_rank: bool) -> None:
    packed = sorted({plan.headers.tensors[each.tensor].dtype for each in maps} - DTYPES.keys())
    if packed:
        raise EditkitError(
            f"The weights are stored as {', '.join(packed)}: an adapter cannot hold their slices. "
            "Use --format checkpoint, which edits the bytes, or an unquantized base."
        )
    if _rank(maps) > SERVABLE[-1] and not allow_large_rank:
        worst = max(maps, key=lambda each: each.rank)
        raise EditkitError(
            f"{worst.module} needs rank {worst.rank}; vLLM serves at most {SERVABLE[-1]}. "
            "Use --format checkpoint, remove fewer heads of that layer, or allow large ranks (peft itself takes any)."
        )


def _rank(maps: Sequence[Map]) -> int:
    return max(each.rank for each in maps)


def _save(directory: Path, base: Source, plan: Plan, maps: Sequence[Map]) -> None:
    save(tensors_of(base, plan, maps), directory / WEIGHTS)
    (directory / CONFIG).write_text(config_of(plan.edit, maps), encoding="utf-8")


def tensors_of(base: Source, plan: Plan, maps: Sequence[Map]) -> dict[str, torch.Tensor]:
    """What ``adapter_model.safetensors`` holds: both factors of each map."""
    tensors: dict[str, torch.Tensor] = {}
    for each in maps:
        down, up = _factors(base, plan, each)
        tensors[f"base_model.model.{each.module}.lora_A.weight"] = down
        tensors[f"base_model.model.{each.module}.lora_B.weight"] = up
    return tensors


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


def _factors(base: Source, plan: Plan, each: Map) -> tuple[torch.Tensor, torch.Tensor]:
    """A picks the inputs of the slices, B is minus the slices: ``B A = -W`` on them and zero elsewhere."""
    import torch

    tensor = plan.headers.tensors[each.tensor]
    dtype = getattr(torch, DTYPES[tensor.dtype])
    raw = b"".join(read_tensor(inside(base.directory, tensor.file), tensor))
    weight = torch.frombuffer(bytearray(raw), dtype=dtype).reshape(tensor.shape)
    if each.axis == 0:
        weight = weight.T
    columns = [column for start, stop in each.spans for column in range(start, stop)]
    down = torch.zeros(each.rank, weight.shape[1], dtype=dtype)
    up = torch.zeros(weight.shape[0], each.rank, dtype=dtype)
    down[range(len(columns)), columns] = 1
    up[:, : len(columns)] = -weight[:, columns]
    return down.contiguous(), up.contiguous()


def _notes(maps: Sequence[Map], deviations: Sequence[Deviation], unmeasured: str) -> tuple[str, ...]:
    servable = next((rank for rank in SERVABLE if rank >= _rank(maps)), None)
    notes = [
        f"Rank {_rank(maps)}. vLLM: start it with `--max-lora-rank {servable}`."
        if servable
        else f"Rank {_rank(maps)}: more than vLLM serves ({SERVABLE[-1]})."
    ]
    if len({each.tensor for each in maps}) < len(maps):
        notes.append(
            "Do not merge it: this model uses a block at several depths, and merging would subtract each time."
        )
    notes += [
        f"Unmerged in {row.dtype}, logits differ from the baked checkpoint's by at most {row.largest:.2g} "
        f"({row.positions} positions; the edit itself moves them by up to {row.edit:.2g})."
        for row in deviations
    ]
    if not deviations:
        notes.append(f"How far it is from the baked checkpoint was not measured{unmeasured}.")
    return tuple(notes)
