"""What else a head is needed for: its drop on the target against what the retained tasks lose without it.

    selectivity = target drop / (target drop + mean drop of the retained tasks)         1 = hurts nothing else

A head that shows only with others knocked out is judged where it shows: with those out, before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from editkit.localizers.masks import of_sets
from editkit.localizers.protocol import Measure

EXAMPLES, LEAST = 64, 6
"""Examples over all retained tasks, but at least so many of each."""


@dataclass(frozen=True)
class Needed:
    """A head that the target needs: its drop (>= 0), and the columns that were out as well when it was measured."""

    column: int
    drop: float
    given: tuple[int, ...] = ()


def selectivity(
    heads: Sequence[Needed], controls: Mapping[str, Measure], *, per: int
) -> tuple[dict[int, float], float]:
    """Column -> selectivity, and what it cost in passes over ``per`` examples."""
    count = max(LEAST, -(-EXAMPLES // max(1, len(controls))))
    damage, cost = np.zeros(len(heads)), 0.0
    for measure in controls.values():
        drops, passes = added_drops(heads, measure, count, per=per)
        damage += np.maximum(0.0, drops) / len(controls)
        cost += passes
    drop = np.array([max(0.0, head.drop) for head in heads])
    share = drop / np.where(drop + damage > 0, drop + damage, 1.0)
    return {head.column: float(value) for head, value in zip(heads, share, strict=True)}, cost


def added_drops(heads: Sequence[Needed], measure: Measure, examples: int, *, per: int) -> tuple[np.ndarray, float]:
    """What each head's knockout adds to that of its ``given``, on the first ``examples``: float[heads], + = worse."""
    few = np.arange(min(examples, measure.examples))
    sets = [frozenset(head.given) for head in heads] + [frozenset((head.column, *head.given)) for head in heads]
    distinct = sorted(set(sets), key=sorted)
    if not distinct:
        return np.zeros(0), 0.0
    mean = dict(zip(distinct, measure(of_sets(distinct, measure.units), few).mean(axis=1), strict=True))
    before, after = sets[: len(heads)], sets[len(heads) :]
    drops = np.array([mean[one] - mean[other] for one, other in zip(before, after, strict=True)])
    return drops, len(distinct) * len(few) / per
