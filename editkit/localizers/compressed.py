"""Compressed sensing over heads (arXiv 2603.03335): random masks, then sparse regression.

    100 masks of 5 % of the heads each  ->  scores  ->  Lasso  ->  heads in order of their coefficients

``css`` draws stratified masks, ``csb`` Bernoulli masks. Kept for reproduction: with the score of many heads knocked
out at once, the other heads are the noise; ``auto`` finds more at less cost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from editkit.localizers import masks as design
from editkit.localizers.flip_test import weigh
from editkit.localizers.knockouts import Search
from editkit.localizers.protocol import Measure, Ranking
from editkit.localizers.regression import Alpha, Recovery, Target, recover

RESAMPLES = 20


@dataclass(frozen=True)
class Sensing:
    """Settings of css and csb.

    Several values of ``masks`` or ``sparsity`` are the paper's outer loop (Appendix A.1): the setting whose first
    ``heads`` heads lower the score most, knocked out together, wins. Settings of one sparsity share their masks, so
    that the cost is that of the largest M per sparsity.

    Args:
        masks: how many measurements, the paper's M (100 to 400).
        sparsity: the share of heads per mask, the paper's p (0.01 to 0.1).
        alpha: the Lasso penalty, or ``"cv"``, or ``"omp"``.
        target: what is fitted; see ``recover``.
        heads: how many heads the outer loop knocks out.
        confirm: how many of the first heads are then knocked out alone, for intervals and p; 0 is the bare method,
            which has neither and takes every negative coefficient at its word.
    """

    masks: tuple[int, ...] = (200,)
    sparsity: tuple[float, ...] = (0.05,)
    alpha: Alpha = 0.01
    target: Target = "standardise"
    heads: int = 5
    confirm: int = 8


USUAL = Sensing()

Draw = Callable[[int, int, float, np.random.Generator], np.ndarray]
"""(candidates, masks, sparsity, rng) -> bool[masks, candidates]."""


def css(measure: Measure, columns: np.ndarray, rng: np.random.Generator, settings: Sensing = USUAL) -> Ranking:
    """Stratified masks: every head is knocked out equally often."""
    return _sense(measure, columns, rng, design.stratified, settings)


def csb(measure: Measure, columns: np.ndarray, rng: np.random.Generator, settings: Sensing = USUAL) -> Ranking:
    """Bernoulli masks."""
    return _sense(measure, columns, rng, design.bernoulli, settings)


def _sense(measure: Measure, columns: np.ndarray, rng: np.random.Generator, draw: Draw, settings: Sensing) -> Ranking:
    """Measure masks, fit, and order the heads by their coefficients."""
    search = Search.of(measure, columns)
    trials = [trial for share in settings.sparsity for trial in _trials(search, rng, draw, share, settings)]
    best = trials[0] if len(trials) == 1 else _strongest(search, trials, settings.heads)
    report = design.coverage(best.masks)
    if report.warning:
        warnings.warn(report.warning, stacklevel=3)
    ranking = _ranking(search, rng, best, settings)
    again = _fit(search, best.masks, best.scores, settings, validate=True)
    measured = {
        "design": asdict(report),
        "sparsity": best.sparsity,
        "r2": again.r2,
        "r2_out": again.r2_out,
        "alpha": best.fit.alpha,
        "active": best.fit.active,
        "target": settings.target,
        "settings_tried": len(trials),
    }
    return replace(ranking, diagnostics={**measured, **ranking.diagnostics})


@dataclass(frozen=True)
class _Trial:
    """One setting of (M, p): masks bool[M, candidates], their scores float[M], and the fit."""

    masks: np.ndarray
    scores: np.ndarray
    sparsity: float
    fit: Recovery


def _trials(search: Search, rng: np.random.Generator, draw: Draw, sparsity: float, settings: Sensing) -> list[_Trial]:
    """The first M rows of one long design are the design of M masks: each row is measured once for all M."""
    rows = draw(search.candidates, max(settings.masks), sparsity, rng)
    scores = search.scores(rows).mean(1)
    return [
        _Trial(rows[:m], scores[:m], sparsity, _fit(search, rows[:m], scores[:m], settings)) for m in settings.masks
    ]


def _fit(
    search: Search, masks: np.ndarray, scores: np.ndarray, settings: Sensing, *, validate: bool = False
) -> Recovery:
    baseline = float(search.before.mean())
    return recover(masks, scores, baseline, alpha=settings.alpha, target=settings.target, validate=validate)


def _strongest(search: Search, trials: list[_Trial], heads: int) -> _Trial:
    first = [np.argsort(trial.fit.effects, kind="stable")[:heads] for trial in trials]
    return trials[int(search.scores(search.masks(first)).mean(1).argmin())]


def _ranking(search: Search, rng: np.random.Generator, best: _Trial, settings: Sensing) -> Ranking:
    """The order is the regression's; the first heads get exact effects beside it."""
    effects, confirm = best.fit.effects, settings.confirm
    order = np.argsort(effects, kind="stable")
    stability = _stability(search, rng, best, order[: max(confirm, settings.heads)], settings)[order]
    numbers = np.full((5, len(order)), np.nan)
    numbers[0], certain = effects[order], bool((effects < 0).any())
    if confirm:
        evidence = weigh(search.alone(order[:confirm]), search.candidates, rng)
        numbers[:, :confirm], certain = evidence.columns, bool(evidence.needed.any())
    numbers[4] = stability  # of the fit, not of the few heads knocked out alone
    coefficients = {int(search.columns[place]): float(effects[place]) for place in order[:20]}
    return Ranking(
        search.columns[order],
        *numbers,
        found=certain,
        evaluations=search.evaluations,
        diagnostics={"coefficients": coefficients},
    )


def _stability(
    search: Search, rng: np.random.Generator, best: _Trial, places: np.ndarray, settings: Sensing
) -> np.ndarray:
    """The share of random halves of the masks in which a head is among the first ``heads``: a report, never a ranking.

    float[candidates], NaN for all but ``places``.
    """
    shares = np.full(search.candidates, np.nan)
    if len(best.scores) < 8:
        return shares
    hits = np.zeros(search.candidates)
    if settings.alpha == "cv":
        settings = replace(settings, alpha=best.fit.alpha)  # the penalty was chosen once, on all masks
    for _ in range(RESAMPLES):
        half = rng.choice(len(best.scores), len(best.scores) // 2, replace=False)
        fit = _fit(search, best.masks[half], best.scores[half], settings)
        first = np.argsort(fit.effects, kind="stable")[: settings.heads]
        hits[first[fit.effects[first] < 0]] += 1
    shares[places] = hits[places] / RESAMPLES
    return shares
