"""Which set of units to take out: one that takes the target and spares what is to be kept.

    set_search(drops, damages, candidates=24, budget=Budget(each=.05, mean=.02, units=6))
    -> (drop 0, damage 0), (drop .31, damage .01, units 3), (drop .62, damage .04, units 3, 17), ...

A list sorted by what each unit does to the target leads to units that everything needs; and damage does not add up: two
units that each spare a task may ruin it together. So sets are measured, not units: forward from the empty set, the
strongest set within each of several levels of damage goes on to the next size (a beam without a weight between drop and
damage, which nobody could choose); then backward, unit by unit, and by swaps.

What a set will do is guessed first, as the sum of what its parts do, so that few sets are measured; and the retained
tasks, which are most of the cost, are asked only about the sets that took the target furthest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from editkit.localizers.masks import of_sets

Measured = Callable[[np.ndarray], np.ndarray]
"""bool[m, candidates], True = out -> float[m, tasks]: the score lost by each task, in [-1, 1]."""

LEVELS = (0.5, 1.0, 2.0)
"""How much of the budget the sets of the beam may use: half, all, and twice as much, so that the frontier shows what
another budget would buy."""
SLACK = 1.5
"""A set is worth a look if its parts together use no more than this many times a level."""

EVENNESS = 4
"""The power mean over the formats of a target: near the worst format, but a set that takes one of two counts too."""

TRIES, LOOKS = 8, 3
"""Per level and size, on how many sets the target is measured, and on how many of those the retained tasks."""

WORTH = 0.01
"""A unit must take at least so much from the target: what takes less is noise on so few examples."""


@dataclass(frozen=True)
class Budget:
    """What the retained tasks may lose, in score: each of them, and on average; and how many units may go."""

    each: float
    mean: float
    units: int

    def used(self, damages: np.ndarray) -> float:
        """The share of the budget that ``damages`` (float[retained]) use, up to the next tenth; over 1 is too much."""
        share = max(0.0, float(damages.max()) / self.each, float(damages.mean()) / self.mean)
        return math.ceil(10 * share - 1e-9) / 10  # finer is noise, and units would be taken for it


@dataclass(frozen=True)
class Point:
    """One set of candidates, measured.

    Args:
        units: positions among the candidates, rising.
        drops: the share of its score that each format of the target lost.
        damages: what each retained task lost, in score.
        used: the share of the budget that this is.
    """

    units: tuple[int, ...]
    drops: tuple[float, ...]
    damages: tuple[float, ...]
    used: float

    @property
    def drop(self) -> float:
        """The share lost in the worst format: the one that lost least."""
        return min(self.drops)

    @property
    def gain(self) -> float:
        return gain(np.array(self.drops), len(self.units))


Frontier = tuple[Point, ...]
"""The sets that no other set beats: each drops more, and costs more, than the one before. The first is empty."""


def reach(drops: np.ndarray) -> float:
    """How far a target is taken that loses these shares of its score, float[formats]: 1 = all of it in every format."""
    return 1.0 - float(np.mean(np.maximum(1.0 - drops, 0.0) ** EVENNESS)) ** (1 / EVENNESS)


def gain(drops: np.ndarray, units: int) -> float:
    """``reach``, less what so many candidates must be worth."""
    return reach(drops) - WORTH * units


def set_search(drops: Measured, damages: Measured, candidates: int, budget: Budget) -> Frontier:
    """Search sets of up to ``budget.units`` candidates. Deterministic.

    Args:
        drops: the target, in one format or several, as shares of its score.
        damages: the retained tasks, at least one.
    """
    book = _Book(drops, damages, candidates, budget)
    book.look([(), *((unit,) for unit in range(candidates))])
    beam = _strongest(book.points, LEVELS)
    for _ in range(budget.units - 1):
        grown = [(*point.units, unit) for point, unit in product(beam, range(candidates)) if unit not in point.units]
        beam = _strongest(book.explored(grown), LEVELS)
        if not beam:
            break
    for point in _settled(book, LEVELS):
        book.look(_without_one(point.units))
        book.explored(_swapped(point.units, candidates))
    return _frontier(book.points)


def ordered_search(drops: Measured, damages: Measured, candidates: int, budget: Budget) -> Frontier:
    """Search among candidates whose order already weighs what each gives against what it costs. Deterministic.

    One after another is added where that gains and stays within a level; then what the strongest within the budget can
    do without is left out. Far fewer sets are measured than by ``set_search``: the target first, and the retained tasks
    only where it says that the set is worth it.
    """
    book = _Book(drops, damages, candidates, budget)
    for level in LEVELS:
        [kept] = book.look([()])
        for unit in range(candidates):
            for more in book.better([(*kept.units, unit)], kept):
                kept = more if more.used <= level else kept
    for point in _settled(book, (1.0,)):
        book.better(_without_one(point.units), point)
    return _frontier(book.points)


def _settled(book: _Book, levels: Sequence[float]) -> Iterator[Point]:
    """The strongest within each level, until each has been yielded: the caller looks at their neighbours."""
    settled: set[tuple[int, ...]] = set()
    while fresh := [point for point in _strongest(book.points, levels) if point.units not in settled]:
        settled |= {point.units for point in fresh}
        yield from fresh


class _Book:
    """What has been measured: the drop of every set that was tried, the damage of every set that was looked at."""

    def __init__(self, drops: Measured, damages: Measured, candidates: int, budget: Budget) -> None:
        self.measures = drops, damages
        self.candidates, self.budget = candidates, budget
        self.lost: dict[tuple[int, ...], np.ndarray] = {}
        self.known: dict[tuple[int, ...], Point] = {}
        self.damage: dict[tuple[int, ...], np.ndarray] = {}

    @property
    def points(self) -> list[Point]:
        return list(self.known.values())

    def explored(self, sets: Iterable[Iterable[int]]) -> list[Point]:
        """Of ``sets``, those that promise most within each level are tried, and the best of these are looked at."""
        new = sorted({tuple(sorted(units)) for units in sets})
        guesses = [self._guess(units) for units in new]
        drop, used = np.array([lost for lost, _ in guesses]), np.array([share for _, share in guesses])
        points: dict[tuple[int, ...], Point] = {}
        for level in LEVELS:
            hoped = np.flatnonzero(used <= SLACK * level)
            tried = [new[index] for index in hoped[np.argsort(-drop[hoped], kind="stable")][:TRIES]]
            self.strike(tried)
            tried.sort(key=lambda units: -reach(self.lost[units]))
            points |= {point.units: point for point in self.look(tried[:LOOKS])}
        return list(points.values())

    def _guess(self, units: tuple[int, ...]) -> tuple[float, float]:
        """Drop and share of the budget: what is known of the set without one unit, plus that unit alone; the mean."""
        divisions: list[tuple[tuple[int, ...], ...]] = [
            (rest, (unit,)) for unit, rest in zip(units, _without_one(units), strict=True) if rest in self.known
        ]
        divisions = divisions or [tuple((unit,) for unit in units)]
        drop, damage = (
            np.mean([np.sum([known[subset] for subset in subsets], axis=0) for subsets in divisions], axis=0)
            for known in (self.lost, self.damage)
        )
        return reach(drop), self.budget.used(damage)

    def strike(self, sets: Iterable[tuple[int, ...]]) -> None:
        """Measure what the target loses."""
        new = [units for units in dict.fromkeys(sets) if units not in self.lost]
        if new:
            self.lost |= dict(zip(new, self.measures[0](of_sets(new, self.candidates)), strict=True))

    def look(self, sets: Iterable[tuple[int, ...]]) -> list[Point]:
        """Measure what the target and the retained tasks lose."""
        distinct = list(dict.fromkeys(sets))
        self.strike(distinct)
        new = [units for units in distinct if units not in self.known]
        for units, lost in zip(new, self.measures[1](of_sets(new, self.candidates)) if new else (), strict=True):
            self.damage[units] = lost
            drops = tuple(self.lost[units].tolist())
            self.known[units] = Point(units, drops, tuple(lost.tolist()), self.budget.used(lost))
        return [self.known[units] for units in distinct]

    def better(self, sets: Iterable[tuple[int, ...]], than: Point) -> list[Point]:
        """Of ``sets`` those that gain more, by the target; only these are looked at."""
        distinct = list(dict.fromkeys(sets))
        self.strike(distinct)
        return self.look([units for units in distinct if gain(self.lost[units], len(units)) > than.gain])


def _strongest(points: Sequence[Point], levels: Sequence[float]) -> list[Point]:
    """Within each level the point that drops most, each point once."""
    within = ([point for point in points if point.used <= level] for level in levels)
    return list(dict.fromkeys(max(affordable, key=lambda point: point.gain) for affordable in within if affordable))


def _without_one(units: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return (units[:index] + units[index + 1 :] for index in range(len(units)))


def _swapped(units: tuple[int, ...], candidates: int) -> Iterator[tuple[int, ...]]:
    others = [unit for unit in range(candidates) if unit not in units]
    return ((*rest, other) for rest in _without_one(units) for other in others)


def _frontier(points: Sequence[Point]) -> Frontier:
    """The points that gain more than any that uses as little of the budget, the cheapest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.used, -point.gain, point.units)):
        if not kept or point.gain > kept[-1].gain:
            kept.append(point)
    return tuple(kept)
