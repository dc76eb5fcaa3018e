"""Which units are out together: places in the order of an architecture, a few bytes for any number of them.

    architecture.knockout([Head(1, 2), Neuron(0, 17)])      Knockout of the places [6, 25]: heads come first

A place counts all heads of the model, then all its neurons. Nothing here knows which unit a place is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_PLACE = np.dtype("<i4")


@dataclass(frozen=True)
class Knockout:
    """The places that are out. ``packed`` holds them as int32, sorted, each once; none: the unedited model."""

    packed: bytes = b""

    @classmethod
    def of(cls, places: np.ndarray) -> Knockout:
        """The knockout of int[n] places, in any order."""
        return cls(np.unique(np.asarray(places, dtype=_PLACE)).tobytes())

    @cached_property
    def places(self) -> np.ndarray:
        """int32[n], sorted."""
        return np.frombuffer(self.packed, _PLACE)

    @cached_property
    def key(self) -> bytes:
        """16 bytes that name it, however many units are out."""
        return hashlib.blake2b(self.packed, digest_size=16).digest()

    def __len__(self) -> int:
        return len(self.packed) // _PLACE.itemsize


NOTHING = Knockout()
"""The unedited model."""


def union(knockouts: Iterable[Knockout]) -> Knockout:
    """What is out in any of them."""
    several = [each for each in knockouts if each.packed]
    if len(several) < 2:
        return several[0] if several else NOTHING
    return Knockout.of(np.concatenate([each.places for each in several]))
