"""The removed slices, kept in ``editkit/undo.safetensors``: with them the base can be had back.

    tensors   "model.layers.3.self_attn.o_proj.weight/1:320:384"  BF16 [2048, 64]
              "model.layers.3.mlp.down_proj.weight/1:neurons"     BF16 [2048, 12]
    metadata  {"editkit": '{"files": {"model.safetensors": {"at": "model.safetensors", "sha256": "9f2c..."},
                                      "README.md": {"at": "editkit/base/README.md", ...}}, "left_out": [...], ...}'}

``files`` lists the files of the base: where OUT keeps each (``at``; null where only the base itself has it, as for an
adapter), and what it hashed to. The way back is checked against those hashes before it is called done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from editkit.checkpoints import headers, source
from editkit.checkpoints.files import inside, is_relative_name, printable
from editkit.checkpoints.headers import TensorInfo
from editkit.edit import Base
from editkit.errors import IntegrityError
from editkit.writing.slices import Slice, key_of, read_runs, runs_of, sizes, write_runs

FORMAT = 1
NAME = "editkit/undo.safetensors"


@dataclass(frozen=True)
class Kept:
    """One file of the base: its sha256 and size, and where OUT keeps its bytes (None: OUT does not)."""

    at: str | None
    sha256: str
    size: int


@dataclass(frozen=True)
class Removed:
    """A removed slice as the record names it: ``width`` from each of ``starts`` on, on ``axis`` of ``tensor`` or of its
    plane ``part``. Its bytes are ``kept``.
    """

    tensor: str
    axis: int
    starts: tuple[int, ...]
    width: int
    part: int | None
    kept: TensorInfo


@dataclass(frozen=True)
class Undo:
    """What leads back: every removed slice by its key, and every file of the base by its base name.

    ``slices`` are the same ones placed in the weights of OUT, where OUT holds those (a checkpoint).
    """

    path: Path
    base: Base
    removed: Mapping[str, Removed]
    slices: Mapping[Slice, TensorInfo]
    files: Mapping[str, Kept]
    left_out: tuple[Mapping[str, str], ...]

    @property
    def revision(self) -> str | None:
        """The revision that the weights listed here make, if they came from a local directory; None where that cannot
        be told: a commit says nothing of hashes, and a converted base was hashed before its conversion.
        """
        weights = {name: kept.sha256 for name, kept in self.files.items() if _is_weights(name)}
        if not (self.base.revision or "").startswith("sha256:"):
            return None
        revision = source.weights_digest(weights)
        converted = any(row["file"].endswith((".bin", ".gguf")) for row in self.left_out)
        return None if converted and revision != self.base.revision else revision


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name


def save(
    directory: Path,
    base: source.Source,
    slices: Sequence[Slice],
    files: Mapping[str, Kept],
    left_out: Sequence[Mapping[str, str]],
) -> None:
    """Write ``editkit/undo.safetensors`` into ``directory``; the slices' bytes are read from the base."""
    unique = {key_of(piece): piece for piece in slices}
    record = {
        "format": FORMAT,
        "base": {"model": base.base.model, "revision": base.base.revision},
        "slices": [{"key": key, **_row(piece)} for key, piece in unique.items()],
        "files": {name: vars(kept) for name, kept in files.items()},
        "left_out": [dict(row) for row in left_out],
    }
    (directory / NAME).parent.mkdir(exist_ok=True)
    _pack(directory / NAME, base.directory, unique, {"editkit": json.dumps(record)})


def _row(piece: Slice) -> dict[str, Any]:
    """A slice in the record: a single piece by its ends, others by where they start."""
    named: dict[str, Any] = {"tensor": piece.tensor.name, "axis": piece.axis}
    if len(piece.starts) == 1 and piece.part is None:
        return named | {"start": piece.starts[0], "stop": piece.starts[0] + piece.width}
    plane = {} if piece.part is None else {"part": piece.part}
    return named | {"starts": list(piece.starts), "width": piece.width} | plane


