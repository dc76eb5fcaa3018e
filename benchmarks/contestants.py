"""Who runs: every localizer with the settings that are compared, and how one run is scored.

CONTESTANTS[3].name == "css, 0/1, the paper's search over 12 settings"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.worlds import CONTROLS, World
from editkit.localizers import LOCALIZERS
from editkit.localizers.adaptive import auto
from editkit.localizers.compressed import Sensing
from editkit.localizers.protocol import Ranking
from editkit.localizers.regression import Alpha
from editkit.localizers.universal import universal

GRID = Sensing((100, 200, 400), (0.01, 0.02, 0.05, 0.1), confirm=0)
"""Twelve settings: 2800 masks as the paper measures them, 1600 when the settings of one sparsity share their masks."""
PRIOR_COST = 4 * 3 * 0.32
"""Four points on the path, three passes each, 32 of 100 examples: what the package's own prior costs."""


Run = Callable[[World, np.ndarray, np.random.Generator], Ranking]


@dataclass(frozen=True)
class Contestant:
    """A row of the table. ``run`` gets the world and the candidates and returns a ranking with its full cost."""

    name: str
    run: Run
    extra: Callable[[int], float] = lambda heads: 0.0
    finds_universals: bool = False


def _with(method: str, scores: str, **options: Any) -> Run:
    """One of ``LOCALIZERS`` on the world's ``continuous`` or ``binary`` scores."""

    def run(planted: World, columns: np.ndarray, rng: np.random.Generator) -> Ranking:
        return LOCALIZERS[method](getattr(planted, scores), columns, rng, **options)

    return run


def _auto(planted: World, columns: np.ndarray, rng: np.random.Generator, *, prior: bool) -> Ranking:
    return auto(planted.continuous, columns, rng, prior=(lambda: (planted.guesses, PRIOR_COST)) if prior else None)


def _bare(masks: int, sparsity: float = 0.05, alpha: Alpha = 0.01) -> Sensing:
    """One setting, without knockouts of single heads afterwards."""
    return Sensing((masks,), (sparsity,), alpha=alpha, confirm=0)


def unshared(heads: int) -> float:
    """What the grid costs beyond ours where each setting measures masks of its own, as published."""
    return len(GRID.sparsity) * (sum(GRID.masks) - max(GRID.masks))


PAPER = "css, 0/1, the paper's search over 12 settings"
EXHAUSTIVE = "one-shot, continuous"
CONTESTANTS = (
    Contestant("greedy (5 rounds), continuous", _with("greedy", "continuous")),
    Contestant(EXHAUSTIVE, _with("one-shot", "continuous")),
    Contestant("one-shot, 0/1", _with("one-shot", "binary")),
    Contestant(PAPER, _with("css", "binary", settings=GRID), unshared),
    Contestant("csb, 0/1, the same search", _with("csb", "binary", settings=GRID), unshared),
    Contestant("css, 0/1, M=100 p=.02 (one setting)", _with("css", "binary", settings=_bare(100, sparsity=0.02))),
    Contestant("css, 0/1, M=200 p=.05", _with("css", "binary", settings=_bare(200))),
    Contestant("css, 0/1, M=400 p=.05", _with("css", "binary", settings=_bare(400))),
    Contestant("css, 0/1, M=400 p=.05, alpha cv", _with("css", "binary", settings=_bare(400, alpha="cv"))),
    Contestant("css, 0/1, M=200 p=.05, OMP", _with("css", "binary", settings=_bare(200, alpha="omp"))),
    Contestant("css, continuous, M=200 p=.05", _with("css", "continuous", settings=_bare(200))),
    Contestant("halving, continuous, 3 examples first", _with("halving", "continuous", first=3)),
    Contestant("halving, continuous", _with("halving", "continuous")),
    Contestant("**auto**, no gradients", partial(_auto, prior=False), finds_universals=True),
    Contestant("**auto**, with a prior", partial(_auto, prior=True), finds_universals=True),
)


def measure_one(contestant: Contestant, worlds: list[World]) -> np.ndarray:
    """float[seeds, 3]: evaluations, recall at 5, accuracy drop of the five against that of the needed five."""
    results = []
    for seed, planted in enumerate(worlds):
        heads, rng = planted.continuous.units, np.random.default_rng(seed)
        aside, cost = planted.universals, contestant.extra(heads)
        if contestant.finds_universals:  # the others are told, free of charge
            found = universal(planted.controls, CONTROLS, np.arange(heads), rng, per=planted.continuous.examples)
            aside, cost = found.columns, found.evaluations
        ranking = contestant.run(planted, np.setdiff1d(np.arange(heads), aside), rng)
        five = ranking.columns[ranking.columns != planted.backup][:5]  # the backup is a right answer, but not asked for
        masks = np.zeros((3, heads), dtype=bool)
        masks[1, five] = masks[2, planted.needed] = True
        before, ours, best = planted.binary(masks).mean(1)
        recall = np.isin(planted.needed, five).mean()
        results.append((ranking.evaluations + cost, recall, (before - ours) / max(before - best, 1e-9)))
    return np.array(results)
