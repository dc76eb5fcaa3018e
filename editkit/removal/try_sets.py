"""Real answers on ``choose`` to one set after another, and which of them is best.

attempt = Attempt(ledger, trial, capability, localization.universal, seed)
tried = attempt.tried(point)
tried.lost, tried.left, tried.good
attempt.compared(tried).status                           # beside random sets of the same layers
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.verdict import FEWEST_SETS, judge
from editkit.measuring.ledger import Ledger
from editkit.removal.capability import Capability
from editkit.removal.choose import kept
from editkit.removal.random_sets import Draw, random_heads
from editkit.removal.recipe import Recipe
from editkit.removal.search_sets import SHARE
from editkit.removal.trial import Sheet, Trial
from editkit.tasks.task import Task
from editkit.units import Unit

COSTS = 3
"""So many of the first numbers that ``ranked`` gives to a set that meets the goal say what it costs the others."""
RANKS = {"met": 0, "reduced": 1, "goal-missed": 2, "too-much-damage": 3}
"""The best status first: what does no harm is shown before what does too much."""


@dataclass(frozen=True)
class Tried:
    """A set with real answers on ``choose``.

    Args:
        after: its answers, task by task; not all of them where it was asked no further.
        worst: the retained task that lost most, and ``lost`` what it lost, of its ``budget``.
        left: the share of the target that is left, in the format that keeps most.
        compared: with random sets of the same layers; until then ``status`` knows nothing of them.
    """

    point: FrontierPoint
    after: tuple[Sheet, ...]
    status: str
    worst: Task
    lost: float
    budget: float
    left: float
    compared: bool = False

    @property
    def rank(self) -> tuple[float, ...]:
        return ranked(self.status, self.lost, self.budget, self.left)

    @property
    def cheap(self) -> bool:
        """Whether no retained task loses more than half its budget: on other examples it may lose more."""
        return self.lost <= SHARE * self.budget + 1e-9

    @property
    def good(self) -> bool:
        """Whether no other need be tried."""
        return self.status == "met" and self.cheap


class Attempt:
    """Real answers on ``choose`` to one set after another, against those of the unedited model."""

    def __init__(
        self, ledger: Ledger, trial: Trial, capability: Capability, universal: Iterable[Unit], seed: int
    ) -> None:
        recipe = capability.recipe
        self.ledger, self.trial, self.capability, self.universal = ledger, trial, capability, universal
        # Other sets than the report's: what is chosen for beating these sets is compared with fresh ones there.
        self.draw = Draw(min(FEWEST_SETS, recipe.random_sets), recipe.random_examples, seed + 1)
        self.before = tuple(trial.sheet(ledger, task) for task in trial.tasks)
        self.criteria = replace(trial.criteria, passing=1.0)  # so few examples may lose the whole budget

    def tried(self, point: FrontierPoint, best: Tried | None = None) -> Tried:
        """The set is asked no further once a retained task lost more than its budget, and more than all by ``best``.

        What loses most by ``best`` or by likelihood is asked first.
        """
        count, budget = len(self.capability.targets), self.capability.recipe.damage.each
        known = {} if best is None else best.point.answers
        losses = {task: before - after for task, (before, after) in known.items()}

        def feared(sheet: Sheet) -> float:
            return max(point.lost.get(sheet.task.name, 0.0), losses.get(sheet.task.name, 0.0))

        order = [*self.before[:count], *sorted(self.before[count:], key=feared, reverse=True)]
        most = math.inf if best is None else max(best.lost, budget) + 1e-9
        pairs: dict[str, tuple[Sheet, Sheet]] = {}
        for place, before in enumerate(order):
            after = self.trial.sheet(self.ledger, before.task, point.units)
            pairs[before.task.name] = before, after
            if place >= count and before.mean - after.mean > most:
                break
        asked = [pairs[sheet.task.name] for sheet in self.before if sheet.task.name in pairs]
        after = tuple(second for _, second in asked)
        whole = len(after) == len(self.before)
        lost, worst = max(((one.mean - other.mean, one.task) for one, other in asked[count:]), key=lambda each: each[0])
        return Tried(
            replace(point, answers={one.task.name: (one.mean, other.mean) for one, other in asked}),
            after,
            judge(self.trial.rows(self.before, after), self.criteria).status if whole else "too-much-damage",
            worst,
            lost,
            budget,
            max(kept(*pair).share for pair in asked[:count]),
        )

    def compared(self, tried: Tried) -> Tried:
        """The same beside random sets of its layers, where its status hangs on them."""
        if tried.status not in ("met", "reduced"):
            return replace(tried, compared=True)
        pair, units = self.trial.least_lost(self.before, tried.after), frozenset(tried.point.units)
        null = random_heads(self.ledger, units, self.universal, *pair, self.draw)
        rows = self.trial.rows(self.before, tried.after)
        return replace(tried, status=judge(rows, self.criteria, null).status, compared=True)


def cheapest(tried: Sequence[Tried], recipe: Recipe) -> Tried | None:
    """Of the sets that reach the goal, the one whose worst loss is least."""
    reached = [each for each in tried if each.left <= recipe.goal]
    return min(reached, key=lambda each: each.lost) if reached else None


def ranked(status: str, lost: float, budget: float, left: float) -> tuple[float, ...]:
    """What sorts sets that were tried, the best first.

    Of sets that meet the goal, the one that spares the others: what has lost its whole budget on a few examples loses
    more on others half the time. Of those that do not, the one that takes the target furthest.

    Args:
        lost: the worst loss of a retained task, of its ``budget``; what is beyond that counts in whole points.
        left: the share of the target that is left, in the format that keeps most; it counts in twentieths.
    """
    beyond, costs = (round(max(0.0, lost - share * budget), 2) for share in (1.0, SHARE))
    first, second = (costs, round(20 * left)) if status == "met" else (round(20 * left), costs)
    return RANKS[status], beyond, first, second, left
