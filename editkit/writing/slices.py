"""From an edit to bytes: which runs of which file a knocked-out unit occupies.

L3H5 of a weight [2048, 2048] in BF16, axis 1, width 64: columns 320 to 384 of every row
Runs(first=1234 + 640, length=128, stride=4096, count=2048)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.headers import BITS, Headers, TensorInfo
from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.units import Unit

ZERO_IS_ZERO = frozenset(("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"))
"""The dtypes in which a zero byte pattern is the number 0.0. (F8_E8M0 has no zero: its zero byte is 2**-127.)"""


@dataclass(frozen=True)
class Slice:
    """One unit's share of one weight: ``start <= index < stop`` on ``axis`` of ``tensor``."""

    unit: str
    tensor: TensorInfo
    axis: int
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        shape = self.tensor.shape
        return (*shape[: self.axis], self.stop - self.start, *shape[self.axis + 1 :])


@dataclass(frozen=True)
class Runs:
    """``count`` runs of ``length`` bytes, the first at byte ``first`` of the file, one every ``stride`` bytes."""

    first: int
    length: int
    stride: int
    count: int


def slices_of(edit: Edit, architecture: Architecture, headers: Headers) -> tuple[Slice, ...]:
    """The slices an edit zeroes, in the order of their units. A block that is used at several depths may be
    stored under each of its names: then the unit has a slice in each.

    Raises:
        EditkitError: for a unit the model does not have, or a weight that cannot be zeroed by bytes.
    """
    architecture.check(edit.units)
    slices = []
    for unit in sorted(edit.units, key=lambda unit: (unit.layer, unit.index)):
        site = architecture.site(unit)
        tensor = headers.tensors.get(site.tensor)
        if tensor is None or tensor.shape != site.shape:
            raise EditkitError(
                f"{unit}: expected {site.tensor} of shape {list(site.shape)} in the weights, found "
                f"{list(tensor.shape) if tensor else 'no such tensor'}: config.json and the weights disagree."
            )
        span = site.slice(unit.index)
        copies = [headers.tensors.get(f"{twin}.weight") for twin in site.twins]
        for each in {stored.name: stored for stored in (tensor, *copies) if stored is not None}.values():
            _check_dtype(each, unit)
            slices.append(Slice(str(unit), each, site.axis, span.start, span.stop))
    return tuple(slices)


def runs_of(piece: Slice) -> Runs:
    """Where the bytes of a slice are in its file (weights are stored row-major)."""
    tensor, axis = piece.tensor, piece.axis
    inner = math.prod(tensor.shape[axis + 1 :]) * BITS[tensor.dtype] // 8
    return Runs(
        first=tensor.start + piece.start * inner,
        length=(piece.stop - piece.start) * inner,
        stride=tensor.shape[axis] * inner,
        count=math.prod(tensor.shape[:axis]),
    )


def key_of(piece: Slice) -> str:
    """``model.layers.3.self_attn.o_proj.weight/1:320:384``."""
    return f"{piece.tensor.name}/{piece.axis}:{piece.start}:{piece.stop}"


def read_runs(path: Path, runs: Runs) -> Iterator[bytes]:
    """The runs' bytes, in order."""
    with open(path, "rb") as file:
        for number in range(runs.count):
            file.seek(runs.first + number * runs.stride)
            yield file.read(runs.length)


def shares(window: np.ndarray, start: int, runs: Runs) -> Iterator[tuple[int, int, np.ndarray]]:
    """What the runs cover of a window of a file (uint8, from byte ``start`` of the file on), as views of the window.

    Yields the number of the run, the byte of that run at which the view begins, and the view.
    """
    low = max(0, (start - runs.first - runs.length) // runs.stride + 1)
    high = min(runs.count - 1, (start + len(window) - 1 - runs.first) // runs.stride)
    for number in range(low, high + 1):
        begin = runs.first + number * runs.stride - start
        yield number, max(-begin, 0), window[max(begin, 0) : begin + runs.length]


def zero(window: np.ndarray, start: int, runs: Iterable[Runs]) -> None:
    """Zero what the runs cover of a window of a file (uint8, from byte ``start`` of the file on)."""
    for each in runs:
        for _, _, share in shares(window, start, each):
            share[:] = 0


def by_file(slices: Sequence[Slice]) -> dict[str, tuple[Runs, ...]]:
    """The runs of each file, each run once."""
    files: dict[str, dict[Runs, None]] = {}
    for piece in slices:
        files.setdefault(piece.tensor.file, {})[runs_of(piece)] = None
    return {file: tuple(runs) for file, runs in files.items()}


def _check_dtype(tensor: TensorInfo, unit: Unit) -> None:
    if tensor.dtype not in ZERO_IS_ZERO:
        raise EditkitError(
            f"{unit}: {tensor.name} is stored as {tensor.dtype}, packed by a quantizer (GPTQ, AWQ, bitsandbytes or "
            "the like): its bytes cannot be zeroed head by head. Edit the unquantized checkpoint, then quantize that."
        )