def _pack(path: Path, base: Path, slices: Mapping[str, Slice], metadata: Mapping[str, str]) -> None:
    """Write slices as a safetensors file: of any dtype, a bounded number of bytes at a time in memory."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for key, piece in slices.items():
        start, end = end, end + runs_of(piece).bytes
        header[key] = {"dtype": piece.tensor.dtype, "shape": list(piece.shape), "data_offsets": [start, end]}
    raw = json.dumps(header, ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "xb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for piece in slices.values():
            file.writelines(read_runs(inside(base, piece.tensor.file), runs_of(piece)))


def read(out: Path) -> Undo:
    """Read OUT's undo file.

    Raises:
        IntegrityError: if there is none or it does not fit OUT's weights.
    """
    if not (out / NAME).is_file():
        raise IntegrityError(f"{printable(str(out))}: expected {NAME}, found none: nothing here can be undone.")
    path = inside(out, NAME)
    stored = headers.read_file(path, NAME)
    try:
        record = headers.strict_json(headers.metadata(path)["editkit"], NAME)
        if record["format"] != FORMAT:
            raise IntegrityError(f"{NAME}: expected format {FORMAT}: another editkit wrote it, or it was changed.")
        files = {name: _kept(row) for name, row in record["files"].items()}
        base = Base(_text(record["base"]["model"]), _text_or_none(record["base"]["revision"]))
        removed = dict(_removed(row, stored) for row in record["slices"])
        left_out = tuple({"file": _text(row["file"]), "reason": _text(row["reason"])} for row in record["left_out"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise IntegrityError(f"{NAME}: its record is not what editkit writes ({error!r}).") from error
    if not files or removed.keys() != stored.keys():
        raise IntegrityError(f"{NAME}: expected the base's files and every slice held here in its record, found fewer.")
    names = [*files, *(kept.at for kept in files.values() if kept.at is not None)]
    wrong = [name for name in names if not is_relative_name(name)]
    if wrong:
        raise IntegrityError(f"{NAME}: {printable(wrong[0])!r} is no name of a file inside a checkpoint.")
    weights = headers.read(out).tensors if any(kept.at for kept in files.values()) else {}
    return Undo(path, base, removed, placed(removed, weights) if weights else {}, files, left_out)


def placed(removed: Mapping[str, Removed], weights: Mapping[str, TensorInfo]) -> dict[Slice, TensorInfo]:
    """The removed slices in the tensors that they were taken from, and where their bytes are kept.

    Raises:
        IntegrityError: if one does not fit.
    """
    return {_slice(row, weights): row.kept for row in removed.values()}


def removed_bytes(record: Undo, piece: Slice) -> Iterator[bytes]:
    """The bytes that were removed from a slice, in the parts in which ``slices.write_runs`` takes them."""
    runs = runs_of(piece)
    with open(record.path, "rb") as file:
        file.seek(record.slices[piece].start)
        for size in sizes(runs):
            yield file.read(size)


def put_back(record: Undo, file: str, path: Path) -> None:
    """Write the removed slices of OUT's ``file`` into a copy of it."""
    for piece in record.slices:
        if piece.tensor.file == file:
            write_runs(path, runs_of(piece), removed_bytes(record, piece))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _kept(row: Mapping[str, Any]) -> Kept:
    return Kept(_text_or_none(row["at"]), _text(row["sha256"]), int(row["size"]))


def _removed(row: Mapping[str, Any], stored: Mapping[str, TensorInfo]) -> tuple[str, Removed]:
    """One row of the record, which must be what its key says, with the bytes kept under that key."""
    key, name, axis = _text(row["key"]), _text(row["tensor"]), int(row["axis"])
    kept, part = stored[key], None if row.get("part") is None else int(row["part"])
    if "starts" in row:
        starts, width = tuple(int(start) for start in row["starts"]), int(row["width"])
        expected = f"{name}/{axis}:neurons{'' if part is None else f'@{part}'}"
    else:
        start, stop = int(row["start"]), int(row["stop"])
        starts, width, expected = (start,), stop - start, f"{name}/{axis}:{start}:{stop}"
    inputs = axis if part is None else axis - 1
    apart = all(one + width <= other for one, other in pairwise(starts))
    if key != expected or len(kept.shape) != 2 or inputs not in (0, 1) or width < 1 or not apart:
        raise ValueError(f"{printable(key)} is no key of this slice")
    if not starts or starts[0] < 0 or (part or 0) < 0 or kept.shape[inputs] != len(starts) * width:
        raise ValueError(f"{printable(key)} has shape {list(kept.shape)}")
    return key, Removed(name, axis, starts, width, part, kept)


def _slice(row: Removed, weights: Mapping[str, TensorInfo]) -> Slice:
    tensor = weights.get(row.tensor)
    if tensor is None:
        raise IntegrityError(f"{NAME}: {printable(row.tensor)} is missing in the weights.")
    piece = Slice("", tensor, row.axis, row.starts, row.width, row.part)
    fits = row.axis < len(tensor.shape) == (2 if row.part is None else 3)
    fits = fits and row.starts[-1] + row.width <= tensor.shape[row.axis] and (row.part or 0) < tensor.shape[0]
    if not fits or row.kept.shape != piece.shape or row.kept.dtype != tensor.dtype:
        raise IntegrityError(
            f"{NAME}: {printable(row.kept.name)} does not fit {printable(row.tensor)} of shape {list(tensor.shape)}."
        )
    return piece
