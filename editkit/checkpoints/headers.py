"""What is in a checkpoint's safetensors files, and at which bytes: read from their headers, never from the weights.

    model-00001-of-00002.safetensors   [8 bytes: header length][JSON header][tensor bytes ...]
    {"model.layers.3.self_attn.o_proj.weight": {"dtype": "BF16", "shape": [2048, 2048], "data_offsets": [0, 8388608]}}

Checkpoints are downloads, so nothing in them is believed: lengths are checked before memory is taken, spans must tile
the file exactly, and every file must be a regular file that lies inside the checkpoint. The format is
https://github.com/huggingface/safetensors#format; its rules are kept strictly, with our own reader, because the writer
needs absolute byte spans.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.checkpoints.files import inside, is_file_name, printable
from editkit.errors import EditkitError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LARGEST_HEADER = 100_000_000
"""Bytes; the reference implementation's limit."""

BITS: Mapping[str, int] = {
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8},
    **{"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8},
    **{"I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32},
    **{"I64": 64, "U64": 64, "F64": 64, "C64": 64},
}
"""Bits of one element of each dtype of the format."""

_PART = re.compile(r".*-[0-9]+-of-[0-9]+\.safetensors")
_VARIANT = re.compile(r"model\.[^.]+\.safetensors")
_NAME = re.compile(r"[A-Za-z0-9_.:/@+\-]{1,1024}")


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: ``file[start:end]`` are its bytes, row-major. ``end - start == elements * bits(dtype) / 8``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    end: int


@dataclass(frozen=True)
class Headers:
    """The tensors of one checkpoint by name, and the files that hold them (names inside ``directory``)."""

    directory: Path
    tensors: Mapping[str, TensorInfo]
    files: tuple[str, ...]
    sharded: bool


def read(directory: Path) -> Headers:
    """Read the headers of a checkpoint: ``model.safetensors``, else the shards of its index, else the only such file.

    That is the order in which transformers looks: an index beside ``model.safetensors`` counts for nothing.

    Raises:
        EditkitError: naming the file and what is wrong with it, for anything that is not a whole, honest checkpoint.
    """
    directory = Path(directory)
    if os.path.lexists(directory / INDEX) and not os.path.lexists(directory / SINGLE):
        listed = weight_map(directory)
        files = tuple(sorted(set(listed.values())))
        tensors = _merge(read_file(inside(directory, name), name) for name in files)
        _check_index(listed, tensors)
        return Headers(directory, tensors, files, sharded=True)
    name = _single(directory)
    return Headers(directory, read_file(inside(directory, name), name), (name,), sharded=False)


def weight_map(directory: Path, index: str = INDEX, kind: str = ".safetensors") -> dict[str, str]:
    """What an index says: tensor names -> files, which must be plain names that end in ``kind``."""
    path = inside(directory, index)
    if path.stat().st_size > LARGEST_HEADER:
        raise EditkitError(f"{index}: {path.stat().st_size} bytes: no index is that long.")
    try:
        value = _json(path.read_bytes(), index)
    except OSError as error:
        raise EditkitError(f"{index}: cannot be read ({error.strerror}).") from error
    found = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(found, dict) or not found:
        raise EditkitError(f'{index}: expected a "weight_map" from tensor names to file names, found none.')
    for name, file in found.items():
        if not isinstance(file, str) or not is_file_name(file) or not file.endswith(kind):
            raise EditkitError(
                f"{index}: {printable(name)} is said to be in {printable(repr(file))}: "
                f"expected the plain name of a {kind} file in the same directory."
            )
    return found


def read_file(path: Path, name: str | None = None) -> dict[str, TensorInfo]:
    """The tensors of one safetensors file. ``name`` is what they and the messages call the file."""
    name = name or path.name
    raw, size = _raw_header(path, name)
    return parse(raw, size, name)


def metadata(path: Path) -> dict[str, str]:
    """The ``__metadata__`` of one safetensors file (empty if it has none)."""
    raw, size = _raw_header(path, path.name)
    parse(raw, size, path.name)
    return _json(raw, path.name).get("__metadata__", {})


def header_length(first: bytes, size: int, where: str) -> int:
    """The length of the JSON header, from a file's first 8 bytes and its size; checked before anything is read."""
    if len(first) < 8:
        raise EditkitError(f"{where}: not safetensors: {size} bytes, a header needs 8. Download the file again.")
    length = int.from_bytes(first, "little")
    if length > LARGEST_HEADER:
        raise EditkitError(
            f"{where}: the header claims {length} bytes, more than the {LARGEST_HEADER} that safetensors allows: "
            "the file is damaged or is not safetensors."
        )
    if length < 2 or 8 + length > size:
        raise EditkitError(
            f"{where}: the header claims {length} bytes, the file has {size} in all: truncated or not safetensors. "
            "Download the file again."
        )
    return length


def parse(raw: bytes, size: int, where: str) -> dict[str, TensorInfo]:
    """Read a JSON header of a file of ``size`` bytes. Spans come back absolute: counted from the file's first byte."""
    if len(raw) + 8 > size:
        raise EditkitError(f"{where}: truncated inside its header. Download the file again.")
    if not raw.startswith(b"{"):
        raise EditkitError(f"{where}: not safetensors: the header must be a JSON object that starts at byte 8.")
    value = _json(raw, where)
    metadata = value.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(part, str) for part in metadata.values()):
        raise EditkitError(f'{where}: "__metadata__" must map text to text.')
    origin = 8 + len(raw)
    tensors = [_tensor(name, entry, origin, where) for name, entry in value.items()]
    _check_tiling(tensors, origin, size, where)
    return {tensor.name: tensor for tensor in tensors}


