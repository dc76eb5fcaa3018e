"""Is OUT what was written, and is it the edit and nothing but the edit?

    verify(Path("no-swear"), resolve("meta-llama/Llama-3.2-1B-Instruct"))
    Verification(form="checkpoint", files=12, tensors=2, against_base=True)

Three questions, each answered from the bytes on disk: does every file hash to what the manifest says; are exactly the
slices of ``edit.json`` zero; and, with the base at hand, is every other byte the base's, and every file accounted for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from editkit.checkpoints import architecture, gguf, headers
from editkit.checkpoints.files import digest_of, inside, printable, walk
from editkit.checkpoints.headers import TensorInfo
from editkit.checkpoints.source import Source, recorded, resolve
from editkit.checkpoints.unshipped import is_record
from editkit.edit import Edit
from editkit.errors import EditkitError, IntegrityError, UsageError
from editkit.progress import Stages, silent
from editkit.units import Head
from editkit.writing import copying, manifest, undo_file
from editkit.writing.export import gguf as in_blocks
from editkit.writing.export import lora
from editkit.writing.export.checkpoint import tensor_digest
from editkit.writing.manifest import Manifest, is_tolerated
from editkit.writing.plan import KEPT, Plan, place_of, plan_of
from editkit.writing.slices import Runs, Slice, key_of, read_runs, runs_of, slices_of
from editkit.writing.undo_file import Undo

_OTHER_SLICES = f"{undo_file.NAME}: does not hold the slices that editkit/edit.json names"
_OWN = {"lora": (lora.WEIGHTS, lora.CONFIG)}
"""The files of a form that does not copy those of the base, beside its card and ``editkit/``."""


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
        counted = f", {self.tensors} {'tensor' if self.tensors == 1 else 'tensors'} zero where edited"
        zeros = counted if self.tensors else ""  # an adapter zeroes nothing itself
        return f"{self.form}: {self.files} files are what was written{zeros}{rest}."

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


def verify(out: str | Path, base: Source | str | Path | None = None, *, stages: Stages = silent) -> Verification:
    """Check an output of editkit.

    Args:
        base: the unedited model, or its name: then every byte of OUT is compared with it. A Hub model that the edit
            names is taken at the commit that the edit names.
        stages: told while a base is converted.

    Raises:
        IntegrityError: listing every file and tensor that is not what it should be, sorted.
    """
    out = Path(out)
    if (file := gguf.file_of(out)) is not None:
        return _verify_gguf(file, base)
    record = manifest.read(out)
    if isinstance(base, str | Path):
        base = resolve(base, recorded(base, record.base), stages=stages)
    try:
        lines = manifest.offenders(out, record)
        if not lines:
            back = undo_file.read(out)
            lines = [*_bases(_edit(out), record, back, base), *_places(out, record.form, back)]
            lines += _slices(out, record, back)
        if base is not None:
            lines += _against(out, record, base)
    except IntegrityError:
        raise
    except EditkitError as error:  # a file that cannot even be read is a failed check, not a mistake of the user
        raise IntegrityError(f"{printable(str(out))}: {error}") from error
    _require_none(out, lines)
    return Verification(record.form, len(record.files) + 1, len(record.edited), base is not None)


def _verify_gguf(out: Path, base: Source | str | Path | None) -> Verification:
    given = base.gguf if isinstance(base, Source) else gguf.file_of(base)
    if base is not None and given is None:
        raise UsageError(f"{printable(str(base))}: expected the GGUF file that {printable(str(out))} was made from.")
    record, lines = in_blocks.problems(out, given)
    _require_none(out, lines)
    return Verification("gguf", 3, len(record.edited), base is not None)


def _require_none(out: Path, lines: Sequence[str]) -> None:
    if lines:
        lines = sorted(set(lines))
        count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        shown = "\n".join(f"  {line}" for line in lines[:50])
        raise IntegrityError(f"{printable(str(out))} is not what editkit wrote ({count}):\n{shown}")


def _edit(out: Path) -> Edit:
    try:
        return Edit.from_json((out / "editkit" / "edit.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IntegrityError(f"editkit/edit.json: cannot be read ({error}).") from error


def _bases(edit: Edit, record: Manifest, back: Undo, base: Source | None) -> list[str]:
    """Edit, manifest, undo file and the base that is given are of one base, and so are the weights."""
    if not edit.base == record.base == back.base:
        said = ", ".join(
            dict.fromkeys(f"{each.model} at {each.revision}" for each in (edit.base, record.base, back.base))
        )
        return [f"editkit/: edit.json, manifest.json and {undo_file.NAME} name different bases: {printable(said)}"]
    lines = []
    if back.revision not in (None, edit.base.revision):
        lines.append(f"{undo_file.NAME}: the weights that it leads back to are not those of {edit.base.revision}")
    is_commit = not (edit.base.revision or "sha256:").startswith("sha256:")
    if base is not None and is_commit and base.base.revision == edit.base.revision and base.base != edit.base:
        lines.append(f"editkit/edit.json: names {edit.base.model}, the base given is {base.base.model}")
    return [printable(line) for line in lines]


def _places(out: Path, form: str, back: Undo) -> list[str]:
    """OUT keeps each file of the base at its one place (an adapter none), and holds nothing that is no record."""
    lines = []
    for name, file in back.files.items():
        expected = place_of(name) if form == "checkpoint" else None
        if file.at != expected:
            lines.append(
                f"{undo_file.NAME}: expected {printable(name)} of the base at {expected or 'nowhere'}, "
                f"found {printable(file.at or 'nowhere')}"
            )
    own = {"README.md", *_OWN.get(form, ()), *(file.at for file in back.files.values())}
    for name in walk(out):
        is_own = name in own or (is_record(name) and not name.startswith(KEPT))
        if not is_own and not is_tolerated(name):
            lines.append(f"{printable(name)}: not in the base, and no record of an edit")
    return lines


def _slices(out: Path, record: Manifest, back: Undo) -> list[str]:
    """The slices that the edit names, the manifest lists and the undo file holds are the same ones, and are gone."""
    if record.form == "checkpoint":
        pieces = slices_of(_edit(out), architecture.read(out), headers.read(out))
        if {key_of(piece) for piece in pieces} != back.removed.keys():
            return [_OTHER_SLICES]
        return _zeros(out, record, headers.read(out).tensors, pieces)
    if _indexes(_edit(out)) != _kept_indexes(back):
        return [_OTHER_SLICES]
    return lora.problems(out, back)


def _indexes(edit: Edit) -> set[tuple[str, frozenset[int]]]:
    """Which indexes a layer of the edit has; which layer that is, a tensor's name alone does not tell."""
    layers: dict[tuple[str, int], set[int]] = {}
    for unit in edit.units:
        kind = "head" if isinstance(unit, Head) else "neuron"
        layers.setdefault((kind, unit.layer), set()).add(unit.index)
    return {(kind, frozenset(indexes)) for (kind, _), indexes in layers.items()}


