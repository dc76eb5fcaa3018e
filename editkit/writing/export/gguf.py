"""The edit inside a GGUF file: the units' weights become exactly zero in their quantized blocks, all else stays.

    OUT.gguf                 the base's bytes but for the scales and minima of the removed slices
    OUT.gguf.editkit.json    {"format": 1, "digest": "...", "edit": {...}, "out": "41ab...", "undo": "9f2c...",
                              "edited": [{"tensor": "blk.20.attn_output.weight", "kind": "Q4_1",
                                          "spans": [[512, 576]], "before": "77aa...", "after": "0c3d..."}]}
    OUT.gguf.undo            the bytes that changed, as the base had them: tensor after tensor, row after row

``gguf_pieces`` says which tensor changes for a unit, ``gguf_blocks`` which bits.

The proof needs no base: OUT with the undo bytes put back hashes to ``edit.base.revision``, the sha256 of the base.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from editkit.checkpoints import gguf
from editkit.checkpoints.architecture import Site
from editkit.checkpoints.files import digest_of, fill, printable, stamp
from editkit.checkpoints.source import check_name
from editkit.checkpoints.staging import check_free, files_beside
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.units import Unit, in_order, show
from editkit.writing.gguf_pieces import Piece, piece_of

FORMAT = 1
RECORD, UNDO = ".editkit.json", ".undo"
"""What is added to OUT's name for the two files beside it."""

CHUNK = 1 << 22
"""Bytes of a file that are in memory at once, where a row of a tensor is no longer."""
_LONGEST_RECORD = 1 << 24


@dataclass(frozen=True)
class Edited:
    """The record of one tensor: the spans of its inputs (``axis`` 0: of its rows) that are zero, and the sha256 of its
    bytes before and after.
    """

    tensor: str
    kind: str
    spans: tuple[tuple[int, int], ...]
    before: str
    after: str
    axis: int = 1

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "axis" or value != 1}


@dataclass(frozen=True)
class Record:
    """``OUT.gguf.editkit.json``: ``out`` and ``undo`` are the sha256 of the two files that it describes."""

    edit: Edit
    out: str
    undo: str
    edited: tuple[Edited, ...]

    def to_json(self) -> str:
        value = {
            "format": FORMAT,
            "digest": "0" * 64,
            "edit": json.loads(self.edit.to_json()),
            "out": self.out,
            "undo": self.undo,
            "edited": [row.to_dict() for row in self.edited],
        }
        return _text(value | {"digest": hashlib.sha256(_text(value).encode()).hexdigest()})


@dataclass(frozen=True)
class Proof:
    """What the files on disk hold: sha256 of OUT, of OUT undone, and the names of tensors that are not as edited."""

    out: str
    base: str
    edited: tuple[Edited, ...]
    wrong: tuple[str, ...]


def write(edit: Edit, base: Path, out: Path) -> Record:
    """Write ``out`` and the two files beside it, in constant memory: one pass over ``base``, one over what is written.

    Args:
        edit: for this very file, by its sha256, or for a model on the Hub that it is a quantization of.

    Raises:
        EditkitError: a head that is not there, a slice that ends inside a block, an edit for other weights, an
            existing ``out``.
        IntegrityError: ``base`` changed meanwhile, or the disk gave back something else than was written.
    """
    if out.suffix.lower() != gguf.SUFFIX:
        raise EditkitError(f"{printable(str(out))}: expected the name of a file that ends in {gguf.SUFFIX}.")
    check_name(str(base))
    pieces = pieces_of(edit, gguf.read(base))
    first = stamp(base)
    for path in (out, _beside(out, RECORD), _beside(out, UNDO)):
        check_free(path, needed=first[0])
    with files_beside(out) as folder:
        target, read = folder / out.name, hashlib.sha256()
        with open(target, "xb") as written, open(_beside(target, UNDO), "xb") as kept:

            def zero(piece: Piece, rows: np.ndarray, which: np.ndarray) -> None:
                _check_scales(base, piece, rows[which])
                touched = np.ix_(which, piece.zeros.touched)
                before = rows[touched]
                kept.write(before.tobytes())
                rows[touched] = _zeroed(piece, before)

            for chunk in _rewritten(base, pieces, zero, read):
                written.write(chunk)
        if stamp(base) != first:
            raise IntegrityError(f"{printable(base.name)}: changed while it was copied. Nothing was kept.")
        _check_base(edit, base, read.hexdigest())
        proof = _proved(target, pieces)
        if proof.base != read.hexdigest() or proof.wrong:
            raise IntegrityError(f"{printable(str(out))}: the disk gave back other bytes than were written.")
        whole = Edit(Base(str(base), f"sha256:{proof.base}"), edit.units)
        record = Record(whole, proof.out, digest_of(_beside(target, UNDO)), proof.edited)
        _beside(target, RECORD).write_text(record.to_json(), encoding="utf-8", newline="\n")
    return record


