"""Sets of units by likelihoods: the frontier of what the target keeps and what retained tasks lose, on ``locate``.

    likelihoods = likelihoods_of(ledger, capability)
    points = search(likelihoods, localization, recipe)
    strongest(points, capability)                            # which of them to try with real answers

Heads are candidates one by one; neurons in order of contrast, in blocks. Each format of the target counts, and each
retained task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.localization import Localization
from editkit.localizers.protocol import Measure
from editkit.localizers.set_search import WORTH, Budget, Measured, ordered_search, reach, set_search
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure
from editkit.removal.capability import Capability
from editkit.removal.find_heads import control_measures, right_answers
from editkit.removal.recipe import Recipe
from editkit.units import Head, Neuron, Unit

BY_EFFECT, BY_CONTRAST, LOOKED_AT = 12, 8, 36
"""Candidates: the first by effect on the target, and as many by target drop minus mean damage among the first 36."""
BESIDE = 3
"""Of heads beside neurons so few are candidates: neurons remove more for less, and each head is many more sets."""
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


def likelihoods_of(ledger: Ledger, capability: Capability) -> Likelihoods:
    limit = capability.recipe.universal_examples
    targets = {task.name: right_answers(ledger, task, limit) for task in capability.targets}
    return Likelihoods(ledger, targets, control_measures(ledger, capability.retain, limit))


def search(likelihoods: Likelihoods, localization: Localization, recipe: Recipe) -> tuple[FrontierPoint, ...]:
    """The frontier by likelihoods, the least damage first."""
    blocks = _blocks(localization)
    heads = _heads(localization, likelihoods.lost, beside=bool(blocks))
    budget, searched = budget_of(recipe), ordered_search if blocks else set_search
    points: list[FrontierPoint] = []
    for groups in dict.fromkeys(((*heads, *blocks), (*blocks, *heads))):  # of both kinds, each may come first
        drops, damages = likelihoods.lost(groups)
        for point in searched(drops, damages, len(groups), budget):
            units = tuple(unit for group in point.units for unit in groups[group])
            points.append(likelihoods.point(units, point.drops, point.damages))
    best = with_parts(likelihoods.left, likelihoods.within(budget), points, [*blocks, *heads], budget)
    return (*points, *([] if best in points else [best]), *likelihoods.points(nested(best.units)))


def budget_of(recipe: Recipe) -> Budget:
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


def _heads(localization: Localization, measures_of: MeasuresOf, *, beside: bool) -> list[Group]:
    """Every candidate among the heads, a group of its own, the best by contrast first.

    Args:
        beside: neurons are candidates too: of the first heads by effect a few that give others less than the target.
    """
    heads = [effect.unit for effect in localization.order if isinstance(effect.unit, Head)]
    ranked: list[Group] = [(head,) for head in heads[: BY_EFFECT if beside else LOOKED_AT]]
    if not ranked:
        return []
    drops, damages = measures_of(ranked)
    alone = np.eye(len(ranked), dtype=bool)
    contrast = drops(alone).min(axis=1) - np.maximum(damages(alone), 0).mean(axis=1)
    chosen = sorted(candidates(len(ranked), contrast), key=lambda at: -contrast[at])
    return [ranked[at] for at in chosen if contrast[at] > 0][:BESIDE] if beside else [ranked[at] for at in chosen]


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
