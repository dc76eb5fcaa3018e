"""Which heads to remove, as a set: the one that takes the target furthest within the damage budget.

A list by effect on the target is led by heads that everything needs, and damage does not add up. So sets are searched
with likelihoods (``localizers.set_search``), on the target and on every retained task, and the strongest sets of the
frontier are tried with real answers on ``choose``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from editkit.evidence.localization import Localization
from editkit.evidence.verdict import judge
from editkit.localizers.protocol import Measure
from editkit.localizers.set_search import Budget, Measured, Point, set_search
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.removal.capability import Capability
from editkit.removal.choose import Choice, kept
from editkit.removal.find_heads import control_measures
from editkit.removal.trial import trial_of
from editkit.tasks.task import examples_of
from editkit.units import Head

BY_EFFECT, BY_CONTRAST, LOOKED_AT = 12, 8, 36
"""Candidates: the first by effect on the target, and as many by target drop minus mean damage among the first 36."""
SHARE = 0.5
"""The part of the damage budget that the search may use: likelihoods underrate what answers lose."""
TRIED = 6
"""Sets of the frontier that are tried with real answers."""


def choose_set(ledger: Ledger, wanted: Capability, found: Localization, *, seed: int = 0) -> Choice:
    """The strongest set of the frontier that meets the goal within the budget; else the one that takes most."""
    recipe, column = wanted.recipe, ledger.model.architecture.column
    with ledger.stage("Searching sets of heads") as told:
        examples = examples_of(wanted.target, "locate", limit=recipe.universal_examples)
        target = likelihood_measure(told, wanted.target, examples)
        controls = list(control_measures(told, wanted.retain, recipe.universal_examples).values())
        ranked = [effect.unit for effect in found.order if isinstance(effect.unit, Head)][:LOOKED_AT]
        columns = np.array([column[head] for head in ranked])
        drops, damages = lost([target], columns), lost(controls, columns)
        alone = np.eye(len(columns), dtype=bool)
        contrast = drops(alone)[:, 0] - np.maximum(damages(alone), 0).mean(axis=1)
        chosen = candidates(len(columns), contrast)
        budget = Budget(SHARE * recipe.damage.each, SHARE * recipe.damage.mean, recipe.max_heads)
        frontier = set_search(lost([target], columns[chosen]), lost(controls, columns[chosen]), len(chosen), budget)
    sets = [[ranked[chosen[unit]] for unit in point.units] for point in strongest(frontier.points)]
    return _tried(ledger, wanted, sets or [ranked[:1]], seed)


def candidates(heads: int, contrast: np.ndarray) -> list[int]:
    """Positions of the candidates: the first by effect, then the best of the rest by contrast (float[heads])."""
    first = list(range(min(BY_EFFECT, heads)))
    rest = [at for at in np.argsort(-contrast, kind="stable").tolist() if at not in first]
    return first + rest[:BY_CONTRAST]


def lost(measures: Sequence[Measure], columns: np.ndarray) -> Measured:
    """bool[m, candidates] -> float[m, measures]: the mean score that each measure loses.

    Args:
        columns: int[candidates], the candidates' columns in a mask of the model.
    """

    def measured(masks: np.ndarray) -> np.ndarray:
        full = np.zeros((1 + len(masks), measures[0].units), dtype=bool)
        full[1:, columns] = masks
        means = [measure(full).mean(axis=1) for measure in measures]
        return np.stack([mean[0] - mean[1:] for mean in means], axis=1)

    return measured


def strongest(points: Sequence[Point]) -> list[Point]:
    """The points to try, strongest first: within the budget, then those that use up to twice as much."""
    sets = [point for point in points if point.units]
    within = [point for point in sets if point.used <= 1]
    return ([*reversed(within)] + [point for point in sets if point.used > 1])[:TRIED]


def _tried(ledger: Ledger, wanted: Capability, sets: Sequence[Sequence[Head]], seed: int) -> Choice:
    """Real answers on ``choose``, set after set, until one will do.

    No dose curve: it shows the strongest heads one after another, and these sets are none of that.
    """
    trial, rng = trial_of(wanted, split="choose", seed=seed), np.random.default_rng(seed)
    best, least = frozenset(sets[0]), 1.0
    with ledger.stage("Choosing heads") as told:
        before = [trial.sheet(told, task) for task in trial.tasks]
        for heads in sets:
            after = [trial.sheet(told, task, heads) for task in trial.tasks]
            verdict = judge(trial.rows(before, after), trial.criteria)
            if verdict.met:
                return Choice(frozenset(heads), ())
            share, _ = kept(before[0], after[0], rng)
            if verdict.status == "goal-missed" and share < least:
                best, least = frozenset(heads), share
    return Choice(best, ())
