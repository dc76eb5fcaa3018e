"""The verdict, computed from rows: goal, damage budget, random heads, noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from editkit.evidence import paired_tests
from editkit.evidence.intervals import Interval
from editkit.evidence.noise import churn
from editkit.evidence.power import ALPHA, needed
from editkit.evidence.row import Row
from editkit.evidence.share_left import FEW

FEWEST_SETS = 19
"""Fewer random sets cannot give p = 0.05."""
TWICE = 0.0294
"""The level of each of two looks that together make .05 (Pocock 1977, Biometrika 64, table 1)."""
PASSING = 0.9
"""What is not shown passes if the sample lost at most this share of the budget: at the whole budget a loss of twice as
much passes too often (``benchmarks/results/statistics.md``)."""
OPEN = 0.25
"""A first batch that lost more than this share of the budget, but not surely all of it, is too few to decide."""
Standing = Literal["kept", "lost", "not shown"]


@dataclass(frozen=True)
class Criteria:
    """What the recipe demands. Shares are of the unedited score above chance; budgets are in score points (0.05 = 5).

    Args:
        goal: the target's score after the edit, as a share of its score before (both above chance), must be at
            most this; collapsed answers count as not removed.
        damage_each: no retained task may lose more than this.
        damage_mean: nor may their mean.
        level: a retained task is *kept* at a p of at most this: ``TWICE`` where tasks may be looked at twice.
        passing, open: ``PASSING`` and ``OPEN``; while sets are tried, on few examples, the whole budget passes.
    """

    goal: float = 0.15
    damage_each: float = 0.05
    damage_mean: float = 0.03
    level: float = ALPHA
    passing: float = PASSING
    open: float = OPEN


@dataclass(frozen=True)
class RandomHeads:
    """The same knockout size on layer-matched random head sets: the null of the target's drop.

    ``deltas`` holds the target's mean change for each set; ``p`` = (1 + sets at least as strong) / (1 + sets).
    ``examples``: on how many of the row's examples, where not on all; ``delta`` is the found heads' change on the same.
    ``task``: the target that was asked; None = the only one. ``kind``: what was drawn. ``possible``: how many sets
    there are, the found one among them; None = very many, or not known. All sets differ: no p is below 1 / (1 + sets).
    """

    sets: int
    deltas: tuple[float, ...]
    delta: float
    p: float
    examples: int | None = None
    task: str | None = None
    kind: str = "head"
    possible: int | None = None

    @property
    def every(self) -> bool:
        """Whether these are all the sets that there are."""
        return self.possible is not None and self.sets + 1 >= self.possible


@dataclass(frozen=True)
class Verdict:
    """``status`` in words: *removed*, *reduced*, *not shown* and *refused*, by the rule of docs/evaluation.md."""

    met: bool
    reasons: tuple[str, ...]
    status: Literal["met", "reduced", "goal-missed", "too-much-damage"]


def random_heads(
    delta: float, deltas: Sequence[float], *, examples: int | None = None, task: str | None = None, kind: str = "head"
) -> RandomHeads:
    """The null of the target's drop: ``delta`` for the found units, ``deltas`` for random sets of the same size."""
    values = tuple(float(value) for value in deltas)
    return RandomHeads(len(values), values, delta, paired_tests.random_set_p(delta, values), examples, task, kind)


