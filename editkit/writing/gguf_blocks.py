"""Which bits of a quantized row make some of its weights exactly zero, and what they become.

row_zeros("Q4_1", 576, [(512, 576)])     the scales and minima of 2 of 18 blocks: 8 of 360 bytes
row_zeros("Q4_K", 2048, [(64, 128)])     two 6-bit scales and minima of the first block: bits of 4 of 1,152 bytes
row_zeros("Q4_1", 2560, [(80, 160)])     EditkitError: 80 is inside a block of 32 weights

A weight is scale x code, or scale x code - minimum. A block whose weights all go loses its scale and minimum. Where
only a part of a block goes, the part's own scale and minimum do, or its codes, if one of them stands for zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from editkit.checkpoints.gguf import BLOCKS
from editkit.errors import EditkitError


class Bits(NamedTuple):
    """The bits of one byte of a block that are cleared, and those that are then set."""

    byte: int
    cleared: int = 0xFF
    code: int = 0


Part = Callable[[int], Sequence[Bits]]


@dataclass(frozen=True)
class Zeroing:
    """How the blocks of one type are zeroed.

    Args:
        whole: the bits that make all weights of a block zero.
        step: weights in a part of a block; 0 where a block goes as a whole or not at all.
        part: number of a part -> the bits that make its weights zero.
        scales: bytes where a float16 begins by which parts are multiplied: zero times infinity is no zero.
    """

    whole: Sequence[Bits]
    step: int = 0
    part: Part = lambda part: ()
    scales: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowZeros:
    """The same for every row of a tensor: ``row[touched] & keep | put`` has the zeros.

    Args:
        touched: int[n], the bytes of a row that change; ``keep`` and ``put`` are uint8[n].
        scales: int[m, 2], the bytes of float16 numbers that have to be finite.
    """

    touched: np.ndarray
    keep: np.ndarray
    put: np.ndarray
    scales: np.ndarray


def row_zeros(kind: str, inputs: int, spans: Sequence[tuple[int, int]]) -> RowZeros:
    """The bits of a row of ``inputs`` weights that make those of the spans zero.

    Raises:
        EditkitError: a type that has no exact zero, or a span that ends inside a block or its smallest part.
    """
    if kind not in ZEROING:
        raise EditkitError(f"weights of type {kind} cannot be zeroed exactly, or it is not known how")
    zeroing, (values, size) = ZEROING[kind], _SIZES[kind]
    gone = np.zeros(inputs, dtype=bool)
    for start, stop in spans:
        gone[start:stop] = True
    step = zeroing.step or values
    parts = gone.reshape(-1, values // step, step)
    goes = np.asarray(parts.all(axis=2))
    if (np.asarray(parts.any(axis=2)) & ~goes).any():
        borders = np.flatnonzero(np.diff(gone)) + 1
        wrong = borders[borders % step > 0][0]
        raise EditkitError(f"{wrong} is inside a block of {step} weights of type {kind}, which goes whole or stays")
    whole = np.asarray(goes.all(axis=1))
    keep = np.full((len(goes), size), 0xFF, dtype=np.uint8)
    put = np.zeros((len(goes), size), dtype=np.uint8)
    for bits in zeroing.whole:
        _note(keep, put, whole, bits)
    partial = np.asarray(goes.any(axis=1)) & ~whole
    for part in range(values // step) if partial.any() else ():
        for bits in zeroing.part(part):
            _note(keep, put, goes[:, part] & partial, bits)
    touched = np.flatnonzero(keep.reshape(-1) != 0xFF)
    first = np.flatnonzero(partial)[:, None] * size + np.array(zeroing.scales, dtype=int)[None]
    scales = first.reshape(-1, 1) + np.arange(2)
    return RowZeros(touched, keep.reshape(-1)[touched], put.reshape(-1)[touched], scales)


def _note(keep: np.ndarray, put: np.ndarray, blocks: np.ndarray, bits: Bits) -> None:
    keep[blocks, bits.byte] &= 0xFF ^ bits.cleared
    put[blocks, bits.byte] |= bits.code


def _bytes(start: int, stop: int) -> tuple[Bits, ...]:
    return tuple(map(Bits, range(start, stop)))


def _nibble(byte: int, half: int, code: int = 0) -> Bits:
    return Bits(byte, 0xF << 4 * half, code << 4 * half)


def _q3_scale(part: int) -> tuple[Bits, ...]:
    """Six bits, and 32 of them mean zero: the low four, and the high two in the last 4 of 12 bytes."""
    shift = 2 * (part // 4)
    return _nibble(96 + part % 8, part // 8), Bits(104 + part % 4, 3 << shift, 2 << shift)


def _q45_scale(part: int) -> tuple[Bits, ...]:
    """Six bits of scale and six of minimum: of parts 0 to 3 in a byte each; of 4 to 7 shared out over three."""
    low = part % 4
    if part < 4:
        return Bits(4 + low, 0x3F), Bits(8 + low, 0x3F)
    return Bits(4 + low, 0xC0), Bits(8 + low, 0xC0), Bits(12 + low)


def _iq4_scale(part: int) -> tuple[Bits, ...]:
    """Six bits, and 32 of them mean zero: the low four in one place, the high two in another."""
    shift = 2 * (part % 4)
    return _nibble(4 + part // 2, part % 2), Bits(2 + part // 4, 3 << shift, 2 << shift)


def _ternary(part: int) -> tuple[Bits, ...]:
    """Two bits a weight, and 1 of them means zero."""
    shift = 2 * (part % 128 // 32)
    return (Bits(32 * (part // 128) + part % 32, 3 << shift, 1 << shift),)


ZEROING: Mapping[str, Zeroing] = {
    **{kind: Zeroing(_bytes(0, size)) for kind, size in (("F64", 8), ("F32", 4), ("F16", 2), ("BF16", 2))},
    "Q4_0": Zeroing(_bytes(0, 2), 1, lambda at: [_nibble(2 + at % 16, at // 16, 8)], (0,)),
    "Q5_0": Zeroing(
        _bytes(0, 2), 1, lambda at: [_nibble(6 + at % 16, at // 16), Bits(2 + at // 8, 1 << at % 8, 1 << at % 8)], (0,)
    ),
    "Q8_0": Zeroing(_bytes(0, 2), 1, lambda at: [Bits(2 + at)], (0,)),
    **{kind: Zeroing(_bytes(0, 4)) for kind in ("Q4_1", "Q5_1")},
    "Q2_K": Zeroing(_bytes(80, 84), 16, lambda part: [Bits(part)], (80, 82)),
    "Q3_K": Zeroing(_bytes(108, 110), 16, _q3_scale, (108,)),
    **{kind: Zeroing(_bytes(0, 4), 32, _q45_scale, (0, 2)) for kind in ("Q4_K", "Q5_K")},
    "Q6_K": Zeroing(_bytes(208, 210), 16, lambda part: [Bits(192 + part)], (208,)),
    "IQ4_NL": Zeroing(_bytes(0, 2)),
    "IQ4_XS": Zeroing(_bytes(0, 2), 32, _iq4_scale, (0,)),
    **{kind: Zeroing(_bytes(0, 2)) for kind in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")},
    "IQ1_M": Zeroing([_nibble(byte, 1) for byte in (49, 51, 53, 55)]),
    "TQ1_0": Zeroing(_bytes(52, 54)),
    "TQ2_0": Zeroing(_bytes(64, 66), 1, _ternary, (64,)),
    "MXFP4": Zeroing(_bytes(1, 17), 1, lambda at: [_nibble(1 + at % 16, at // 16)]),
    "NVFP4": Zeroing(_bytes(0, 4), 16, lambda part: [Bits(part)]),
}
"""Type -> how it is zeroed. MXFP4's scale is a power of two, never zero: its codes go."""

_SIZES = {kind: (values, size) for kind, values, size in BLOCKS.values()}
