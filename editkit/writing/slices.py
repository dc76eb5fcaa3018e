"""From an edit to bytes: which runs of which file a knocked-out unit occupies.

L3H5 of a weight [2048, 2048] in BF16, axis 1, width 64: columns 320 to 384 of every row
Runs(first=1234 + 640, length=128, stride=4096, count=2048)

L3N7 and L3N4012 of a weight [2048, 8192]: columns 7 and 4012 of every row
Runs(first=5678 + 14, length=2, stride=16384, count=2048, offsets=(0, 8010))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from editkit.checkpoints.architecture import Architecture, Site
from editkit.checkpoints.headers import BITS, Headers, TensorInfo
from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.units import Head, Neuron, in_order, show

ZERO_IS_ZERO = frozenset(("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"))
"""The dtypes in which a zero byte pattern is the number 0.0. (F8_E8M0 has no zero: its zero byte is 2**-127.)"""


CHUNK = 1 << 22
"""Bytes of a weight that are in memory at once."""


@dataclass(frozen=True)
class Slice:
    """A head's share of one weight, or that of all neurons which go from it: on ``axis`` of ``tensor``, ``width`` from
    each of ``starts`` (sorted) on. ``part`` is the plane that is meant where the tensor holds one for each expert.
    """

    unit: str
    tensor: TensorInfo
    axis: int
    starts: tuple[int, ...]
    width: int
    part: int | None = None

    @property
    def plane(self) -> tuple[int, ...]:
        """The shape of the weight that is cut."""
        return self.tensor.shape if self.part is None else self.tensor.shape[1:]

    @property
    def inputs(self) -> int:
        """The axis of ``plane``."""
        return self.axis - len(self.tensor.shape) + len(self.plane)

    @property
    def shape(self) -> tuple[int, ...]:
        """What is cut out, as one tensor."""
        plane, axis = self.plane, self.inputs
        return (*plane[:axis], len(self.starts) * self.width, *plane[axis + 1 :])

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """``start <= index < stop``; neighbours together."""
        return merged(self.starts, self.width)


def merged(starts: Iterable[int], width: int) -> tuple[tuple[int, int], ...]:
    """Pieces of one width as spans: those that touch are one. ``merged([3, 4, 9], 1) == ((3, 5), (9, 10))``."""
    spans: list[tuple[int, int]] = []
    for start in sorted(set(starts)):
        if spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], start + width)
        else:
            spans.append((start, start + width))
    return tuple(spans)


@dataclass(frozen=True)
class Runs:
    """Runs of ``length`` bytes: ``count`` times, every ``stride`` bytes from byte ``first`` of the file on, one at each
    of ``offsets`` (sorted, below ``stride``).
    """

    first: int
    length: int
    stride: int
    count: int
    offsets: tuple[int, ...] = (0,)

    @property
    def bytes(self) -> int:
        return self.length * self.count * len(self.offsets)

    @property
    def end(self) -> int:
        """The first byte behind all of them."""
        return self.first + (self.count - 1) * self.stride + self.offsets[-1] + self.length if self.count else 0

    @cached_property
    def _row(self) -> np.ndarray:
        """What is covered of one stride, bool[stride]."""
        row = np.zeros(self.stride, dtype=bool)
        for offset in self.offsets:
            row[offset : offset + self.length] = True
        return row

    def covered(self, start: int, size: int) -> np.ndarray:
        """What the runs cover of a window of the file, from byte ``start`` on: bool[size]."""
        low, covered = start - self.first, np.zeros(size, dtype=bool)
        begin, end = max(0, -low), min(size, self.count * self.stride - low)
        if begin >= end:
            return covered
        if self.stride <= CHUNK:
            shift = (low + begin) % self.stride
            rows = np.tile(self._row, -(-(shift + end - begin) // self.stride))
            covered[begin:end] = rows[shift : shift + end - begin]
            return covered
        for number in range((low + begin) // self.stride, -(-(low + end) // self.stride)):
            at = number * self.stride - low
            near = slice(*np.searchsorted(self.offsets, [-at - self.length + 1, size - at]))
            for offset in self.offsets[near]:
                covered[max(0, at + offset) : at + offset + self.length] = True
        return covered

    def before(self, start: int) -> int:
        """How many covered bytes of the file lie before byte ``start``."""
        number, rest = divmod(max(0, start - self.first), self.stride)
        if number >= self.count:
            return self.bytes
        whole = int(np.searchsorted(self.offsets, rest))
        partial = max(0, self.offsets[whole - 1] + self.length - rest) if whole else 0
        return (number * len(self.offsets) + whole) * self.length - partial


def slices_of(edit: Edit, architecture: Architecture, headers: Headers) -> tuple[Slice, ...]:
    """The slices an edit zeroes, in the order of their units: one for each head, and for all neurons of a weight one.
    A block that is used at several depths may be stored under each of its names: then there is a slice in each.

    Raises:
        EditkitError: for a unit the model does not have, or a weight that cannot be zeroed by bytes.
    """
    architecture.check(edit.units)
    heads = [(architecture.site(head), [head]) for head in in_order(edit.heads)]
    neurons: dict[Site, list[Neuron]] = {}
    for neuron in in_order(edit.neurons):
        neurons.setdefault(architecture.site(neuron), []).append(neuron)
    return tuple(piece for site, units in [*heads, *neurons.items()] for piece in _slices(site, units, headers))


def _slices(site: Site, units: Sequence[Head | Neuron], headers: Headers) -> Iterator[Slice]:
    named = ", ".join(show(units)[:3]) + (", ..." if len(units) > 3 else "")
    tensor = headers.tensors.get(site.tensor)
    if tensor is None or tensor.shape != site.shape:
        raise EditkitError(
            f"{named}: expected {site.tensor} of shape {list(site.shape)} in the weights, found "
            f"{list(tensor.shape) if tensor else 'no such tensor'}: config.json and the weights disagree."
        )
    starts = tuple(site.slice(unit.index).start for unit in units)
    copies = [headers.tensors.get(f"{twin}.weight") for twin in site.twins]
    for each in {stored.name: stored for stored in (tensor, *copies) if stored is not None}.values():
        if each.dtype not in ZERO_IS_ZERO:
            raise EditkitError(
                f"{named}: {each.name} is stored as {each.dtype}, packed by a quantizer (GPTQ, AWQ, bitsandbytes or "
                "the like): its bytes cannot be zeroed unit by unit. Edit the unquantized checkpoint, then quantize "
                "that."
            )
        yield Slice(named, each, site.axis, starts, site.width, site.part)


def runs_of(piece: Slice) -> Runs:
    """Where the bytes of a slice are in its file (weights are stored row-major)."""
    plane, axis, size = piece.plane, piece.inputs, BITS[piece.tensor.dtype] // 8
    inner = math.prod(plane[axis + 1 :]) * size
    start = piece.tensor.start + (piece.part or 0) * math.prod(plane) * size
    return Runs(
        first=start + piece.starts[0] * inner,
        length=piece.width * inner,
        stride=plane[axis] * inner,
        count=math.prod(plane[:axis]),
        offsets=tuple((each - piece.starts[0]) * inner for each in piece.starts),
    )


def key_of(piece: Slice) -> str:
    """``model.layers.3.self_attn.o_proj.weight/1:320:384`` of a head or a single neuron, of several neurons
    ``model.layers.3.mlp.down_proj.weight/1:neurons``, in expert 7 ``model.layers.3.mlp.experts.down_proj/2:neurons@7``.
    """
    if len(piece.starts) == 1 and piece.part is None:
        return f"{piece.tensor.name}/{piece.axis}:{piece.starts[0]}:{piece.starts[0] + piece.width}"
    return f"{piece.tensor.name}/{piece.axis}:neurons{'' if piece.part is None else f'@{piece.part}'}"


def read_runs(path: Path, runs: Runs) -> Iterator[bytes]:
    """The runs' bytes, in order; a bounded number at a time."""
    with open(path, "rb") as file:
        for start, size in _windows(runs):
            file.seek(start)
            window = np.frombuffer(file.read(size), np.uint8)
            yield window[runs.covered(start, len(window))].tobytes()