def judge(
    rows: Sequence[Row], criteria: Criteria, null: RandomHeads | None = None, noise: Sequence[Row] = ()
) -> Verdict:
    """The verdict, computed by the one rule of docs/evaluation.md."""
    targets = [row for row in rows if row.role == "target"]
    retained = [row for row in rows if row.role == "retain"]
    goal = [_goal(row, criteria) for row in targets]
    if not targets:
        goal = [(False, "No target task was measured, so no removal can be claimed.")]
    sound = [] if null is None else [_specific(null)]
    sound += [_steady(noise, criteria)] if noise else []
    damage = [_damage(row, criteria) for row in retained]
    if retained:
        damage.append(_mean_damage(retained, criteria))
    # What failed is read first.
    reasons = tuple(text for _, text in sorted(goal + sound + damage, key=lambda finding: finding[0]))
    reached, trusted, spared = (all(passed for passed, _ in findings) for findings in (goal, sound, damage))
    if reached and trusted:
        return Verdict(spared, reasons, "met" if spared else "too-much-damage")
    special = null is None or null.p <= ALPHA or (null.sets < FEWEST_SETS and not null.every)
    reduced = trusted and spared and special and bool(targets) and all(_reduced(row) for row in targets)
    return Verdict(False, reasons, "reduced" if reduced else "goal-missed")


def level(first: int | None) -> float:
    """The level of *kept*, where a first batch of so many examples is asked, or all at once."""
    return ALPHA if first is None else TWICE


def standing(row: Row, criteria: Criteria) -> Standing:
    """What is shown of a retained task: ``kept``, its loss is below the budget; ``lost``, it is beyond; or neither."""
    if row.delta.high < -criteria.damage_each:
        return "lost"
    if row.p_kept is None:  # a report of an older editkit: by the interval, where clusters could show it at all
        enough = row.clusters is None or (1 - criteria.damage_each) ** row.clusters <= ALPHA
        return "kept" if enough and row.delta.low > -criteria.damage_each else "not shown"
    return "kept" if row.p_kept <= criteria.level else "not shown"


def undecided(row: Row, criteria: Criteria) -> bool:
    """Whether more examples may decide of a retained task: it lost a part of its budget, but not surely more."""
    some = row.delta.mean < -criteria.open * criteria.damage_each - 1e-9
    return row.role == "retain" and some and standing(row, criteria) == "not shown"


def _goal(row: Row, criteria: Criteria) -> tuple[bool, str]:
    before = f"{row.task} scored {_points(row.before.mean)} before (n = {row.n}, chance {_points(row.chance)})"
    if row.before.low <= row.chance:
        return False, f"{before}: the unedited model does not show the capability, so there is nothing to remove."
    kept = min(row.before.mean, row.after.mean + row.collapse_after) if row.kept is None else row.kept
    share = max(0.0, kept - row.chance) / (row.before.mean - row.chance)
    left, goal = _apart(share, criteria.goal)
    text = f"{before} and {_points(row.after.mean)} after: {left} kept, goal at most {goal}"
    if row.collapse_after > 0:
        text += f", counting the {row.collapse_after:.0%} collapsed answers as not removed"
    if not _fell(row):
        seen = "" if row.detectable is None else f"; {row.n} examples show a change from {_points(row.detectable)} on"
        return False, f"{text}; the change of {_change(row.delta)} is not shown to be one (p = {row.p:.2g}){seen}."
    text = f"{text}; change {_change(row.delta)}"
    most = share if row.left_at_most is None else row.left_at_most
    if row.left_at_most is not None:
        text += f"; at most {_apart(most, criteria.goal)[0]} is kept, with 95 % confidence"
        if row.clusters is not None and row.clusters < FEW:
            text += f", of new examples of these {row.clusters} clusters: too few to speak of others"
    if most > criteria.goal + 1e-9 >= share:
        text += ". The goal is reached, but not shown: more examples may show it"
    return most <= criteria.goal + 1e-9, f"{text}."


def _fell(row: Row) -> bool:
    """Whether the score certainly fell."""
    return row.before.low > row.chance and row.delta.high < 0 and row.p <= ALPHA


def _reduced(row: Row) -> bool:
    """Whether it certainly fell though every answer that collapsed counts as before."""
    collapsed = 0.0 if row.kept is None else row.kept - row.after.mean
    return _fell(row) and row.delta.high + collapsed < 0


def _apart(share: float, goal: float) -> tuple[str, str]:
    """Both in percent, with as many decimals as it takes to see that a share is above the goal."""
    digits = next((some for some in range(6) if share <= goal or round(share, some + 2) != round(goal, some + 2)), 6)
    return f"{share:.{digits}%}", f"{goal:.{digits}%}"


