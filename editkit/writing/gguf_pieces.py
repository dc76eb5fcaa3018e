"""Which tensor of a GGUF file an edit changes for a unit, and how: the map after the unit, or the one before it.

    piece_of(stored, site of L20's heads, [8])      blk.20.attn_output.weight, inputs 512 to 576 of every row
    piece_of(stored, site of L3's neurons, [40])    blk.3.ffn_down.weight, input 40; in Q4_1 blk.3.ffn_up.weight, row 40

A neuron is a column of ``ffn_down``, which few types can make zero alone. Where they cannot, its row of ``ffn_up`` goes
instead, whole blocks of it: what the neuron puts out is then its gate times zero, or its activation at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editkit.checkpoints import gguf
from editkit.checkpoints.architecture import Site
from editkit.errors import EditkitError
from editkit.writing.gguf_blocks import RowZeros, row_zeros
from editkit.writing.slices import merged

ZERO_AT_ZERO = frozenset({"falcon", "nemotron"})
"""Architectures whose MLPs have no gate, and an activation (GELU, squared ReLU) that is zero at zero."""


@dataclass(frozen=True)
class Piece:
    """One tensor to edit: ``zeros`` are the bits that go of each of its rows, or of ``only`` those (int[n], sorted).

    ``spans``, in the inputs or, of ``only`` some rows, in these: what becomes zero.
    """

    tensor: gguf.Tensor
    spans: tuple[tuple[int, int], ...]
    zeros: RowZeros
    only: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """How many rows change."""
        return self.tensor.shape[0] if self.only is None else len(self.only)

    @property
    def row_bytes(self) -> int:
        return (self.tensor.end - self.tensor.start) // self.tensor.shape[0]

    @property
    def axis(self) -> int:
        return 1 if self.only is None else 0

    def within(self, first: int, count: int) -> np.ndarray:
        """Which of ``count`` rows from row ``first`` on change, int[n] from 0."""
        if self.only is None:
            return np.arange(count)
        low, high = np.searchsorted(self.only, [first, first + count])
        return self.only[low:high] - first


def piece_of(stored: gguf.Gguf, site: Site, indexes: Sequence[int]) -> Piece:
    """What takes some units out of a site: their inputs; of neurons, where these cannot go alone, rows of ``ffn_up``.

    Raises:
        EditkitError: neither can be zeroed alone.
    """
    tensor = stored.tensors[site.tensor]
    spans = merged((site.slice(index).start for index in indexes), site.width)
    try:
        return Piece(tensor, spans, row_zeros(tensor.kind, tensor.shape[1], spans))
    except EditkitError as error:
        if site.kind == "head":
            raise
        up = _up(stored, site, str(error))
    return Piece(up, spans, row_zeros(up.kind, up.shape[1], [(0, up.shape[1])]), np.array(sorted(indexes)))


def _up(stored: gguf.Gguf, site: Site, why: str) -> gguf.Tensor:
    """The map whose rows make the neurons zero: what goes into a product, or into an activation that keeps zero."""
    block = site.tensor.removesuffix("ffn_down.weight")
    up = stored.tensors.get(f"{block}ffn_up.weight")
    if up is None or up.shape[0] != site.units:
        raise EditkitError(f"{why}, and {block}ffn_up.weight has no row for each neuron alone")
    if f"{block}ffn_up.bias" in stored.tensors:
        raise EditkitError(f"{why}, and with {block}ffn_up.bias a row of zeros does not make a neuron zero")
    if f"{block}ffn_gate.weight" not in stored.tensors and stored.architecture not in ZERO_AT_ZERO:
        raise EditkitError(f"{why}, and it is not known that this MLP's activation keeps zero as it is")
    return up
