"""Write raw tensor bytes as a safetensors file: any dtype, one tensor at a time, no framework in between."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from editkit.checkpoints.headers import BITS, TensorInfo
from editkit.writing.slices import Runs, Slice, runs_of, whole


@dataclass(frozen=True)
class Packed:
    """A tensor to be written: its bytes are the ``runs`` of ``file``, joined."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    runs: tuple[Runs, ...]


def pack(path: Path, tensors: Sequence[Packed], metadata: Mapping[str, str]) -> None:
    """Write the tensors; in memory is one run at a time."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    place = 0
    for tensor in tensors:
        size = math.prod(tensor.shape) * BITS[tensor.dtype] // 8
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    raw = json.dumps(header, ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "xb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for tensor in tensors:
            for runs in tensor.runs:
                for part in read_runs(tensor.file, runs):
                    file.write(part)


def packed_slice(piece: Slice, file: Path) -> Packed:
    """A slice as a tensor of its own, named by :func:`key_of`."""
    return Packed(key_of(piece), piece.tensor.dtype, piece.shape, file, (runs_of(piece),))


def key_of(piece: Slice) -> str:
    """``model.layers.3.self_attn.o_proj.weight/1:320:384``."""
    return f"{piece.tensor.name}/{piece.axis}:{piece.start}:{piece.stop}"


def read_runs(path: Path, runs: Runs) -> Iterator[bytes]:
    """The runs' bytes, in order."""
    with open(path, "rb") as file:
        for number in range(runs.count):
            file.seek(runs.first + number * runs.stride)
            yield file.read(runs.length)


def read_tensor(path: Path, tensor: TensorInfo) -> Iterator[bytes]:
    """A tensor's bytes, in parts that fit in memory."""
    for runs in whole(tensor):
        yield from read_runs(path, runs)
