"""How much of a capability is left: its share of the score before, above chance, and the most that it may be.

share_left([1, 1, 1, 1], [0, 1, 0, 0], chance=0.0)   ->   ShareLeft(share=.25, at_most=.77)
"""

from __future__ import annotations

from dataclasses import dataclass

from editkit.evidence.intervals import bounds
from editkit.evidence.samples import Labels, Numbers, by_cluster, paired

SURE = 0.95
"""The share is not above ``at_most`` with this confidence: a one-sided bound."""
FEW = 18
"""So many clusters that all lost the capability show that at most 15 % of all do. With fewer the bound speaks of new
examples of these clusters only, and whoever shows it says so."""


@dataclass(frozen=True)
class ShareLeft:
    """The share that is left, from 0 on, with its upper bound; 1 where the sample excludes no share."""

    share: float
    at_most: float


def share_left(before: Numbers, after: Numbers, *, chance: float, clusters: Labels | None = None) -> ShareLeft | None:
    """The share of the score before, above ``chance``, that is left; None where that score is not above it.

    A share s is excluded where the mean of ``after - s * before`` surely lies below what chance gives, which is
    Fieller's (1954) way to bound a ratio of paired means.
    """
    first, second = paired(before, after)
    above = first.mean() - chance
    if above <= 0:
        return None
    if clusters is not None and len(set(clusters)) < FEW:
        clusters = None

    def excluded(share: float) -> bool:
        sums, sizes = by_cluster(second - share * first, clusters)
        _, high = bounds(sums, sizes, least=-share, most=1 - share, confidence=SURE)
        return bool(high < chance * (1 - share))

    share = max(0.0, float(second.mean() - chance) / float(above))
    low, high = min(share, 1.0), 1.0
    if not excluded(1.0):
        return ShareLeft(share, max(1.0, share))
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if excluded(middle) else (middle, high)
    return ShareLeft(share, high)
