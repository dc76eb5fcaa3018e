"""Is OUT what was written, and is it the edit and nothing but the edit?

    verify(Path("no-swear"), resolve("meta-llama/Llama-3.2-1B-Instruct"))
    Verification(form="checkpoint", files=12, tensors=2, against_base=True)

Three questions, each answered from the bytes on disk: does every file hash to what the manifest says; are exactly the
slices of ``edit.json`` zero; and, with the base at hand, is every other byte the base's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from editkit import architecture, headers, manifest, undo
from editkit.edit import Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.export import delta, lora
from editkit.export.checkpoint import plan_of, tensor_digest
from editkit.export.contents import contents_of
from editkit.files import digest_of, inside, printable
from editkit.headers import TensorInfo
from editkit.manifest import Manifest
from editkit.source import Source, resolve
from editkit.weights import patch
from editkit.weights.packing import read_runs
from editkit.weights.slices import Slice, by_file, runs_of, slices_of


@dataclass(frozen=True)
class Verification:
    """What was checked: ``files`` by hash, ``tensors`` edited ones for zeros, and the rest against the base."""

    form: str
    files: int
    tensors: int
    against_base: bool

    def describe(self) -> str:
        """One sentence for the terminal."""
        rest = "; every other byte is the base's" if self.against_base else ""
        return f"{self.form}: {self.files} files are what was written, {self.tensors} tensors zero where edited{rest}."

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


def verify(out: Path, base: Source | str | Path | None = None) -> Verification:
    """Check an output of editkit.

    Args:
        base: the unedited model, or its name: then every byte of OUT is compared with it.

    Raises:
        IntegrityError: listing every file and tensor that is not what it should be, sorted.
    """
    out = Path(out)
    if isinstance(base, str | Path):
        base = resolve(base)
    try:
        record = manifest.read(out)
        lines = manifest.offenders(out, record)
        if not lines:
            lines = _zeros(out, record) if record.form != "lora" else lora.problems(out)
        if base is not None:
            lines += _against(out, record, base)
    except IntegrityError:
        raise
    except EditkitError as error:  # a file that cannot even be read is a failed check, not a mistake of the user
        raise IntegrityError(f"{printable(str(out))}: {error}") from error
    if lines:
        shown = "\n".join(f"  {line}" for line in sorted(lines)[:50])
        raise IntegrityError(f"{printable(str(out))} is not what editkit wrote ({len(lines)} problems):\n{shown}")
    return Verification(record.form, len(record.files) + 1, len(record.edited), base is not None)


def _edit(out: Path) -> Edit:
    try:
        return Edit.from_json((out / "editkit" / "edit.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IntegrityError(f"editkit/edit.json: cannot be read ({error}).") from error


def _zeros(out: Path, record: Manifest) -> list[str]:
    """The slices that the edit names, the manifest lists and the undo file holds are the same ones, and are zero."""
    if record.form == "delta":
        stored = headers.read_file(inside(out, delta.NAME), delta.NAME)
        pieces = _listed(record, stored)
    else:
        found = headers.read(out)
        stored = found.tensors
        pieces = list(slices_of(_edit(out), architecture.read(out), found))
        kept = {(piece.tensor.name, piece.start, piece.stop) for piece in undo.read(out).slices}
        if kept != {(piece.tensor.name, piece.start, piece.stop) for piece in pieces}:
            return ["editkit/undo.safetensors: does not hold the slices that editkit/edit.json names"]
    lines = []
    if _spans(pieces) != {(row.tensor, row.axis, span) for row in record.edited for span in row.spans}:
        lines.append("editkit/manifest.json: its edited slices are not those of editkit/edit.json")
    for piece in pieces:
        if any(any(part) for part in read_runs(inside(out, piece.tensor.file), runs_of(piece))):
            lines.append(f"{piece.tensor.name}: [{piece.start}:{piece.stop}] of axis {piece.axis} is not zero")
    for row in record.edited:
        tensor = stored.get(row.tensor)
        if tensor is None or tensor_digest(inside(out, tensor.file), tensor) != row.after:
            lines.append(f"{printable(row.tensor)}: its bytes are not those that were written")
    return lines


def _spans(pieces: Sequence[Slice]) -> set[tuple[str, int, tuple[int, int]]]:
    return {(piece.tensor.name, piece.axis, (piece.start, piece.stop)) for piece in pieces}


def _listed(record: Manifest, stored: Mapping[str, TensorInfo]) -> list[Slice]:
    return [
        Slice("", stored[row.tensor], row.axis, start, stop)
        for row in record.edited
        if row.tensor in stored
        for start, stop in row.spans
    ]


def _against(out: Path, record: Manifest, base: Source) -> list[str]:
    """Every byte of the base is in OUT, unless the edit zeroed it or OUT says that it left it out."""
    plan = plan_of(_edit(out), base)
    kept = undo.read(out)
    runs = by_file(plan.slices)
    lines = []
    for row in record.edited:
        tensor = plan.headers.tensors.get(row.tensor)
        if tensor is None or tensor_digest(inside(base.directory, tensor.file), tensor) != row.before:
            lines.append(f"{printable(row.tensor)}: the base's tensor is not the one that was edited")
    known = contents_of(base.directory, plan.headers.files)
    lines += [f"{name}: in the base, not in OUT" for name in known.copied.keys() - kept.files.keys()]
    for name, file in kept.files.items():
        if name not in known.copied:
            lines.append(f"{printable(name)}: not in the base")
        elif file.at is None:
            if digest_of(inside(base.directory, name)) != file.sha256:
                lines.append(f"{name}: the base's file is not the one this was made for")
        else:
            pair = inside(base.directory, name), inside(out, file.at)
            lines += [
                f"{file.at}: differs from the base at byte {place}{_where(plan.headers.tensors, name, place)}"
                for place in patch.differences(*pair, runs.get(name, ()))
            ]
    return lines


def _where(tensors: Mapping[str, TensorInfo], file: str, place: int) -> str:
    names = [tensor.name for tensor in tensors.values() if tensor.file == file and tensor.start <= place < tensor.end]
    return f", in {names[0]}" if names else ""
