"""Compressed sensing over heads (arXiv 2603.03335): random masks, then sparse regression.

    100 masks of 5 % of the heads each  ->  scores  ->  Lasso  ->  heads in order of their coefficients

``css`` draws stratified masks, ``csb`` Bernoulli masks. Kept for reproduction: with the score of many heads knocked
out at once, the other heads are the noise; ``auto`` finds more at less cost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from editkit.evidence.localization import Measure, Ranking
from editkit.localizers import masks as design
from editkit.localizers.flip_test import weigh
from editkit.localizers.regression import Alpha, Recovery, Target, recover
from editkit.localizers.search import Search

GRID_MASKS = (100, 200, 300, 400)
GRID_SPARSITY = (0.01, 0.02, 0.05, 0.1)
"""The ranges of Appendix A.1; the values inside them are our choice, the paper gives none."""
RESAMPLES = 20
Sampler = Callable[[int, int, float, np.random.Generator], np.ndarray]


def css(measure: Measure, columns: np.ndarray, rng: np.random.Generator, **options: Any) -> Ranking:
    """Stratified masks: every head is knocked out equally often. Options as in ``sense``."""
    return sense(measure, columns, rng, sampler=design.stratified, **options)


def csb(measure: Measure, columns: np.ndarray, rng: np.random.Generator, **options: Any) -> Ranking:
    """Bernoulli masks. Options as in ``sense``."""
    return sense(measure, columns, rng, sampler=design.bernoulli, **options)


def sense(
    measure: Measure,
    columns: np.ndarray,
    rng: np.random.Generator,
    *,
    sampler: Sampler = design.stratified,
    masks: int = 200,
    sparsity: float = 0.05,
    alpha: Alpha = 0.01,
    target: Target = "standardise",
    search: bool = False,
    grid: tuple[tuple[int, ...], tuple[float, ...]] = (GRID_MASKS, GRID_SPARSITY),
    heads: int = 5,
    confirm: int = 8,
) -> Ranking:
    """Measure masks, fit, and order the heads by their coefficients.

    Args:
        sampler: ``design.stratified`` or ``design.bernoulli``.
        masks: how many measurements, the paper's M (100 to 400).
        sparsity: the share of heads per mask, the paper's p (0.01 to 0.1).
        alpha: the Lasso penalty, or ``"cv"``, or ``"omp"``.
        target: what is fitted; see ``recover``.
        search: run the paper's outer loop (Appendix A.1) over ``grid`` instead of one setting: the setting whose first
            ``heads`` heads lower the score most, knocked out together, wins. Settings of one sparsity share their
            masks, so the cost is that of the largest M per sparsity.
        grid: the values of M and p to search.
        heads: how many heads the outer loop knocks out.
        confirm: how many of the first heads are then knocked out alone, for intervals and p; 0 is the bare method,
            which has neither and takes every negative coefficient at its word.
    """
    task = Search(measure, columns)
    baseline = float(task.unedited.mean())
    settings = grid if search else ((masks,), (sparsity,))
    trials = [
        trial
        for share in settings[1]
        for trial in _trials(task, rng, sampler, settings[0], share, alpha=alpha, target=target)
    ]
    best = _strongest(task, trials, heads) if len(trials) > 1 else trials[0]
    final = recover(best.design, best.scores, baseline, alpha=alpha, target=target)
    report = design.coverage(best.design)
    if report.warning:
        warnings.warn(report.warning, stacklevel=3)
    order = np.argsort(best.fit.effects, kind="stable")
    stability = _stability(task, best, order[: max(confirm, heads)], rng, heads, alpha=alpha, target=target)
    return _ranking(task, rng, best, order, confirm, stability, diagnostics={
        "design": asdict(report),
        "sparsity": best.sparsity,
        "r2": final.r2,
        "r2_out": final.r2_out,
        "alpha": best.fit.alpha,
        "active": best.fit.active,
        "target": target,
        "settings_tried": len(trials),
    })  # fmt: skip


class _Trial:
    """One setting of (M, p): its design, scores and fit."""

    def __init__(self, rows: np.ndarray, scores: np.ndarray, sparsity: float, fit: Recovery) -> None:
        self.design, self.scores, self.sparsity, self.fit = rows, scores, sparsity, fit


def _trials(
    task: Search,
    rng: np.random.Generator,
    sampler: Sampler,
    counts: tuple[int, ...],
    sparsity: float,
    *,
    alpha: Alpha,
    target: Target,
) -> list[_Trial]:
    """The first M rows of one long design are the design of M masks: each row is measured once for all M."""
    rows = sampler(task.candidates, max(counts), sparsity, rng)
    scores = task.scores(rows).mean(1)
    options: dict[str, Any] = {"alpha": alpha, "target": target, "validate": False}
    baseline = float(task.unedited.mean())
    return [_Trial(rows[:m], scores[:m], sparsity, recover(rows[:m], scores[:m], baseline, **options)) for m in counts]


def _strongest(task: Search, trials: list[_Trial], heads: int) -> _Trial:
    together = np.zeros((len(trials), task.candidates), dtype=bool)
    for row, trial in zip(together, trials, strict=True):
        row[np.argsort(trial.fit.effects, kind="stable")[:heads]] = True
    return trials[int(task.scores(together).mean(1).argmin())]


def _ranking(
    task: Search,
    rng: np.random.Generator,
    best: _Trial,
    order: np.ndarray,
    confirm: int,
    stability: np.ndarray,
    *,
    diagnostics: dict[str, Any],
) -> Ranking:
    """The order stays the regression's; the first heads get exact effects beside it."""
    effect = best.fit.effects[order].astype(float)
    low, high, p = (np.full(len(order), np.nan) for _ in range(3))
    diagnostics["coefficients"] = {int(task.columns[place]): float(best.fit.effects[place]) for place in order[:20]}
    found = bool((best.fit.effects < 0).any())
    if confirm:
        first = order[:confirm]
        evidence = weigh(task.alone(first), task.candidates, rng)
        effect[: len(first)], low[: len(first)] = evidence.effect, evidence.low
        high[: len(first)], p[: len(first)] = evidence.high, evidence.p
        found = bool(evidence.needed.any())
    return Ranking(task.columns[order], effect, low, high, p, stability[order], found, task.evaluations, diagnostics)


def _stability(
    task: Search,
    best: _Trial,
    places: np.ndarray,
    rng: np.random.Generator,
    heads: int,
    *,
    alpha: Alpha,
    target: Target,
) -> np.ndarray:
    """In what share of random halves of the masks a head is among the first ``heads``: a report, never a ranking.

    float[candidates], NaN for all but ``places``.
    """
    shares = np.full(task.candidates, np.nan)
    if len(best.scores) < 8:
        return shares
    hits, baseline = np.zeros(task.candidates), float(task.unedited.mean())
    fixed = best.fit.alpha if alpha == "cv" else alpha  # the penalty was chosen once, on all masks
    for _ in range(RESAMPLES):
        half = rng.choice(len(best.scores), len(best.scores) // 2, replace=False)
        fit = recover(best.design[half], best.scores[half], baseline, alpha=fixed, target=target, validate=False)
        first = np.argsort(fit.effects, kind="stable")[:heads]
        hits[first[fit.effects[first] < 0]] += 1
    shares[places] = hits[places] / RESAMPLES
    return shares