def _kept_indexes(back: Undo) -> set[tuple[str, frozenset[int]]]:
    """The same of the undo file: unit 5 of width 64 is 320:384 of its tensor."""
    tensors: dict[tuple[str, str], set[int]] = {}
    for row in back.removed.values():
        for start in row.starts:
            index, rest = divmod(start, row.width)
            kind = "neuron" if row.width == 1 else "head"
            tensors.setdefault((kind, row.tensor), set()).add(-1 if rest else index)
    return {(kind, frozenset(indexes)) for (kind, _), indexes in tensors.items()}


def _zeros(out: Path, record: Manifest, stored: Mapping[str, TensorInfo], pieces: Sequence[Slice]) -> list[str]:
    lines = []
    if _spans(pieces) != {(row.tensor, row.part, row.axis, span) for row in record.edited for span in row.spans}:
        lines.append("editkit/manifest.json: its edited slices are not those of editkit/edit.json")
    for piece in pieces:
        if any(run.strip(b"\0") for run in read_runs(inside(out, piece.tensor.file), runs_of(piece))):
            lines.append(f"{piece.tensor.name}: {_named(piece)} of axis {piece.axis} is not zero")
    for row in record.edited:
        tensor = stored.get(row.tensor)
        if tensor is None or tensor_digest(inside(out, tensor.file), tensor) != row.after:
            lines.append(f"{printable(row.tensor)}: its bytes are not those that were written")
    return lines


def _named(piece: Slice) -> str:
    spans = [f"[{start}:{stop}]" for start, stop in piece.spans]
    listed = " or ".join(spans[:3]) + (f" or one of {len(spans) - 3} more" if len(spans) > 3 else "")
    return listed if piece.part is None else f"{listed} of expert {piece.part}"


def _spans(pieces: Sequence[Slice]) -> set[tuple[str, int | None, int, tuple[int, int]]]:
    return {(piece.tensor.name, piece.part, piece.axis, span) for piece in pieces for span in piece.spans}


def _against(out: Path, record: Manifest, base: Source) -> list[str]:
    """OUT is what the edit makes of the base, to the byte, and holds no file that the base does not account for."""
    plan, back = plan_of(_edit(out), base), undo_file.read(out)
    lines = _taken(back, plan, base) + _files(out, back, plan, base)
    for row in record.edited:
        tensor = plan.headers.tensors.get(row.tensor)
        if tensor is None or tensor_digest(inside(base.directory, tensor.file), tensor) != row.before:
            lines.append(f"{printable(row.tensor)}: the base's tensor is not the one that was edited")
    if record.form == "lora":
        lines += lora.differing(out, plan, base)
    return lines


def _taken(back: Undo, plan: Plan, base: Source) -> list[str]:
    """The removed slices are those of the edit, and their bytes are the base's."""
    if {key_of(piece) for piece in plan.slices} != back.removed.keys():
        return [_OTHER_SLICES]
    return [
        f"{undo_file.NAME}: {kept.name} is not what the base holds there"
        for piece, kept in undo_file.placed(back.removed, plan.headers.tensors).items()
        if b"".join(read_runs(inside(base.directory, piece.tensor.file), runs_of(piece)))
        != b"".join(read_runs(back.path, Runs(kept.start, kept.end - kept.start, kept.end - kept.start, 1)))
    ]


def _files(out: Path, back: Undo, plan: Plan, base: Source) -> list[str]:
    """The files of the base are those that the undo file lists, and they are the same."""
    lines = [f"{name}: in the base, not in OUT" for name in plan.copied.keys() - back.files.keys()]
    for name, file in back.files.items():
        if name not in plan.copied:
            lines.append(f"{printable(name)}: not in the base")
        elif file.at is not None:
            lines += _differences(name, inside(base.directory, name), inside(out, file.at), plan)
        elif digest_of(inside(base.directory, name)) != file.sha256:
            lines.append(f"{name}: the base's file is not the one this was made for")
    return lines


def _differences(name: str, base: Path, out: Path, plan: Plan) -> list[str]:
    return [
        f"{plan.copied[name]}: differs from the base at byte {offset}{_where(plan.headers.tensors, name, offset)}"
        for offset in copying.differences(base, out, plan.runs.get(name, ()))
    ]


def _where(tensors: Mapping[str, TensorInfo], file: str, offset: int) -> str:
    names = [tensor.name for tensor in tensors.values() if tensor.file == file and tensor.start <= offset < tensor.end]
    return f", in {names[0]}" if names else ""
