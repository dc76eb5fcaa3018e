"""The verdict, computed from rows: goal, damage budget, random heads, noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from editkit.evidence import paired_tests
from editkit.evidence.intervals import Interval
from editkit.evidence.row import Row

UNDECIDED = 5
"""An interval that reaches past this many damage budgets is too wide to excuse a measured loss as noise."""


@dataclass(frozen=True)
class Criteria:
    """What the recipe demands. Shares are of the unedited score above chance; budgets are in score points (0.02 = 2).

    Args:
        goal: the target's score after the edit, as a share of its score before (both above chance), must be at
            most this; collapsed answers count as not removed.
        damage_each: no retained task may lose more than this.
        damage_mean: nor may their mean.
    """

    goal: float = 0.15
    damage_each: float = 0.02
    damage_mean: float = 0.01


@dataclass(frozen=True)
class RandomHeads:
    """The same knockout size on layer-matched random head sets: the null of the target's drop.

    ``deltas`` holds the target's mean change for each set; ``p`` = (1 + sets at least as strong) / (1 + sets).
    ``examples``: on how many of the row's examples, where not on all; ``delta`` is the found heads' change on the same.
    ``task``: the target that was asked; None = the only one. ``kind``: what was drawn. ``distinct``: how many of the
    sets differ; ``floor``: no p below this is possible, be it for want of draws or of sets. None = not known.
    """

    sets: int
    deltas: tuple[float, ...]
    delta: float
    p: float
    examples: int | None = None
    task: str | None = None
    kind: str = "head"
    distinct: int | None = None
    floor: float | None = None


@dataclass(frozen=True)
class Verdict:
    """``reduced``: the goal was missed by every certain and specific drop of the targets, within the damage budget."""

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
    """The verdict, computed: the goal on every target, the random-heads and A/A controls, then the damage budgets.

    A loss beyond the budget is damage when it is more than noise (one-sided 5 %, Bonferroni over the retained tasks),
    or when the interval is too wide to tell (``UNDECIDED``). Otherwise the reason says what n could not show.
    """
    targets = [row for row in rows if row.role == "target"]
    retained = [row for row in rows if row.role == "retain"]
    goal = [_goal(row, criteria) for row in targets]
    if not targets:
        goal = [(False, "No target task was measured, so no removal can be claimed.")]
    sound = [] if null is None else [_specific(null)]
    sound += [_steady(noise, criteria)] if noise else []
    damage = [_damage(row, criteria, len(retained)) for row in retained]
    if retained:
        damage.append(_mean_damage(retained, criteria))
    # What failed is read first.
    reasons = tuple(text for _, text in sorted(goal + sound + damage, key=lambda finding: finding[0]))
    reached, trusted, spared = (all(passed for passed, _ in findings) for findings in (goal, sound, damage))
    if reached and trusted:
        return Verdict(spared, reasons, "met" if spared else "too-much-damage")
    reduced = trusted and spared and bool(targets) and all(_reduced(row) for row in targets)
    return Verdict(False, reasons, "reduced" if reduced else "goal-missed")


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
        return False, f"{text}; the change of {_change(row.delta)} is within noise (p = {row.p:.2g}){seen}."
    return share <= criteria.goal + 1e-9, f"{text}; change {_change(row.delta)}."


def _fell(row: Row) -> bool:
    """Whether the score certainly fell."""
    return row.before.low > row.chance and row.delta.high < 0 and row.p <= 0.05


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
    if null.p <= 0.05:
        return True, f"The drop is larger than that of {text}."
    floor = 1 / (1 + null.sets) if null.floor is None else null.floor
    if floor > 0.05:
        few = (
            f"only {null.distinct or null.sets} sets differ" if null.sets >= 19 else "19 sets or more would allow less"
        )
        return True, f"Not shown to be special, compared with {text}: {few}, p cannot be below {floor:.2g}."
    return False, f"The drop is not special: compared with {text}, some fell as far."


def _steady(noise: Sequence[Row], criteria: Criteria) -> tuple[bool, str]:
    """A/A: what changes when nothing was changed. More than a damage budget for sure, and no change means anything."""
    row = max(noise, key=lambda row: abs(row.delta.mean))
    text = f"Noise floor: measured twice, the unedited model changed by at most {_change(row.delta)} ({row.task})"
    wider = _normal(1 - 0.025 / len(noise)) / _normal(0.975)
    limits = [max(criteria.damage_each, wider * (row.delta.high - row.delta.low) / 2) for row in noise]
    if any(abs(row.delta.mean) > limit for row, limit in zip(noise, limits, strict=True)):
        return False, f"{text}: this measurement is not steady enough to show anything."
    return True, f"{text}."


def _damage(row: Row, criteria: Criteria, tasks: int) -> tuple[bool, str]:
    budget, text = criteria.damage_each, f"{row.task} changed by {_change(row.delta)} (n = {row.n})"
    limit = f"the budget is a loss of {_points(budget)}"
    unseen = "" if row.detectable is None else f"; a change below {_points(row.detectable)} could have gone unseen"
    if -row.delta.mean <= budget + 1e-9:
        if row.p_equivalent is not None and row.p_equivalent < 0.05:
            return True, f"{text}: shown to be unchanged within the margin (TOST p = {row.p_equivalent:.2g})."
        return True, f"{text}; {limit}{unseen}."
    above = (row.delta.high - row.delta.mean) / _normal(0.975) * _normal(1 - 0.05 / tasks)
    if row.delta.mean + above < 0:
        return False, f"{text}; {limit}."
    if row.delta.low < -UNDECIDED * budget:
        return False, f"{text}; {limit}, and {row.n} examples are too few to call this noise: measure more."
    return True, f"{text}: over the budget of {_points(budget)} but within noise{unseen}."


def _mean_damage(rows: Sequence[Row], criteria: Criteria) -> tuple[bool, str]:
    change = float(np.mean([row.delta.mean for row in rows]))
    errors = [(row.delta.high - row.delta.low) / (2 * _normal(0.975)) for row in rows]
    error = math.sqrt(sum(part**2 for part in errors)) / len(rows)
    reach = _normal(0.975) * error
    together = Interval(change, max(-1.0, change - reach), min(1.0, change + reach))
    tasks = "The one retained task" if len(rows) == 1 else f"The {len(rows)} retained tasks"
    text = f"{tasks} changed by {_change(together)} on average"
    limit = f"the budget is a loss of {_points(criteria.damage_mean)}"
    if -change <= criteria.damage_mean + 1e-9:
        return True, f"{text}; {limit}."
    if change + _normal(0.95) * error < 0:
        return False, f"{text}; {limit}."
    if together.low < -UNDECIDED * criteria.damage_mean:
        return False, f"{text}; {limit}, and there are too few examples to call this noise: measure more."
    return True, f"{text}: over the budget of {_points(criteria.damage_mean)} but within noise."


def _points(value: float) -> str:
    return f"{100 * value:.1f}"


def _change(delta: Interval) -> str:
    return f"{100 * delta.mean:+.1f} points [{100 * delta.low:+.1f}, {100 * delta.high:+.1f}]".replace("-", "−")


def _normal(level: float) -> float:
    return NormalDist().inv_cdf(level)