def _raw_header(path: Path, name: str) -> tuple[bytes, int]:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = header_length(file.read(8), size, name)
            return file.read(length), size
    except OSError as error:
        raise EditkitError(f"{name}: cannot be read ({error.strerror}).") from error


def _json(raw: bytes, where: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise EditkitError(f"{where}: {printable(twice)!r} appears twice: the file is damaged or made to mislead.")
        return value

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not a number of JSON")

    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise EditkitError(f"{where}: not valid JSON ({printable(str(error))}). Download the file again.") from error


def _tensor(name: str, entry: Any, origin: int, where: str) -> TensorInfo:
    if _NAME.fullmatch(name) is None:
        raise EditkitError(
            f"{where}: the tensor name {printable(name)!r} holds characters that no parameter has "
            "(allowed: letters, digits and _ . : / @ + -)."
        )
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise EditkitError(f"{where}: {name}: expected dtype, shape and data_offsets, found {printable(repr(entry))}.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise EditkitError(f"{where}: {name}: unknown dtype {printable(repr(dtype))}; known are {', '.join(BITS)}.")
    if not _are_sizes(shape) or len(shape) > 64 or not _are_sizes(offsets) or len(offsets) != 2:
        raise EditkitError(
            f"{where}: {name}: shape and data_offsets must be lists of sizes, "
            f"found {printable(repr(shape))} and {printable(repr(offsets))}."
        )
    begin, end = offsets
    if (end - begin) * 8 != math.prod(shape) * BITS[dtype]:
        raise EditkitError(
            f"{where}: {name}: {dtype} of shape {shape} needs {math.prod(shape) * BITS[dtype] // 8} bytes, "
            f"but data_offsets span {end - begin}."
        )
    return TensorInfo(name, dtype, tuple(shape), where, origin + begin, origin + end)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(part) is int and 0 <= part < 2**48 for part in value)


def _check_tiling(tensors: Iterable[TensorInfo], origin: int, size: int, where: str) -> None:
    """The spans must cover the file after its header exactly: no overlap, no gap, no end outside."""
    place = origin
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start != place:
            kind = "overlaps the tensor before it" if tensor.start < place else "leaves a gap before it"
            raise EditkitError(f"{where}: {tensor.name} {kind} (starts at byte {tensor.start}, expected {place}).")
        place = tensor.end
    if place != size:
        problem = "truncated" if place > size else "bytes that belong to no tensor follow"
        raise EditkitError(f"{where}: {problem}: the header describes {place} bytes, the file has {size}.")


def _merge(shards: Iterable[Mapping[str, TensorInfo]]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for shard in shards:
        for name, tensor in shard.items():
            if name in tensors:
                raise EditkitError(
                    f"{name} is in both {tensors[name].file} and {tensor.file}: which one counts is not defined."
                )
            tensors[name] = tensor
    return tensors


def _check_index(listed: Mapping[str, str], tensors: Mapping[str, TensorInfo]) -> None:
    absent = sorted(name for name, file in listed.items() if name not in tensors or tensors[name].file != file)
    if absent:
        raise EditkitError(
            f"{INDEX}: {len(absent)} tensors are not in the file it names, {printable(absent[0])} "
            f"({listed[absent[0]]}) among them. Download the checkpoint again."
        )
    unlisted = sorted(tensors.keys() - listed.keys())
    if unlisted:
        raise EditkitError(
            f"{INDEX}: {len(unlisted)} tensors of the shards are not listed, "
            f"{unlisted[0]} ({tensors[unlisted[0]].file}) among them."
        )


def _single(directory: Path) -> str:
    if os.path.lexists(directory / SINGLE):
        return SINGLE
    names = sorted(path.name for path in directory.glob("*.safetensors") if not path.name.startswith("adapter_"))
    if len(names) != 1:
        found = ", ".join(printable(name) for name in names[:5]) or "none"
        raise EditkitError(
            f"{printable(str(directory))}: expected {SINGLE}, {INDEX} or a single .safetensors file, found {found}."
        )
    if not is_file_name(names[0]):
        raise EditkitError(f"{printable(names[0])}: a weights file with such a name is refused. Rename it to {SINGLE}.")
    if _PART.fullmatch(names[0]):
        raise EditkitError(
            f"{printable(str(directory))}: expected {SINGLE}, or shards and {INDEX}, found one shard and no index: "
            f"{names[0]}. Download the checkpoint again."
        )
    if _VARIANT.fullmatch(names[0]):
        raise EditkitError(
            f"{printable(str(directory))}: expected {SINGLE}, found only {names[0]}, a variant that is loaded only "
            f"where it is asked for by name. If it is the model to edit, rename it to {SINGLE}."
        )
    return names[0]
