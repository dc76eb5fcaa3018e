"""Is an adapter on disk what its edit makes? Asked of its own undo file, and of the base where that is at hand.

problems(out, undo.read(out))       []    its factors pick the removed slices and subtract them, and nothing else
differing(out, edit, plan, base)    []    built again from the base, it is the same to the byte
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from editkit.checkpoints import headers
from editkit.checkpoints.files import inside, printable
from editkit.checkpoints.source import Source
from editkit.edit import Edit
from editkit.writing import undo
from editkit.writing.export.checkpoint import Plan
from editkit.writing.export.lora import CONFIG, WEIGHTS, config_of, maps_of, tensors_of
from editkit.writing.undo import Undo

if TYPE_CHECKING:
    import torch


def problems(out: Path, back: Undo) -> list[str]:
    """What is wrong with an adapter on disk: it must be built of the slices in its undo file, and of nothing else."""
    name, stored = WEIGHTS, _load(out, WEIGHTS)
    slices: dict[str, list[tuple[int, int, torch.Tensor]]] = {}
    for key, piece in _load(out, undo.NAME).items():
        row = back.removed[key]
        slices.setdefault(row.tensor, []).append((row.start, row.stop, piece if row.axis == 1 else piece.T))
    if any(len({piece.shape[0] for *_, piece in pieces}) > 1 for pieces in slices.values()):
        return [f"{undo.NAME}: slices of one tensor differ in shape"]
    found = {key.removesuffix("lora_B.weight") for key in stored if key.endswith("lora_B.weight")}
    expected = [_identity(sorted(pieces, key=lambda row: row[:2])) for pieces in slices.values()] or [((), None)]
    matched: set[int] = set()
    for prefix in sorted(found):
        down, up = stored.get(f"{prefix}lora_A.weight"), stored[f"{prefix}lora_B.weight"]
        matches = [place for place, row in enumerate(expected) if down is not None and _is(down, up, *row)]
        if not matches:
            return [f"{name}: {prefix}lora is not minus the removed slices"]
        matched |= set(matches)
    is_complete = len(matched) == len(expected) and len(stored) == 2 * len(found)
    return [] if is_complete else [f"{name}: does not hold exactly the removed slices"]


def differing(out: Path, edit: Edit, plan: Plan, base: Source) -> list[str]:
    """What of an adapter on disk is not what ``edit`` makes of ``base``: the adapter is built again and compared."""
    maps = maps_of(plan, base)
    expected, stored = tensors_of(base, plan, maps), _load(out, WEIGHTS)
    names = {name for name in expected.keys() & stored.keys() if not _same_bytes(expected[name], stored[name])}
    wrong = [
        f"{WEIGHTS}: {printable(name)} is not what the edit makes of the base"
        for name in sorted(names | (expected.keys() ^ stored.keys()))
    ]
    if inside(out, CONFIG).read_text(encoding="utf-8") != config_of(edit, maps):
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


def _identity(pieces: Sequence[tuple[int, int, torch.Tensor]]) -> tuple[tuple[int, ...], torch.Tensor | None]:
    import torch

    columns = tuple(column for start, stop, _ in pieces for column in range(start, stop))
    return columns, -torch.cat([piece for *_, piece in pieces], dim=1)


def _is(down: torch.Tensor, up: torch.Tensor, columns: Sequence[int], expected: torch.Tensor | None) -> bool:
    import torch

    if down.dim() != 2 or down.shape[0] != (len(columns) or 1) or max(columns, default=0) >= down.shape[1]:
        return False
    picked = torch.zeros_like(down)
    picked[range(len(columns)), list(columns)] = 1
    return torch.equal(down, picked) and torch.equal(up, torch.zeros_like(up) if expected is None else expected)
