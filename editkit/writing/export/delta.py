"""Only what changed: the edited tensors whole, the edit, and the revision and hashes of the base they belong to.

    no-swear-delta/
      delta.safetensors      "model.layers.3.self_attn.o_proj.weight"  BF16 [2048, 2048], its removed slices zero
      editkit/edit.json, undo.safetensors, manifest.json

``edit_on`` proves that its tensors are a base's with the slices of its edit zeroed, so baking that edit on that base
gives the very tensors of the delta: in any form, with the one writer of that form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from editkit.checkpoints.files import inside, printable
from editkit.checkpoints.headers import TensorInfo, read_file
from editkit.checkpoints.source import Source
from editkit.edit import Edit
from editkit.errors import IntegrityError, UsageError
from editkit.writing import manifest
from editkit.writing.export import checkpoint
from editkit.writing.export.checkpoint import Plan, Written, plan_of
from editkit.writing.export.plain import plain_card
from editkit.writing.export.sidecar import sidecar
from editkit.writing.packing import Packed, pack, read_tensor
from editkit.writing.slices import Runs, by_file, whole, zero, zero_in_place

NAME = "delta.safetensors"


def write(
    edit: Edit,
    base: Source,
    out: Path,
    *,
    recipe: Mapping[str, Any] | None = None,
    seeds: Mapping[str, int] | None = None,
) -> Written:
    """Write the delta to ``out``. It leads to the edited model together with the base (:func:`edit_on`), not alone.

    Raises:
        EditkitError: as ``checkpoint.write``.
    """
    out = Path(out)
    plan = plan_of(edit, base)
    tensors = {piece.tensor.name: piece.tensor for piece in plan.slices}
    with sidecar(plan, base, out, "delta", recipe=recipe, seeds=seeds) as (directory, edited):
        packed = [
            Packed(name, tensor.dtype, tensor.shape, inside(base.directory, tensor.file), whole(tensor))
            for name, tensor in sorted(tensors.items())
        ]
        pack(directory / NAME, packed, {"format": "pt"})
        stored = read_file(directory / NAME)
        moved = [replace(piece, tensor=stored[piece.tensor.name]) for piece in plan.slices]
        zero_in_place(directory / NAME, by_file(moved).get(NAME, ()))
        edited += checkpoint.edited_tensors(base.directory, directory, plan.slices, stored)
        (directory / "README.md").write_text(plain_card(plan.edit, base, "delta"), encoding="utf-8")
    return Written(out, "delta", tuple(edited), plan.contents.left_out)


def is_delta(path: Path) -> bool:
    """Whether this is the directory of a delta."""
    return (path / NAME).is_file()


def edit_on(delta: Path, base: Source) -> Edit:
    """The edit of a delta, once its own tensors are proved to be those of ``base`` with the edit's slices zeroed.

    Raises:
        IntegrityError: if the delta was changed, or ``base`` has other tensors than the one that it was made for.
        EditkitError: if ``base`` is another revision.
    """
    record = manifest.read(delta)
    if record.form != "delta":
        raise UsageError(f"{printable(str(delta))} is a {record.form}, not a delta.")
    lines = manifest.offenders(delta, record)
    if lines:
        raise IntegrityError(f"{printable(str(delta))}: " + "; ".join(lines))
    edit = Edit.from_json((delta / "editkit" / "edit.json").read_text(encoding="utf-8"))
    plan = plan_of(edit, base)
    wrong = differing(delta, plan, base)
    if wrong:
        raise IntegrityError(
            f"{printable(wrong[0])}: the delta does not hold the base's tensor with the removed slices zeroed: "
            "it was made for other weights."
        )
    return plan.edit


def differing(delta: Path, plan: Plan, base: Source) -> list[str]:
    """The tensors, of the delta or of the edit, that the delta does not hold as the base's with the slices zeroed."""
    stored = read_file(inside(delta, NAME), NAME)
    tensors = {piece.tensor.name: piece.tensor for piece in plan.slices}
    wrong = sorted(stored.keys() ^ tensors.keys())
    for name in sorted(stored.keys() & tensors.keys()):
        place = inside(base.directory, tensors[name].file)
        runs = plan.runs[tensors[name].file]
        if not _are_equal(place, tensors[name], runs, inside(delta, NAME), stored[name]):
            wrong.append(name)
    return wrong


def _are_equal(base: Path, tensor: TensorInfo, runs: Sequence[Runs], delta: Path, stored: TensorInfo) -> bool:
    """Whether the tensor in the delta is the base's with the runs zeroed, byte for byte."""
    if (stored.dtype, stored.shape) != (tensor.dtype, tensor.shape):
        return False
    place = tensor.start
    for one, other in zip(read_tensor(base, tensor), read_tensor(delta, stored), strict=True):
        expected = np.frombuffer(bytearray(one), np.uint8)
        zero(expected, place, runs)
        if expected.tobytes() != other:
            return False
        place += len(one)
    return True
