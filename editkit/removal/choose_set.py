"""Which units to remove, as a set: the one that takes the target furthest within the damage budget.

A list by effect on the target is led by heads that everything needs, and damage does not add up. So sets are searched
with likelihoods (``localizers.set_search``), on every format of the target and on every retained task, and the
strongest sets of the frontier are tried with real answers on ``choose``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.localization import Localization
from editkit.evidence.verdict import judge
from editkit.localizers.protocol import Measure
from editkit.localizers.set_search import Budget, Measured, Point, ordered_search, set_search
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure, likelihood_measure
from editkit.removal.capability import Capability
from editkit.removal.choose import Choice, kept
from editkit.removal.find_heads import control_measures
from editkit.removal.trial import Sheet, trial_of
from editkit.tasks.task import examples_of
from editkit.units import Head, Neuron, Unit

BY_EFFECT, BY_CONTRAST, LOOKED_AT = 12, 8, 36
"""Candidates: the first by effect on the target, and as many by target drop minus mean damage among the first 36."""
Group = tuple[Unit, ...]
"""Units that are out together or not at all: one candidate of the search."""
MeasuresOf = Callable[[Sequence[Group]], tuple[Measured, Measured]]
"""Groups -> what the target and what the retained tasks lose under masks over them."""
SHARE = 0.5
"""The part of the damage budget that the search may use: likelihoods underrate what answers lose."""
BLOCKS = (8, 8, 14, 15, 15, 30, 30, 60, 60)
"""Sizes of the blocks of neurons, from the first by contrast on: 8, 16, 30, 45, 60, ... are out."""
TRIED = 6
"""Sets of the frontier that are tried with real answers."""


def choose_set(ledger: Ledger, capability: Capability, localization: Localization, *, seed: int = 0) -> Choice:
    """The strongest set of the frontier that meets the goal within the budget; else the one that takes most."""
    frontier = search(ledger, capability, localization)
    sets = [point for point in frontier if point.units] or [replace(frontier[0], units=localization.top(1))]
    return _tried(ledger, capability, frontier, strongest(sets, capability), seed)


def search(ledger: Ledger, capability: Capability, localization: Localization) -> tuple[FrontierPoint, ...]:
    """The frontier by likelihoods on ``locate``, the least damage first."""
    recipe = capability.recipe
    with ledger.stage("Searching sets") as staged:
        targets = {
            task.name: likelihood_measure(staged, task, examples_of(task, "locate", limit=recipe.universal_examples))
            for task in capability.targets
        }
        controls = control_measures(staged, capability.retain, recipe.universal_examples)

        def measures_of(groups: Sequence[Group]) -> tuple[Measured, Measured]:
            columns, every = tuple(map(ledger.model.architecture.knockout, groups)), np.arange(len(groups))

            def over(measures: Mapping[str, LikelihoodMeasure]) -> dict[str, LikelihoodMeasure]:
                return {name: replace(each, columns=columns) for name, each in measures.items()}

            return lost(over(targets), every, shares=True), lost(over(controls), every)

        groups = [*_heads(localization, measures_of), *_blocks(localization)]
        drops, damages = measures_of(groups)
        budget = Budget(SHARE * recipe.damage.each, SHARE * recipe.damage.mean, recipe.max_heads)
        searched = ordered_search if recipe.units == "neurons" else set_search
        points = searched(drops, damages, len(groups), budget).points

    def shown(point: Point) -> FrontierPoint:
        left = (min(1.0, max(0.0, 1.0 - drop)) for drop in point.drops)
        return FrontierPoint(
            tuple(unit for group in point.units for unit in groups[group]),
            dict(zip(targets, left, strict=True)),
            dict(zip(controls, point.damages, strict=True)),
        )

    return tuple(shown(point) for point in points)


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


def _tried(
    ledger: Ledger,
    capability: Capability,
    frontier: Sequence[FrontierPoint],
    sets: Sequence[FrontierPoint],
    seed: int,
) -> Choice:
    """Real answers on ``choose``, set after set, until one is selective, reaches the goal and puts no retained task
    beyond its budget, be it by chance. Else the best: by its status, then by the points over the budget, then by what
    is left of the target.

    No dose curve: it shows the strongest heads one after another, and these sets are none of that.
    """
    trial = trial_of(capability, split="choose", seed=seed)
    best, least, answered = sets[0], (len(RANKS), 1.0, 1.0), dict[frozenset, FrontierPoint]()
    with ledger.stage("Choosing a set") as staged:
        before = [trial.sheet(staged, task) for task in trial.tasks]
        for point in sets:
            after = [trial.sheet(staged, task, point.units) for task in trial.tasks]
            answered[frozenset(point.units)] = replace(point, answers=_answers(before, after))
            status = judge(trial.rows(before, after), trial.criteria).status
            pairs = list(zip(before, after, strict=True))[: len(capability.targets)]
            losses = [first.mean - second.mean for first, second in zip(before, after, strict=True)][len(pairs) :]
            beyond = max(losses) - capability.recipe.damage.each
            left = max(kept(*pair).share for pair in pairs)
            rank = ranked(status, beyond, left)
            if rank < least:
                best, least = point, rank
            if status in ("met", "reduced") and left <= capability.recipe.goal and beyond <= 1e-9:
                break
    shown = tuple(answered.get(frozenset(point.units), point) for point in frontier)
    return Choice(frozenset(best.units), frontier=shown)


RANKS = {"met": 0, "reduced": 1, "goal-missed": 2, "too-much-damage": 3}
"""The best status first: what does no harm is shown before what does too much."""


def ranked(status: str, beyond: float, left: float) -> tuple[int, float, float]:
    """What sorts sets that were tried, the best first.

    Args:
        beyond: by how much the worst loss of a retained task exceeds its budget; it counts in whole points.
        left: the share of the target that is left, in the format that keeps most.
    """
    return RANKS[status], round(max(0.0, beyond), 2), left


def _answers(before: Sequence[Sheet], after: Sequence[Sheet]) -> dict[str, tuple[float, float]]:
    return {first.task.name: (first.mean, second.mean) for first, second in zip(before, after, strict=True)}
