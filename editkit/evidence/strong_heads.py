"""The harder null of a removal: sets of as many heads, picked by their own effect on the target alone.

    strong_heads(-0.6, [-0.41, -0.62, -0.1], pool=154, examples=30, task="copying")
    StrongHeads(sets=3, ..., reached=1)     one of three such sets took the target as far

Random heads of the same layers are mostly weak, and any find beats them. Strong heads are what a list by effect would
have named. They are reported, and no part of the verdict: two ways to remove the same are no fault of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from editkit.evidence.samples import finite

TIE = 1e-12
"""Means of the same scores, added in another order, differ by less."""


@dataclass(frozen=True)
class StrongHeads:
    """All sets differ, and none is the chosen one. There is no p: the chosen set was not drawn as these are.

    Args:
        deltas: the target's mean change for each set, in [-1, 1].
        delta: the chosen set's, on the same examples.
        reached: how many sets fell as far as the chosen one.
        pool: how many heads are drawn from: all whose own knockout is known to lower the target.
        examples: how many were asked, of ``task``.
    """

    sets: int
    deltas: tuple[float, ...]
    delta: float
    reached: int
    pool: int
    examples: int
    task: str


def strong_heads(delta: float, deltas: Sequence[float], *, pool: int, examples: int, task: str) -> StrongHeads:
    """The comparison of ``delta``, the chosen set's change, with ``deltas``, those of the drawn sets."""
    values = finite(deltas, "changes by strong heads")
    reached = int((values <= delta + TIE).sum())
    return StrongHeads(len(values), tuple(values.tolist()), delta, reached, pool, examples, task)
