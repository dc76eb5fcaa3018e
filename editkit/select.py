"""How many heads: the smallest prefix of the order that meets the goal within the damage budget.

    select(scores, heads=40, criteria=Criteria(goal=.15))
    -> Selection(heads=3, status="met", curve=(0 heads: target .98, 1: .61, 2: .33, 3: .09))

Scores come from the ``choose`` split, which the search never saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from editkit.evaluation import Criteria

Status = Literal["met", "goal-missed", "too-much-damage"]
MOST = 10
PATIENCE = 2
"""Prefixes tried after one that meets the goal at too much damage: a later head may bring a retained task back."""


@dataclass(frozen=True)
class PrefixScores:
    """Mean scores on the ``choose`` split with the first heads of the order knocked out.

    ``collapsed`` is the share of the target's answers that are empty, degenerate or repetitive: they show no
    capability, but do not count as removed either.
    """

    target: float
    retained: Mapping[str, float]
    collapsed: float = 0.0


@dataclass(frozen=True)
class Dose:
    """One point of the dose curve. ``remaining`` is the share of the unedited target score; damages are in points."""

    heads: int
    scores: PrefixScores
    remaining: float
    worst_task: str | None
    worst_damage: float
    mean_damage: float
    meets_goal: bool
    within_budget: bool


@dataclass(frozen=True)
class Selection:
    """``heads`` is None unless ``status`` is "met"; ``closest`` is then the prefix that came nearest."""

    heads: int | None
    status: Status
    curve: tuple[Dose, ...]
    closest: int
    reason: str


def select(
    prefix_scores: Callable[[int], PrefixScores], heads: int, criteria: Criteria, *, most: int = MOST
) -> Selection:
    """Take one head more at a time until the goal is met.

    Args:
        prefix_scores: scores with the first k heads out; ``prefix_scores(0)`` is the unedited model. Called with
            growing k, once each, and no further than needed.
        heads: how many heads the order has (those found, not all candidates).
        criteria: the goal and the damage budget of the recipe.
        most: never more heads than this.
    """
    before = prefix_scores(0)
    curve = [_dose(0, before, before, criteria)]
    patience = PATIENCE
    for count in range(1, min(heads, most) + 1):
        dose = _dose(count, prefix_scores(count), before, criteria)
        curve.append(dose)
        if dose.meets_goal and dose.within_budget:
            return Selection(count, "met", tuple(curve), count, _met(dose))
        if dose.meets_goal:
            patience -= 1
            if patience < 0:
                break
    return _missed(tuple(curve), criteria, exhausted=heads < most)


def _dose(count: int, after: PrefixScores, before: PrefixScores, criteria: Criteria) -> Dose:
    damages = {task: before.retained[task] - after.retained[task] for task in sorted(before.retained)}
    worst = max(damages, key=lambda task: damages[task], default=None)
    largest = damages[worst] if worst is not None else 0.0
    mean = sum(damages.values()) / len(damages) if damages else 0.0
    more_collapse = max(0.0, after.collapsed - before.collapsed)
    remaining = (after.target + more_collapse) / before.target if before.target > 0 else 1.0
    slack = 1e-9  # 0.49 - 0.47 is a hair more than 0.02
    return Dose(
        heads=count,
        scores=after,
        remaining=remaining,
        worst_task=worst,
        worst_damage=largest,
        mean_damage=mean,
        meets_goal=count > 0 and remaining <= criteria.goal + slack,
        within_budget=largest <= criteria.damage_each + slack and mean <= criteria.damage_mean + slack,
    )


def _missed(curve: tuple[Dose, ...], criteria: Criteria, *, exhausted: bool) -> Selection:
    reached = [dose for dose in curve if dose.meets_goal]
    if reached:
        gentlest = min(reached, key=lambda dose: dose.worst_damage)
        return Selection(None, "too-much-damage", curve, gentlest.heads, (
            f"{gentlest.heads} heads leave {gentlest.remaining:.0%} of the target, but {gentlest.worst_task} loses "
            f"{100 * gentlest.worst_damage:.1f} points and the mean {100 * gentlest.mean_damage:.1f}; the budget is "
            f"{100 * criteria.damage_each:.1f} for each and {100 * criteria.damage_mean:.1f} for the mean."
        ))  # fmt: skip
    strongest = min(curve, key=lambda dose: dose.remaining)
    limit = "no further head was found" if exhausted else "the limit on heads was reached"
    return Selection(None, "goal-missed", curve, strongest.heads, (
        f"{strongest.heads} heads leave {strongest.remaining:.0%} of the target, the goal is {criteria.goal:.0%}, and "
        f"{limit}."
    ))  # fmt: skip


def _met(dose: Dose) -> str:
    damage = f"; {dose.worst_task} loses most, {100 * dose.worst_damage:.1f} points" if dose.worst_task else ""
    return f"{dose.heads} heads leave {dose.remaining:.0%} of the target{damage}."
