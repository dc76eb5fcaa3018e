"""Who runs: every localizer with the settings that are compared, and how one run is scored.

CONTESTANTS[3].name == "css, 0/1, the paper's search over 12 settings"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.worlds import CONTROLS, World
from editkit.evidence.localization import Ranking
from editkit.localizers import LOCALIZERS
from editkit.localizers.adaptive import auto
from editkit.localizers.universal import universal

GRID = ((100, 200, 400), (0.01, 0.02, 0.05, 0.1))
"""Twelve settings: 2800 masks as the paper measures them, 1600 when the settings of one sparsity share their masks."""
PRIOR_COST = 4 * 3 * 0.32
"""Four points on the path, three passes each, 32 of 100 examples: what the package's own prior costs."""


@dataclass(frozen=True)
class Contestant:
    """A row of the table. ``run`` gets the world and the candidates and returns a ranking with its full cost."""

    name: str
    run: Callable[[World, np.ndarray, np.random.Generator], Ranking]
    extra: Callable[[int], float] = lambda heads: 0.0
    finds_universals: bool = False


def _with(method: str, scores: str, **options) -> Callable[[World, np.ndarray, np.random.Generator], Ranking]:
    def run(planted: World, columns: np.ndarray, rng: np.random.Generator) -> Ranking:
        return LOCALIZERS[method](getattr(planted, scores), columns, rng, **options)  # type: ignore[call-arg]

    return run


def _auto(planted: World, columns: np.ndarray, rng: np.random.Generator, *, prior: bool, confirm: bool) -> Ranking:
    return auto(
        planted.continuous,
        columns,
        rng,
        prior=(lambda: (planted.guesses, PRIOR_COST)) if prior else None,
        confirm=planted.binary if confirm else None,
    )


def unshared(heads: int) -> float:
    """What the grid costs beyond ours where each setting measures masks of its own, as published."""
    return len(GRID[1]) * (sum(GRID[0]) - max(GRID[0]))


BARE = {"confirm": 0}
PAPER = "css, 0/1, the paper's search over 12 settings"
EXHAUSTIVE = "one-shot, continuous"
CONTESTANTS = (
    Contestant("greedy (5 rounds), continuous", _with("greedy", "continuous")),
    Contestant(EXHAUSTIVE, _with("one-shot", "continuous")),
    Contestant("one-shot, 0/1", _with("one-shot", "binary")),
    Contestant(PAPER, _with("css", "binary", search=True, grid=GRID, **BARE), unshared),
    Contestant("csb, 0/1, the same search", _with("csb", "binary", search=True, grid=GRID, **BARE), unshared),
    Contestant("css, 0/1, M=100 p=.02 (one setting)", _with("css", "binary", masks=100, sparsity=0.02, **BARE)),
    Contestant("css, 0/1, M=200 p=.05", _with("css", "binary", masks=200, sparsity=0.05, **BARE)),
    Contestant("css, 0/1, M=400 p=.05", _with("css", "binary", masks=400, sparsity=0.05, **BARE)),
    Contestant("css, 0/1, M=400 p=.05, alpha cv", _with("css", "binary", masks=400, alpha="cv", **BARE)),
    Contestant("css, 0/1, M=200 p=.05, OMP", _with("css", "binary", masks=200, alpha="omp", **BARE)),
    Contestant("css, continuous, M=200 p=.05", _with("css", "continuous", masks=200, sparsity=0.05, **BARE)),
    Contestant("halving, continuous, 3 examples first", _with("halving", "continuous", first=3)),
    Contestant("halving, continuous", _with("halving", "continuous")),
    Contestant("**auto**, no gradients", partial(_auto, prior=False, confirm=False), finds_universals=True),
    Contestant("**auto**, with a prior", partial(_auto, prior=True, confirm=False), finds_universals=True),
    Contestant(
        "**auto**, no gradients, confirmed by answers", partial(_auto, prior=False, confirm=True), finds_universals=True
    ),
    Contestant(
        "**auto**, with a prior, confirmed by answers", partial(_auto, prior=True, confirm=True), finds_universals=True
    ),
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
