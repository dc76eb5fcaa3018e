"""How much two sets of units have in common, by every measure in use, and what random sets would show.

    overlap(first, second, layer)
    -> Overlap(first=69, second=69, shared=52, values={"iou": .605, ...}, expected={"iou": .004, ...}, p=0.0)

Random sets have as many units in each layer as the two have: what they share is a sum of hypergeometric numbers, one
for each layer, whose distribution is exact. Sets that lie in the same few layers share some units by chance alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

MEASURES: Mapping[str, Callable[[Any, int, int], Any]] = {
    "iou": lambda shared, a, b: shared / (a + b - shared),
    "dice": lambda shared, a, b: 2 * shared / (a + b),
    "overlap coefficient": lambda shared, a, b: shared / min(a, b),
    "of the larger": lambda shared, a, b: shared / max(a, b),
    "of the first": lambda shared, a, b: shared / a,
    "of the second": lambda shared, a, b: shared / b,
}
"""``iou``: intersection over union, Jaccard's index. ``overlap coefficient``: Szymkiewicz and Simpson's."""


@dataclass(frozen=True)
class Overlap:
    """Sizes of two sets and of their intersection; each measure, and its expectation under random sets.

    ``values`` and ``expected`` are empty where a set is. ``p``: how likely random sets share as much or more.
    """

    first: int
    second: int
    shared: int
    values: Mapping[str, float]
    expected: Mapping[str, float]
    p: float


def overlap(first: np.ndarray, second: np.ndarray, layer: np.ndarray) -> Overlap:
    """Compare two sets, bool[units] each.

    Args:
        layer: int[units], the layer of each unit.
    """
    a, b, shared = int(first.sum()), int(second.sum()), int((first & second).sum())
    if not a or not b:
        return Overlap(a, b, shared, {}, {}, 1.0)
    chances = by_chance(first, second, layer)
    counts = np.arange(len(chances))
    values = {name: float(measure(shared, a, b)) for name, measure in MEASURES.items()}
    expected = {name: float(chances @ measure(counts, a, b)) for name, measure in MEASURES.items()}
    return Overlap(a, b, shared, values, expected, float(min(1.0, chances[shared:].sum())))


def by_chance(first: np.ndarray, second: np.ndarray, layer: np.ndarray) -> np.ndarray:
    """float[most + 1]: how likely random sets of the same sizes in each layer share 0, 1, ... units."""
    from scipy.stats import hypergeom

    chances = np.ones(1)
    for each in np.unique(layer):
        here = layer == each
        a, b = int(first[here].sum()), int(second[here].sum())
        if a and b:
            chances = np.convolve(chances, hypergeom.pmf(np.arange(min(a, b) + 1), here.sum(), a, b))
    return chances
