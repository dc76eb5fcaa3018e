"""Which units to remove, as a set: the one that takes the target furthest within the damage budget.

A list by effect on the target is led by heads that everything needs, and damage does not add up. So sets are searched
with likelihoods (``localizers.set_search``), on every format of the target and on every retained task, and the
strongest sets of the frontier are tried with real answers on ``choose``, beside random sets of the same layers: some
layers can spare no heads, whichever they are. Likelihoods underrate what answers lose: where the best set of neurons
still costs a retained task more than half its budget, the neurons that task depends on most are left out of it, and
what remains is tried too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.localization import Localization
from editkit.evidence.verdict import FEWEST_SETS, judge
from editkit.localizers.protocol import Measure
from editkit.localizers.set_search import WORTH, Budget, Measured, ordered_search, reach, set_search
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure
from editkit.removal.capability import Capability
from editkit.removal.choose import Choice, kept
from editkit.removal.find_heads import control_measures, right_answers
from editkit.removal.find_neurons import ATTRIBUTED
from editkit.removal.harden import harden
from editkit.removal.random_sets import Draw, random_heads
from editkit.removal.recipe import Recipe
from editkit.removal.spare import smaller_sets
from editkit.removal.trial import Sheet, Trial, trial_of
from editkit.tasks.task import Task
from editkit.units import Head, Neuron, Unit

BY_EFFECT, BY_CONTRAST, LOOKED_AT = 12, 8, 36
"""Candidates: the first by effect on the target, and as many by target drop minus mean damage among the first 36."""
Group = tuple[Unit, ...]
"""Units that are out together or not at all: one candidate of the search."""
Within = Callable[[Group, FrontierPoint], FrontierPoint | None]
"""Measures a set: a point, or None where it costs too much. Beside another, whose costs say what to ask first."""
MeasuresOf = Callable[[Sequence[Group]], tuple[Measured, Measured]]
"""Groups -> what the target and what the retained tasks lose under masks over them."""
SHARE = 0.5
"""The part of the damage budget that the search may use: likelihoods underrate what answers lose."""
BLOCKS = (8, 8, 14, 15, 15, 30, 30, 60, 60)
"""Sizes of the blocks of neurons, from the first by contrast on: 8, 16, 30, 45, 60, ... are out."""
FEWEST = 4
"""A block that costs too much is halved down to so many neurons: one that another task needs keeps no others in."""
SMALL = 30
"""No smaller part of a set of neurons is tried for its own sake."""
TRIED = 6
"""Sets of the frontier that are tried with real answers."""
SPARED = 2
"""How many retained tasks a set beyond its budget is made smaller for."""


@dataclass(frozen=True)
class Likelihoods:
    """What the target and the retained tasks lose in likelihood, on ``locate``."""

    ledger: Ledger
    targets: Mapping[str, LikelihoodMeasure]
    controls: Mapping[str, LikelihoodMeasure]

    def lost(self, groups: Sequence[Group]) -> tuple[Measured, Measured]:
        """What is lost under masks over ``groups``: by the target, as shares of its score; by the retained tasks."""
        columns, every = tuple(map(self.ledger.model.architecture.knockout, groups)), np.arange(len(groups))

        def over(measures: Mapping[str, LikelihoodMeasure]) -> dict[str, LikelihoodMeasure]:
            return {name: replace(each, columns=columns) for name, each in measures.items()}

        return lost(over(self.targets), every, shares=True), lost(over(self.controls), every)

    def left(self, units: Group) -> tuple[float, ...]:
        """The share of each format of the target that is left."""
        [column] = self.ledger.knockout(units)
        over = {name: replace(each, columns=(column,)) for name, each in self.targets.items()}
        [drops] = lost(over, np.arange(1), shares=True)(np.ones((1, 1), dtype=bool))
        return tuple(min(1.0, max(0.0, 1.0 - float(drop))) for drop in drops)

    def points(self, sets: Sequence[Group]) -> list[FrontierPoint]:
        """Each of ``sets``, measured."""
        drops, damages = self.lost(sets)
        each = np.eye(len(sets), dtype=bool)
        return [self.point(*row) for row in zip(sets, drops(each), damages(each), strict=True)] if sets else []

    def within(self, budget: Budget) -> Within:
        """Measures a set until a retained task loses more than it may, the one that lost most before first."""

        def measured(units: Group, before: FrontierPoint) -> FrontierPoint | None:
            for name in sorted(self.controls, key=lambda name: -before.lost[name]):
                damages = replace(self, controls={name: self.controls[name]}).lost([units])[1]
                if damages(np.ones((1, 1), dtype=bool)).item() > budget.each + 1e-9:
                    return None
            [point] = self.points([units])  # from the store
            return point if budget.used(np.array(list(point.lost.values()))) <= 1 else None

        return measured

    def point(self, units: Group, drops: Sequence[float], damages: Sequence[float]) -> FrontierPoint:
        """A set that was measured."""
        left = [min(1.0, max(0.0, 1.0 - float(drop))) for drop in drops]
        lost = map(float, damages)
        return FrontierPoint(
            units, dict(zip(self.targets, left, strict=True)), dict(zip(self.controls, lost, strict=True))
        )


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


def choose_set(ledger: Ledger, capability: Capability, localization: Localization, *, seed: int = 0) -> Choice:
    """Real answers to the strongest sets of the frontier, one after another, until one is good.

    Where all that reach the goal cost a retained task more than half its budget, the cheapest is made smaller. Then the
    best of all is taken: by its status, then by the points over the budget, then by what is left of the target. Where
    the recipe hardens, it is the start of larger sets; the largest that costs the others no more is taken.

    No dose curve: it shows the strongest heads one after another, and these sets are none of that.
    """
    recipe = capability.recipe
    with ledger.stage("Searching sets") as staged:
        likelihoods = _likelihoods(staged, capability)
        frontier = search(likelihoods, localization, recipe)
    sets = [point for point in frontier if point.units] or [replace(frontier[0], units=localization.top(1))]
    trial, tried = trial_of(capability, split="choose", seed=seed), list[Tried]()
    with ledger.stage("Choosing a set") as staged:
        attempt = _Attempt(staged, trial, capability, localization.universal, seed)
        for point in strongest(sets, capability):
            tried.append(attempt.tried(point, _cheapest(tried, recipe)))
            if tried[-1].good:
                tried[-1] = attempt.compared(tried[-1])
            if tried[-1].good:
                break
        for _ in range(SPARED):
            nearest = _cheapest(tried, recipe)
            if nearest is None or nearest.cheap:
                break
            examples = max(ATTRIBUTED, recipe.universal_examples)
            smaller = smaller_sets(staged, nearest.worst, nearest.point.units, examples=examples)
            for point in likelihoods.points(smaller):
                tried.append(attempt.tried(point, _cheapest(tried, recipe)))
        while not (best := min(tried, key=lambda each: each.rank)).compared:
            tried[tried.index(best)] = attempt.compared(best)
    hardening = None
    if recipe.harden and best.status == "met":
        within, start = likelihoods.within(_budget(recipe)), best.point

        def affordable(units: Group) -> bool:
            return within(units, start) is not None

        hardened = harden(ledger, capability, start.units, affordable, seed=seed)
        hardening = hardened.hardening
        with ledger.stage("Choosing a hardened set") as staged:
            attempt = _Attempt(staged, trial, capability, localization.universal, seed)
            for units in reversed(hardened.sets):
                [point] = likelihoods.points([units])
                tried.append(attempt.compared(attempt.tried(point, best)))
                if tried[-1].rank[:COSTS] <= best.rank[:COSTS]:
                    best = tried[-1]
                    break
    answered = {frozenset(each.point.units): each.point for each in tried}
    rest = [point for point in frontier if frozenset(point.units) not in answered]
    shown = sorted(
        [*rest, *answered.values()], key=lambda point: (point.worst, point.mean) if point.units else (-1.0, 0.0)
    )
    return Choice(frozenset(best.point.units), frontier=tuple(shown), hardening=hardening)


def _cheapest(tried: Sequence[Tried], recipe: Recipe) -> Tried | None:
    """Of the sets that reach the goal, the one whose worst loss is least."""
    reached = [each for each in tried if each.left <= recipe.goal]
    return min(reached, key=lambda each: each.lost) if reached else None


def search(likelihoods: Likelihoods, localization: Localization, recipe: Recipe) -> tuple[FrontierPoint, ...]:
    """The frontier by likelihoods, the least damage first."""
    groups = [*_heads(localization, likelihoods.lost), *_blocks(localization)]
    drops, damages = likelihoods.lost(groups)
    budget = _budget(recipe)
    searched = ordered_search if recipe.units == "neurons" else set_search
    points = [
        likelihoods.point(tuple(unit for group in point.units for unit in groups[group]), point.drops, point.damages)
        for point in searched(drops, damages, len(groups), budget)
    ]
    best = with_parts(likelihoods.left, likelihoods.within(budget), points, groups, budget)
    return (*points, *([] if best in points else [best]), *likelihoods.points(nested(best.units)))


def _budget(recipe: Recipe) -> Budget:
    return Budget(SHARE * recipe.damage.each, SHARE * recipe.damage.mean, recipe.max_heads)


def nested(units: Group) -> list[Group]:
    """The first of many neurons alone, two thirds of the set before each time: what a large set costs in answers hardly
    shows in likelihoods, so that smaller ones are tried too. None of heads."""
    heads, neurons = (tuple(unit for unit in units if isinstance(unit, kind)) for kind in (Head, Neuron))
    sizes = [len(neurons) * 2**power // 3**power for power in range(1, TRIED)]
    return [(*heads, *neurons[:size]) for size in sizes if size >= SMALL]


def with_parts(
    left: Callable[[Group], Sequence[float]],
    within: Within,
    points: Sequence[FrontierPoint],
    groups: Sequence[Group],
    budget: Budget,
) -> FrontierPoint:
    """The strongest of ``points`` within the budget, with parts of the blocks that cost too much as a whole.

    Args:
        left: the share of each format of the target that is left without a set, which costs little to measure.
        within: a set as a point, measured beside the one before it; None where it is not within the budget.
        points: the empty set among them.
    """

    def affordable(point: FrontierPoint) -> bool:
        return budget.used(np.array(list(point.lost.values()))) <= 1.0

    def gain(point: FrontierPoint) -> float:
        return reach(1.0 - np.array(list(point.kept.values())))

    def grown(point: FrontierPoint, group: Group) -> FrontierPoint:
        units = (*point.units, *group)
        if reach(1.0 - np.array(left(units))) <= gain(point) + WORTH:
            return point
        more = within(units, point)
        if more is not None:
            return more
        if len(group) > FEWEST:
            for part in (group[: len(group) // 2], group[len(group) // 2 :]):
                point = grown(point, part)
        return point

    best = max(filter(affordable, points), key=gain)
    for group in groups:
        if len(group) > 1 and not set(group) <= set(best.units):
            best = grown(best, group)
    return best


def _likelihoods(ledger: Ledger, capability: Capability) -> Likelihoods:
    limit = capability.recipe.universal_examples
    targets = {task.name: right_answers(ledger, task, limit) for task in capability.targets}
    return Likelihoods(ledger, targets, control_measures(ledger, capability.retain, limit))


def _heads(localization: Localization, measures_of: MeasuresOf) -> list[Group]:
    """Every candidate among the heads, a group of its own."""
    heads = [effect.unit for effect in localization.order if isinstance(effect.unit, Head)]
    ranked: list[Group] = [(head,) for head in heads[:LOOKED_AT]]
    if not ranked:
        return []
    drops, damages = measures_of(ranked)
    alone = np.eye(len(ranked), dtype=bool)
    contrast = drops(alone).min(axis=1) - np.maximum(damages(alone), 0).mean(axis=1)
    return [ranked[at] for at in candidates(len(ranked), contrast)]


def _blocks(localization: Localization) -> list[Group]:
    """The neurons in order of contrast, in blocks: a set is made of blocks, mostly the first."""
    neurons = [effect.unit for effect in localization.order if isinstance(effect.unit, Neuron)]
    edges = np.cumsum([0, *BLOCKS])
    return [tuple(neurons[start:end]) for start, end in pairwise(edges.tolist()) if start < len(neurons)]


def candidates(heads: int, contrast: np.ndarray) -> list[int]:
    """Positions of the candidates: the first by effect, then the best of the rest by contrast (float[heads])."""
    first = list(range(min(BY_EFFECT, heads)))
    rest = [at for at in np.argsort(-contrast, kind="stable").tolist() if at not in first]
    return first + rest[:BY_CONTRAST]


def lost(measures: Mapping[str, Measure], columns: np.ndarray, *, shares: bool = False) -> Measured:
    """bool[m, candidates] -> float[m, measures]: the mean score that each measure loses.

    Args:
        columns: int[candidates], the candidates' columns in a mask of the model.
        shares: as a share of the unedited model's score.
    """

    def measured(masks: np.ndarray) -> np.ndarray:
        units = next(iter(measures.values())).units
        full = np.zeros((1 + len(masks), units), dtype=bool)
        full[1:, columns] = masks
        means = np.stack([measure(full).mean(axis=1) for measure in measures.values()], axis=1)
        return (means[0] - means[1:]) / (np.maximum(means[0], 1e-9) if shares else 1.0)

    return measured


def strongest(points: Sequence[FrontierPoint], capability: Capability) -> list[FrontierPoint]:
    """The points to try: within the search's share of the budget strongest first, then those beyond, cheapest first."""
    damage = capability.recipe.damage
    within = [point for point in points if point.worst <= SHARE * damage.each and point.mean <= SHARE * damage.mean]
    beyond = [point for point in points if point not in within]
    return [*sorted(within, key=lambda point: point.left), *beyond][:TRIED]


class _Attempt:
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


COSTS = 3
"""So many of the first numbers that ``ranked`` gives to a set that meets the goal say what it costs the others."""
RANKS = {"met": 0, "reduced": 1, "goal-missed": 2, "too-much-damage": 3}
"""The best status first: what does no harm is shown before what does too much."""


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
