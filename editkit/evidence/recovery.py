"""How much of what was removed an attack brings back: R, the share of the way from the edited score to the base's.

recovered(base=[1, 1, 1, 1], edited=[0, 0, 0, 0], attacked=[1, 1, 0, 1])   ->   Recovered(share=.75, low=.05, high=1.0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from editkit.evidence.intervals import bounds
from editkit.evidence.samples import Labels, Numbers, by_cluster, paired

LEAST = 0.05
"""A removal that took less of the score than this leaves no way back to measure."""


@dataclass(frozen=True)
class Recovered:
    """R = (attacked - edited) / (base - edited) with its 95 % bounds: 0 is the edited model, 1 the base.

    Below 0 the attack took what the edit had left, above 1 it taught. Bounds end at -1 and 2.
    """

    share: float
    low: float
    high: float


def recovered(base: Numbers, edited: Numbers, attacked: Numbers, *, clusters: Labels | None = None) -> Recovered | None:
    """R of the same examples under three models; None where the edit took less than ``LEAST`` of the score.

    A share r is excluded where the mean of ``attacked - edited - r (base - edited)`` surely is not 0 (Fieller 1954).
    """
    whole, start = paired(base, edited)
    _, end = paired(base, attacked)
    removed = float((whole - start).mean())
    if removed < LEAST:
        return None
    share = float((end - start).mean()) / removed

    def excluded(r: float) -> bool:
        sums, sizes = by_cluster(end - start - r * (whole - start), clusters)
        reach = 1 + max(-r, r - 1, 0.0)
        low, high = bounds(sums, sizes, least=-reach, most=reach)
        return bool(low > 0 or high < 0)

    low, high = (_edge(min(max(share, -1.0), 2.0), end, excluded) for end in (-1.0, 2.0))
    return Recovered(share, low, high)


def _edge(inside: float, end: float, excluded: Callable[[float], bool]) -> float:
    """Where, on the way from a share that is not excluded to the end of the range, the excluded ones begin."""
    if not excluded(end):
        return end
    outside = end
    for _ in range(30):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if excluded(middle) else (middle, outside)
    return round(inside, 6)
