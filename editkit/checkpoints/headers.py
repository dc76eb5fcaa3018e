"""What is in a checkpoint's safetensors files, and at which bytes: read from their headers, never from the weights.

    model-00001-of-00002.safetensors   [8 bytes: header length][JSON header][tensor bytes ...]
    {"model.layers.3.self_attn.o_proj.weight": {"dtype": "BF16", "shape": [2048, 2048], "data_offsets": [0, 8388608]}}

Checkpoints are downloads, so nothing in them is believed. The safetensors library checks a header (its spans must tile
the file exactly) and does not tell the spans; they are read from the same JSON. What the library lets pass is refused
here: a name twice, names that no parameter has, fields that another reader may understand, links that lead out.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.checkpoints.files import inside, is_file_name, printable
from editkit.errors import EditkitError, first_line

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LARGEST_HEADER = 100_000_000
"""Bytes; the library's limit."""

BITS: Mapping[str, int] = {
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8},
    **{"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8},
    **{"I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32},
    **{"I64": 64, "U64": 64, "F64": 64, "C64": 64},
}
"""Bits of one element of each dtype of the format."""

_SHARD_OR_VARIANT = re.compile(r".*-[0-9]+-of-[0-9]+\.safetensors|model\.[^.]+\.safetensors")
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
    """The tensors of one checkpoint by name, and the names of the files that hold them."""

    tensors: Mapping[str, TensorInfo]
    files: tuple[str, ...]


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
        return Headers(tensors, files)
    name = _single(directory)
    return Headers(read_file(inside(directory, name), name), (name,))


def weight_map(directory: Path, index: str = INDEX, kind: str = ".safetensors") -> dict[str, str]:
    """What an index says: tensor names -> files, which must be plain names that end in ``kind``."""
    path = inside(directory, index)
    if path.stat().st_size > LARGEST_HEADER:
        raise EditkitError(f"{index}: {path.stat().st_size} bytes: no index is that long.")
    try:
        value = strict_json(path.read_bytes(), index)
    except OSError as error:
        raise EditkitError(f"{index}: cannot be read ({error.strerror}).") from error
    files = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(files, dict) or not files:
        raise EditkitError(f'{index}: expected a "weight_map" from tensor names to file names, found none.')
    for name, file in files.items():
        if not isinstance(file, str) or not is_file_name(file) or not file.endswith(kind):
            raise EditkitError(
                f"{index}: {printable(name)} is said to be in {printable(repr(file))}: "
                f"expected the plain name of a {kind} file in the same directory."
            )
    return files


def read_file(path: Path, name: str | None = None) -> dict[str, TensorInfo]:
    """The tensors of one safetensors file. ``name`` is what they and the messages call the file."""
    name = name or path.name
    header, origin = _header(path, name)
    tensors = {}
    for tensor, entry in header.items():
        if _NAME.fullmatch(tensor) is None:
            raise EditkitError(
                f"{name}: the tensor name {printable(tensor)!r} holds characters that no parameter has "
                "(allowed: letters, digits and _ . : / @ + -)."
            )
        if len(entry) != 3:
            raise EditkitError(
                f"{name}: {tensor}: expected dtype, shape and data_offsets, found {printable(', '.join(entry))}."
            )
        begin, end = entry["data_offsets"]
        tensors[tensor] = TensorInfo(tensor, entry["dtype"], tuple(entry["shape"]), name, origin + begin, origin + end)
    return tensors


def metadata(path: Path) -> dict[str, str]:
    """The ``__metadata__`` of one safetensors file (empty if it has none)."""
    from safetensors import safe_open

    read_file(path)
    with safe_open(path, "np") as file:
        return file.metadata() or {}


def _header(path: Path, name: str) -> tuple[dict[str, dict[str, Any]], int]:
    """The JSON header without its metadata, and the byte at which the tensors begin."""
    from safetensors import SafetensorError, safe_open

    try:
        with open(path, "rb") as file, safe_open(path, "np"):
            length = int.from_bytes(file.read(8), "little")
            header = strict_json(file.read(length), name)
    except OSError as error:
        raise EditkitError(f"{name}: cannot be read ({error.strerror}).") from error
    except SafetensorError as error:
        reason = printable(first_line(error).removeprefix("Error while deserializing header: "))
        raise EditkitError(f"{name}: truncated, damaged or not safetensors ({reason}). Download it again.") from error
    header.pop("__metadata__", None)
    return header, 8 + length


def strict_json(raw: bytes | str, where: str) -> Any:
    """JSON in which no name comes twice and every number is one.

    Raises:
        EditkitError: naming ``where``, for anything else.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise EditkitError(f"{where}: {printable(twice)!r} appears twice: the file is damaged or made to mislead.")
        return value

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not a number of JSON")

    try:
        return json.loads(
            raw if isinstance(raw, str) else raw.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse
        )
    except (ValueError, RecursionError) as error:
        raise EditkitError(f"{where}: not valid JSON ({printable(str(error))}). Download the file again.") from error


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
        listed = ", ".join(printable(name) for name in names[:5]) or "none"
        raise EditkitError(
            f"{printable(str(directory))}: expected {SINGLE}, {INDEX} or a single .safetensors file, found {listed}."
        )
    if not is_file_name(names[0]):
        raise EditkitError(f"{printable(names[0])}: a weights file with such a name is refused. Rename it to {SINGLE}.")
    if _SHARD_OR_VARIANT.fullmatch(names[0]):
        raise EditkitError(
            f"{printable(str(directory))}: expected {SINGLE}, or shards and {INDEX}, found only {names[0]}: a shard "
            f"without its index, or a variant. Download the checkpoint again, or rename a whole model to {SINGLE}."
        )
    return names[0]