def problems(out: Path, base: Path | None = None) -> tuple[Record, list[str]]:
    """The record of ``out``, and one line for everything in which the files are not what it says.

    Args:
        base: compared by sha256 with the base that the record names.

    Raises:
        IntegrityError: if one of the files is missing or cannot be read.
    """
    record, pieces = _opened(out)
    proof = _proved(out, pieces)
    lines = [f"{name}: its weights are not the base's with the removed slices zeroed" for name in proof.wrong]
    if proof.out != record.out:
        lines.append(f"{out.name}: its bytes were changed (sha256 differs)")
    if digest_of(_beside(out, UNDO)) != record.undo:
        lines.append(f"{_beside(out, UNDO).name}: its bytes were changed (sha256 differs)")
    if proof.edited != record.edited:
        lines.append(f"{_beside(out, RECORD).name}: its edited tensors are not those of the file")
    if f"sha256:{proof.base}" != record.edit.base.revision:
        lines.append(f"{out.name}: undone, it is not the base {record.edit.base.revision}")
    if base is not None and (given := f"sha256:{digest_of(base)}") != record.edit.base.revision:
        lines.append(f"{printable(str(base))}: expected the base {record.edit.base.revision}, found {given}")
    return record, lines


def undo(out: Path, target: Path) -> Path:
    """Write the base of ``out`` to the new file ``target``, bit for bit.

    Raises:
        IntegrityError: if the result does not hash to what the base did; nothing is written then.
    """
    record, pieces = _opened(out)
    check_free(target, needed=out.stat().st_size)
    with files_beside(target) as folder:
        digest = hashlib.sha256()
        with open(folder / target.name, "xb") as written:
            for chunk in _restored(out, pieces, hashlib.sha256(), lambda *_: None):
                written.write(chunk)
                digest.update(chunk)
        if f"sha256:{digest.hexdigest()}" != record.edit.base.revision:
            raise IntegrityError(
                f"{printable(str(out))}: cannot be undone: the result is not what the base was. "
                "A file was changed since; `editkit verify` says which."
            )
    return target


def read(out: Path) -> Record:
    """Read the record beside ``out``.

    Raises:
        IntegrityError: if there is none, or a byte of it was changed.
    """
    path = _beside(out, RECORD)
    try:
        with open(path, "rb") as file:
            raw = file.read(_LONGEST_RECORD)
    except OSError as error:
        raise IntegrityError(
            f"{printable(str(out))}: expected {printable(path.name)} beside it ({error.strerror}): not an output of "
            "editkit, or its companions were left behind."
        ) from error
    try:
        value = json.loads(raw.decode("utf-8"))
        edited = tuple(_edited(row) for row in value["edited"])
        edit = Edit.from_json(json.dumps(value["edit"]), where=path.name)
        record = Record(edit, str(value["out"]), str(value["undo"]), edited)
        text = record.to_json().encode()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, EditkitError) as error:
        raise IntegrityError(f"{printable(path.name)}: not what editkit wrote: {printable(str(error))}.") from error
    if text != raw:
        raise IntegrityError(f"{printable(path.name)}: not what editkit wrote: its text does not match its digest.")
    return record


def _opened(out: Path) -> tuple[Record, tuple[Piece, ...]]:
    record = read(out)
    try:
        return record, pieces_of(record.edit, gguf.read(out))
    except EditkitError as error:
        raise IntegrityError(f"{printable(str(out))} is not what editkit wrote: {error}") from error


def pieces_of(edit: Edit, stored: gguf.Gguf) -> tuple[Piece, ...]:
    """The tensors that the edit changes, in the order of the file, and the bits of them.

    Raises:
        EditkitError: a head that is not there, or a slice whose weights cannot be zeroed alone.
    """
    architecture = gguf.sites(stored)
    architecture.check(edit.units)
    units: dict[Site, list[Unit]] = {}
    for unit in in_order(edit.units):
        units.setdefault(architecture.site(unit), []).append(unit)
    pieces = []
    for site, chosen in units.items():
        try:
            pieces.append(piece_of(stored, site, [unit.index for unit in chosen]))
        except EditkitError as error:
            raise EditkitError(
                f"{', '.join(show(chosen)[:10])}: {site.tensor} cannot be edited in place: {error}. Bake a checkpoint "
                "instead (--format checkpoint -o DIR), and quantize that."
            ) from error
    return tuple(sorted(pieces, key=lambda piece: piece.tensor.start))


