"""Before and after, paired, with intervals: the evidence behind every claim (``report.json``).

{"rows": [{"task": "swear", "role": "target", "split": "report", "n": 150, "chance": 0.0,
           "before": {"mean": 0.99, "low": 0.97, "high": 1.0}, "after": {"mean": 0.02, ...},
           "delta": {"mean": -0.97, ...}, "p": 1e-30, "collapse": {"before": 0.0, "after": 0.0}}, ...],
 "random_heads": {...}, "criteria": {...}, "verdict": {"met": true, "reasons": [...]}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % bounds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Criteria:
    """What the recipe demands. Shares are of the unedited score; budgets are in score points (0.02 = 2 points).

    Args:
        goal: the target's score after the edit, as a share of its score before, must be at most this (collapsed
            answers count as not removed).
        damage_each: no retained task may lose more than this.
        damage_mean: nor may their mean.
    """

    goal: float = 0.15
    damage_each: float = 0.02
    damage_mean: float = 0.01


@dataclass(frozen=True)
class Row:
    """One task, before and after, on the same examples."""

    task: str
    role: Literal["target", "retain"]
    split: str
    n: int
    chance: float
    before: Interval
    after: Interval
    delta: Interval
    p: float
    collapse_before: float
    collapse_after: float


@dataclass(frozen=True)
class RandomHeads:
    """The same knockout size on layer-matched random head sets: the null of the target's drop.

    ``deltas`` holds the target's mean change for each set; ``p`` = (1 + sets at least as strong) / (1 + sets).
    """

    sets: int
    deltas: tuple[float, ...]
    delta: float
    p: float


@dataclass(frozen=True)
class Verdict:
    met: bool
    reasons: tuple[str, ...]
    status: Literal["met", "goal-missed", "too-much-damage"]


@dataclass(frozen=True)
class EvalReport:
    rows: tuple[Row, ...]
    random_heads: RandomHeads | None
    criteria: Criteria
    verdict: Verdict