def _specific(null: RandomHeads) -> tuple[bool, str]:
    text = f"{null.sets} random sets of as many {null.kind}s in the same layers (p = {null.p:.3g})"
    if null.every:
        text = f"all {null.sets} other sets of as many {null.kind}s in the same layers (p = {null.p:.3g})"
    if null.p <= ALPHA:
        return True, f"The drop is larger than that of {text}."
    floor = 1 / (1 + null.sets)
    if floor > ALPHA:
        few = "there are no more sets" if null.every else f"{FEWEST_SETS} sets or more would allow less"
        return True, f"The drop is not shown to be special, beside {text}: p cannot be below {floor:.2g}, {few}."
    return False, f"The drop is not special: compared with {text}, some fell as far."


def _steady(noise: Sequence[Row], criteria: Criteria) -> tuple[bool, str]:
    """A/A: what changes when nothing was changed. More than a damage budget for sure, and no change means anything."""
    row = max(noise, key=lambda row: abs(row.delta.mean))
    text = f"Noise floor: measured twice, the unedited model changed by at most {_change(row.delta)} ({row.task})"
    if flipped := churn(noise):
        share, task = flipped
        text += f"; at most {share:.1%} of the answers flipped" + (f" ({task})" if share else "")
    if any(row.delta.mean for row in noise):
        text += "; the interval of each task is wider by what its own answers changed"
    wider = _normal(1 - 0.025 / len(noise)) / _normal(0.975)
    limits = [max(criteria.damage_each, wider * (row.delta.high - row.delta.low) / 2) for row in noise]
    if any(abs(row.delta.mean) > limit for row, limit in zip(noise, limits, strict=True)):
        return False, f"{text}: this measurement is not steady enough to show anything."
    return True, f"{text}."


def _damage(row: Row, criteria: Criteria) -> tuple[bool, str]:
    budget, word = criteria.damage_each, standing(row, criteria)
    text = (
        f"{row.task} {word}: changed by {_change(row.delta)} (n = {row.n}); the budget is a loss of {_points(budget)}"
    )
    within = -row.delta.mean <= criteria.passing * budget + 1e-9
    if word == "lost":
        return False, f"{text}, and more is lost."
    if word == "kept":
        return True, f"{text}, and less is lost{'' if row.p_kept is None else f' (p = {row.p_kept:.2g})'}."
    if row.few:
        return within, f"{text}; {row.clusters} clusters are too few to say."
    if row.flips is not None and 0 < budget < 1:
        units = "examples" if row.clusters in (None, row.n) else "clusters"
        text += (
            f"; about {needed(row.flips, budget):,} {units} would show it, if nothing is lost; here are {row.flips.n:,}"
        )
    most = _points(criteria.passing * budget)
    return within, f"{text}." if within else f"{text}. More was lost here than {most}, so it is not let through."


def _mean_damage(rows: Sequence[Row], criteria: Criteria) -> tuple[bool, str]:
    """The mean over tasks. Tasks may ask the same things, so the widths of their intervals are averaged as they are."""
    change, low, high = (float(np.mean([getattr(row.delta, key) for row in rows])) for key in ("mean", "low", "high"))
    tasks = "The one retained task" if len(rows) == 1 else f"The {len(rows)} retained tasks"
    budget = f"the budget is a loss of {_points(criteria.damage_mean)}"
    text = f"{tasks} changed by {_change(Interval(change, low, high))} on average; {budget}."
    return -change <= criteria.damage_mean + 1e-9, text


def _points(value: float) -> str:
    return f"{100 * value:.1f}"


def _change(delta: Interval) -> str:
    return f"{100 * delta.mean:+.1f} points [{100 * delta.low:+.1f}, {100 * delta.high:+.1f}]".replace("-", "−")


def _normal(level: float) -> float:
    return NormalDist().inv_cdf(level)
