"""Only what changed: the edited tensors whole, the edit, and the revision and hashes of the base they belong to.

    no-swear-delta/
      delta.safetensors      "model.layers.3.self_attn.o_proj.weight"  BF16 [2048, 2048], its removed slices zero
      editkit/edit.json, undo.safetensors, manifest.json

``bake`` puts it on the base: the result is the checkpoint that ``export.checkpoint`` writes, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from editkit import manifest
from editkit.edit import Edit
from editkit.errors import IntegrityError, UsageError
from editkit.export import checkpoint
from editkit.export.checkpoint import Written, plan_of
from editkit.export.plain import plain_card
from editkit.export.sidecar import sidecar
from editkit.files import inside, printable
from editkit.headers import read_file
from editkit.manifest import Edited
from editkit.source import Source
from editkit.weights.packing import Packed, pack
from editkit.weights.slices import by_file, whole, zero_in_place

NAME = "delta.safetensors"


def write(
    edit: Edit,
    base: Source,
    out: Path,
    *,
    recipe: Mapping[str, Any] | None = None,
    seeds: Mapping[str, int] | None = None,
) -> Written:
    """Write the delta to ``out``. It leads to the edited model together with the base (:func:`bake`), not alone.

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


def bake(delta: Path, base: Source, out: Path, *, link: bool = False) -> Written:
    """Put a delta on its base: the edited checkpoint, proved to hold the very tensors of the delta.

    Raises:
        IntegrityError: if the delta was changed, or the result is not what it describes.
        EditkitError: if ``base`` is not the revision that the delta was made for.
    """
    delta = Path(delta)
    record = manifest.read(delta)
    if record.form != "delta":
        raise UsageError(f"{printable(str(delta))} is a {record.form}, not a delta.")
    lines = manifest.offenders(delta, record)
    if lines:
        raise IntegrityError(f"{printable(str(delta))}: " + "; ".join(lines))
    edit = Edit.from_json((delta / "editkit" / "edit.json").read_text(encoding="utf-8"))
    with checkpoint.stage(edit, base, out, link=link) as written:
        wrong = sorted(_tensors(record.edited) ^ _tensors(written.edited))
        if wrong:
            raise IntegrityError(f"{wrong[0][0]}: not what the delta holds: it was made for other weights.")
    return Written(Path(out), written.form, written.edited, written.left_out, written.notes)


def _tensors(edited: tuple[Edited, ...]) -> set[tuple[str, str, str]]:
    return {(row.tensor, row.before, row.after) for row in edited}
