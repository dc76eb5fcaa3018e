"""Sets are found that take the target and spare the rest, where a list of single units leads astray.

If one fails: heads are removed one by one where only together they carry the capability, or spared tasks go with them.
"""

from __future__ import annotations

import numpy as np
import pytest

from editkit.localizers.set_search import Budget, Frontier, Point, ordered_search, set_search
from tests.planted import Planted

UNITS, GENERAL, SPECIFIC = 24, (0, 1), (10, 11, 12)
BUDGET = Budget(each=0.05, mean=0.03, units=5)


class World:
    """A target and retained tasks over the same units, as score lost; what was asked is counted."""

    def __init__(self, target: Planted, retained: list[Planted]) -> None:
        self.target, self.retained, self.asked = target, retained, [0, 0]
        self.before = [part(np.zeros((1, UNITS), dtype=bool)).mean() for part in (target, *retained)]

    def drops(self, masks: np.ndarray) -> np.ndarray:
        self.asked[0] += len(masks)
        return (1 - self.target(masks).mean(1) / self.before[0])[:, None]

    def damages(self, masks: np.ndarray) -> np.ndarray:
        self.asked[1] += len(masks)
        pairs = zip(self.before[1:], self.retained, strict=True)
        return np.stack([before - part(masks).mean(1) for before, part in pairs], axis=1)

    def search(self, budget: Budget = BUDGET) -> Frontier:
        return set_search(self.drops, self.damages, UNITS, budget)


def best_of(frontier: Frontier, within: float = 1.0) -> Point:
    """The largest drop that uses no more than ``within`` of the budget."""
    return [point for point in frontier if point.used <= within][-1]


def effects(**strengths: float) -> np.ndarray:
    values = np.zeros(UNITS)
    for unit, strength in strengths.items():
        values[int(unit[1:])] = strength
    return values


def a_world(seed: int = 0, **more: object) -> World:
    """Two general units lead the list by what they do to the target; three specific ones do less each."""
    target = Planted(effects(u0=1.3, u1=1.1, u10=0.8, u11=0.7, u12=0.6), seed=seed, **more)  # type: ignore[arg-type]
    kept = [Planted(effects(u0=0.7, u1=0.9), seed=seed + 10 + place) for place in range(4)]
    return World(target, kept)


@pytest.mark.parametrize("seed", range(5))
def test_specific_units_are_taken_and_general_ones_are_not(seed: int) -> None:
    world = a_world(seed)
    best = best_of(world.search())
    assert set(SPECIFIC) <= set(best.units) and not set(best.units) & set(GENERAL)
    assert best.used <= 1 and best.drop > 0.5
    by_effect = np.zeros((1, UNITS), dtype=bool)
    by_effect[0, list(GENERAL)] = True
    assert world.damages(by_effect).max() > 2 * BUDGET.each


def test_units_that_only_together_harm_are_not_taken_together() -> None:
    world = a_world()
    world.retained = [Planted(effects(u0=0.7, u1=0.9), seed=3, pairs=[(10, 11, 1.5)]), *world.retained[1:]]
    world.before[1] = world.retained[0](np.zeros((1, UNITS), dtype=bool)).mean()
    best = best_of(world.search())
    assert not {10, 11} <= set(best.units) and 12 in best.units and best.used <= 1


def test_a_unit_that_others_make_useless_is_dropped_again() -> None:
    target = Planted(effects(u10=1.5, u11=1.4, u12=1.3), noise=0.0, margin=0.5)
    costly = [Planted(effects(u10=0.1, u13=0.3), noise=0.0) for _ in range(3)]
    best = best_of(World(target, costly).search(Budget(0.2, 0.2, 5)))
    assert 13 not in best.units


def test_every_format_of_the_target_must_fall() -> None:
    """Unit 5 carries one format wholly, unit 6 the other; unit 10 carries half of both."""
    formats = [Planted(effects(u5=3.0, u10=0.9), seed=1), Planted(effects(u6=3.0, u10=0.9), seed=2)]
    kept = World(formats[0], [Planted(effects(), seed=3)])
    nothing = np.zeros((1, UNITS), dtype=bool)

    def drops(masks: np.ndarray) -> np.ndarray:
        return np.stack([1 - part(masks).mean(1) / part(nothing).mean() for part in formats], axis=1)

    one = best_of(set_search(drops, kept.damages, UNITS, Budget(0.05, 0.05, 1)))
    assert one.units == (10,)
    two = best_of(set_search(drops, kept.damages, UNITS, Budget(0.05, 0.05, 2)))
    assert two.drop > one.drop


def test_where_nothing_is_affordable_nothing_is_taken_and_the_frontier_says_what_it_would_cost() -> None:
    target = Planted(effects(u0=1.5, u1=1.5), noise=0.0)
    found = World(target, [Planted(effects(u0=1.5, u1=1.5), noise=0.0)]).search(Budget(0.02, 0.01, 4))
    assert best_of(found) == Point((), (0.0,), (0.0,), 0.0)
    assert found[-1].drop > 0.2 and found[-1].used > 2


def test_the_frontier_rises_in_both_and_is_the_same_again() -> None:
    found = a_world().search()
    assert found == a_world().search()
    assert all(a.used < b.used and a.drop < b.drop for a, b in zip(found, found[1:], strict=False))
    drops = [best_of(found, within).drop for within in (0.0, 0.5, 1.0, 2.0)]
    assert drops == sorted(drops)


def test_retained_tasks_are_asked_about_few_sets() -> None:
    world = a_world()
    world.search()
    assert world.asked[0] < UNITS + 160 and world.asked[1] < UNITS + 70


def test_in_the_order_of_contrast_a_costly_block_in_the_middle_is_left_out() -> None:
    """Neurons come in order of contrast; one block of them may still cost what the others do not."""
    order = [10, 11, 0, 12, 20, 21]
    world = a_world()

    def wide(masks: np.ndarray) -> np.ndarray:
        full = np.zeros((len(masks), UNITS), dtype=bool)
        full[:, order] = masks
        return full

    found = ordered_search(
        lambda masks: world.drops(wide(masks)), lambda masks: world.damages(wide(masks)), len(order), BUDGET
    )
    best = best_of(found)
    assert {order[block] for block in best.units} == set(SPECIFIC)
    assert found[0].units == () and world.asked[1] <= 3 * 6 + 6
