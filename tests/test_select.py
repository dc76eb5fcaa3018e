"""The smallest prefix that will do, and an honest reason where none will."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from editkit.evaluation import Criteria
from editkit.select import PrefixScores, select

CRITERIA = Criteria(goal=0.15, damage_each=0.02, damage_mean=0.01)


class Table:
    """Prefix scores from a table: target, then the damage to each of two tasks; remembers what was asked."""

    def __init__(self, targets: Sequence[float], damage: Sequence[tuple[float, float]] = (), collapse=()) -> None:
        self.targets, self.damage, self.collapse = targets, damage, collapse
        self.asked: list[int] = []

    def __call__(self, heads: int) -> PrefixScores:
        self.asked.append(heads)
        first, second = self.damage[heads] if self.damage else (0.0, 0.0)
        return PrefixScores(
            self.targets[heads],
            {"facts": 0.9 - first, "story": 0.8 - second},
            self.collapse[heads] if self.collapse else 0.0,
        )


MET = [
    ([1.0, 0.1], 1),
    ([1.0, 0.6, 0.3, 0.14, 0.0], 3),
    ([0.8, 0.5, 0.12], 2),  # .12 of .8 is 15 %: the goal is met when it is reached
    ([1.0, 0.1, 0.9], 1),
]


@pytest.mark.parametrize(("targets", "heads"), MET)
def test_the_smallest_prefix_is_taken_and_nothing_beyond_it_measured(targets: list[float], heads: int) -> None:
    table = Table(targets)
    selection = select(table, len(targets) - 1, CRITERIA)
    assert selection.heads == selection.closest == heads and selection.status == "met"
    assert table.asked == list(range(heads + 1)) == [dose.heads for dose in selection.curve]


def test_a_goal_out_of_reach() -> None:
    table = Table([1.0, 0.7, 0.5, 0.55])
    selection = select(table, 3, CRITERIA)
    assert (selection.heads, selection.status, selection.closest) == (None, "goal-missed", 2)
    assert "50%" in selection.reason and "no further head was found" in selection.reason


def test_too_much_damage_is_another_reason() -> None:
    selection = select(Table([1.0, 0.5, 0.1, 0.0, 0.0], [(0, 0), (0, 0), (0.03, 0), (0.1, 0), (0.2, 0)]), 4, CRITERIA)
    assert (selection.heads, selection.status, selection.closest) == (None, "too-much-damage", 2)
    assert "facts loses 3.0 points" in selection.reason


def test_the_mean_has_a_budget_of_its_own() -> None:
    fine = select(Table([1.0, 0.1], [(0, 0), (0.02, 0.0)]), 1, CRITERIA)
    spread = select(Table([1.0, 0.1], [(0, 0), (0.015, 0.015)]), 1, CRITERIA)
    assert fine.status == "met" and spread.status == "too-much-damage"


def test_a_later_head_may_bring_a_task_back() -> None:
    table = Table([1.0, 0.1, 0.1, 0.1, 0.1], [(0, 0), (0.05, 0), (0.03, 0), (0, 0), (0, 0)])
    assert select(table, 4, CRITERIA).heads == 3
    hopeless = Table([1.0] + [0.1] * 8, [(0, 0)] + [(0.05, 0)] * 8)
    assert select(hopeless, 8, CRITERIA).status == "too-much-damage" and hopeless.asked == [0, 1, 2, 3]


def test_collapse_is_not_removal() -> None:
    collapsing = Table([1.0, 0.0, 0.0], collapse=[0.0, 0.9, 0.05])
    assert select(collapsing, 2, CRITERIA).heads == 2
    already = Table([0.5, 0.0], collapse=[0.3, 0.3])
    assert select(already, 1, CRITERIA).heads == 1


@pytest.mark.parametrize(("heads", "most"), [(30, 4), (30, 10), (2, 10)])
def test_never_more_heads_than_allowed(heads: int, most: int) -> None:
    table = Table([1.0] * 31)
    selection = select(table, heads, CRITERIA, most=most)
    assert selection.status == "goal-missed" and max(table.asked) == min(heads, most)


def test_no_heads_or_no_capability_is_a_missed_goal() -> None:
    assert select(Table([1.0]), 0, CRITERIA).status == "goal-missed"
    assert select(Table([0.0, 0.0]), 1, CRITERIA).status == "goal-missed"