def _proved(out: Path, pieces: Sequence[Piece]) -> Proof:
    before = {piece.tensor.name: hashlib.sha256() for piece in pieces}
    after = {piece.tensor.name: hashlib.sha256() for piece in pieces}
    wrong: set[str] = set()

    def note(piece: Piece, edited: np.ndarray, base: np.ndarray, which: np.ndarray) -> None:
        name, touched = piece.tensor.name, np.ix_(which, piece.zeros.touched)
        after[name].update(edited.data)
        before[name].update(base.data)
        if not np.array_equal(edited[touched], _zeroed(piece, base[touched])):
            wrong.add(name)

    whole, restored = hashlib.sha256(), hashlib.sha256()
    for chunk in _restored(out, pieces, whole, note):
        restored.update(chunk)
    edited = tuple(
        Edited(name, piece.tensor.kind, piece.spans, before[name].hexdigest(), after[name].hexdigest(), piece.axis)
        for piece in pieces
        for name in [piece.tensor.name]
    )
    return Proof(whole.hexdigest(), restored.hexdigest(), edited, tuple(sorted(wrong)))


def _restored(
    out: Path, pieces: Sequence[Piece], read: Any, note: Callable[[Piece, np.ndarray, np.ndarray, np.ndarray], None]
) -> Iterator[bytearray]:
    """The bytes of the base: those of ``out``, with the undo bytes put back. ``note`` sees rows as edited, and back."""
    path = _beside(out, UNDO)
    expected = sum(piece.rows * len(piece.zeros.touched) for piece in pieces)
    if not path.is_file() or path.stat().st_size != expected:
        raise IntegrityError(
            f"{printable(path.name)}: expected a file of {expected} bytes beside {printable(out.name)}."
        )
    with open(path, "rb") as kept:

        def put_back(piece: Piece, rows: np.ndarray, which: np.ndarray) -> None:
            edited, touched = rows.copy(), piece.zeros.touched
            before = np.frombuffer(kept.read(len(which) * len(touched)), np.uint8)
            rows[np.ix_(which, touched)] = before.reshape(len(which), len(touched))
            note(piece, edited, rows, which)

        yield from _rewritten(out, pieces, put_back, read)


def _rewritten(
    path: Path, pieces: Sequence[Piece], change: Callable[[Piece, np.ndarray, np.ndarray], None], read: Any
) -> Iterator[bytearray]:
    """The file's bytes in order; ``change`` is given the rows of each piece, uint8[rows, bytes], and which of them are
    edited, int[n], and may change them.

    Args:
        read: a hash that takes in the file as it is.
    """
    with open(path, "rb", buffering=0) as file:
        offset = 0
        for piece in pieces:
            yield from _chunks(file, piece.tensor.start - offset, CHUNK, read)
            rows, first = max(1, CHUNK // piece.row_bytes), 0
            for chunk in _chunks(file, piece.tensor.end - piece.tensor.start, rows * piece.row_bytes, read):
                content = np.frombuffer(chunk, np.uint8).reshape(-1, piece.row_bytes)
                change(piece, content, piece.within(first, len(content)))
                first += len(content)
                yield chunk
            offset = piece.tensor.end
        yield from _chunks(file, os.fstat(file.fileno()).st_size - offset, CHUNK, read)


def _chunks(file: Any, count: int, most: int, read: Any) -> Iterator[bytearray]:
    """The next ``count`` bytes, in chunks of ``most``."""
    while count > 0:
        expected = min(most, count)
        chunk = bytearray(expected)
        fill(file, chunk)
        if len(chunk) != expected:
            raise IntegrityError(f"{printable(Path(file.name).name)}: became shorter while it was read.")
        count -= expected
        read.update(chunk)
        yield chunk


def _zeroed(piece: Piece, touched: np.ndarray) -> np.ndarray:
    """The touched bytes of some rows, with the bits that go cleared."""
    return touched & piece.zeros.keep | piece.zeros.put


def _check_scales(base: Path, piece: Piece, rows: np.ndarray) -> None:
    """Refuse a part of a block whose scale is not finite: zero times infinity is not zero."""
    scales = np.ascontiguousarray(rows[:, piece.zeros.scales]).view("<f2")
    if not np.isfinite(scales).all():
        raise EditkitError(
            f"{printable(base.name)}: {piece.tensor.name} has a block whose scale is not finite: no part of it can be "
            "made zero, and the model itself cannot work."
        )


def _check_base(edit: Edit, base: Path, digest: str) -> None:
    """Refuse an edit for other weights; a commit on the Hub says nothing about a digest."""
    expected = edit.base.revision
    if expected and expected.startswith("sha256:") and expected != f"sha256:{digest}":
        raise EditkitError(
            f"The edit is for {printable(edit.base.model)} at revision {expected}, {printable(str(base))} is "
            f"sha256:{digest}: these are other weights. Name the heads (--heads) if they are to go from these too."
        )


def _beside(out: Path, suffix: str) -> Path:
    return out.with_name(out.name + suffix)


def _edited(row: dict[str, Any]) -> Edited:
    spans = tuple((int(start), int(stop)) for start, stop in row["spans"])
    axis = int(row.get("axis", 1))
    return Edited(str(row["tensor"]), str(row["kind"]), spans, str(row["before"]), str(row["after"]), axis)


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
