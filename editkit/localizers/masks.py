"""Masks: which heads are knocked out together in which measurement.

A design is ``bool[masks, columns]``, True = knocked out. With 4 heads, 2 masks of 2 heads each::

    [[0 1 0 1]
     [1 0 1 0]]      one pass: every head is out once, and heads that share a mask cannot be told apart

The number of *passes* r = masks * heads per mask / heads decides what a design can resolve: below 4 the strongest
heads at best, from 8 on also weaker ones. A head of effect a stands out when r >= (3.3 * s / a)^2, where s is the
standard deviation of the scores over masks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

FEWEST_PASSES = 4
"""Below this, a design gets a warning. At one pass stratified masks recover less than Bernoulli masks do."""
GOOD_PASSES = 8


def stratified(columns: int, masks: int, sparsity: float, rng: np.random.Generator) -> np.ndarray:
    """Masks that knock every column out equally often (CSS, arXiv 2603.03335).

    Each mask takes the columns that were taken least so far, ties broken at random. So each row has exactly
    k = floor(columns * sparsity) ones (at least 1), and column sums differ by at most one. The first rows of a
    design are a design: a search over the number of masks measures the longest one only.

    Args:
        columns: how many candidates there are.
        masks: how many rows to draw.
        sparsity: the share of the columns knocked out by one mask, in (0, 1].
        rng: the only source of randomness.
    """
    each = heads_per_mask(columns, sparsity)
    taken = np.zeros(columns)
    rows = np.zeros((masks, columns), dtype=bool)
    for row in rows:
        least = np.argsort(taken + rng.random(columns) * 0.5)[:each]
        row[least] = True
        taken[least] += 1
    return rows


def bernoulli(columns: int, masks: int, sparsity: float, rng: np.random.Generator) -> np.ndarray:
    """Masks whose entries are independent coin flips (CSB). Arguments as in ``stratified``."""
    return rng.random((masks, columns)) < sparsity


def heads_per_mask(columns: int, sparsity: float) -> int:
    """k = floor(columns * sparsity), at least 1. Robust to sparsities like 0.29 that floats cannot hold."""
    return max(1, int(columns * sparsity + 1e-9))


def of_sets(sets: Sequence[Collection[int]], columns: int) -> np.ndarray:
    """bool[sets, columns]: one mask for each set of columns."""
    masks = np.zeros((len(sets), columns), dtype=bool)
    for mask, chosen in zip(masks, sets, strict=True):
        mask[list(chosen)] = True
    return masks


@dataclass(frozen=True)
class Coverage:
    """What a design can and cannot resolve.

    ``duplicates`` counts columns that are identical to an earlier one: no method can tell them apart.
    """

    masks: int
    columns: int
    passes: float
    fewest: int
    most: int
    duplicates: int
    warning: str | None


def coverage(masks: np.ndarray) -> Coverage:
    """Count passes, column sums and identical columns of ``bool[masks, columns]``; warn when passes are few."""
    rows, columns = masks.shape
    counts = masks.sum(0)
    passes = float(counts.sum() / columns)
    duplicates = columns - len(np.unique(np.packbits(masks, axis=0), axis=1).T)
    warning = None
    if passes < FEWEST_PASSES:
        per_mask = counts.sum() / rows
        needed = int(np.ceil(GOOD_PASSES * columns / max(per_mask, 1)))
        warning = (
            f"{rows} masks knock every head out only {passes:.1f} times, and {duplicates} of {columns} heads share "
            f"their masks with another. Below {FEWEST_PASSES} passes the ranking is mostly noise: take about {needed} "
            "masks, or a higher sparsity."
        )
    return Coverage(rows, columns, passes, int(counts.min()), int(counts.max()), int(duplicates), warning)