def write_runs(path: Path, runs: Runs, content: Iterable[bytes]) -> None:
    """The way back: put what ``read_runs`` gave in its place again."""
    waiting = iter(content)
    with open(path, "r+b") as file:
        for start, size in _windows(runs):
            file.seek(start)
            window = np.frombuffer(file.read(size), np.uint8).copy()
            window[runs.covered(start, len(window))] = np.frombuffer(next(waiting), np.uint8)
            file.seek(start)
            file.write(window.tobytes())


def sizes(runs: Runs) -> Iterator[int]:
    """How many bytes each piece has that ``read_runs`` gives and ``write_runs`` takes."""
    for start, size in _windows(runs):
        yield int(runs.covered(start, size).sum())


def _windows(runs: Runs) -> Iterator[tuple[int, int]]:
    """(first byte, bytes) of stretches that hold the runs in order and split none: whole strides, or single runs."""
    reach = runs.offsets[-1] + runs.length
    if reach <= CHUNK:
        each = max(1, CHUNK // runs.stride)
        for number in range(0, runs.count, each):
            last = min(number + each, runs.count) - 1
            yield runs.first + number * runs.stride, (last - number) * runs.stride + reach
        return
    for number in range(runs.count):
        for offset in runs.offsets:
            yield runs.first + number * runs.stride + offset, runs.length


def zero(window: np.ndarray, start: int, runs: Iterable[Runs]) -> bool:
    """Zero what the runs cover of a window of a file (uint8, from byte ``start`` of the file on); whether any does."""
    touched = False
    for each in runs:
        covered = each.covered(start, len(window))
        if covered.any():
            window[covered] = 0
            touched = True
    return touched


def by_file(slices: Sequence[Slice]) -> dict[str, tuple[Runs, ...]]:
    """The runs of each file, each run once."""
    files: dict[str, dict[Runs, None]] = {}
    for piece in slices:
        files.setdefault(piece.tensor.file, {})[runs_of(piece)] = None
    return {file: tuple(runs) for file, runs in files.items()}
