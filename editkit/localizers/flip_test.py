"""Is a drop real? Paired intervals and p-values corrected for all the heads that could have been picked.

differences = knocked out minus unedited, float[heads, examples], every head on the same examples
Evidence(effect=[-.31, ...], low=[-.38, ...], high=[-.24, ...], p=[.0003, ...], stability=[1.0, ...])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIGNIFICANT = 0.05
DRAWS = 200_000
"""Flipped statistics per test, all heads together: p resolves hypotheses / DRAWS."""
LEAST_DROP = 0.02
"""A smaller drop of the mean score is not called found, however certain: teacher-forced knockouts are almost free
of noise, so that every head of a real model passes a test of "no effect at all"."""
HALVES = 20
"""Random halves of the examples behind a stability."""
Row = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Evidence:
    """Effects of some heads: the paired mean with its 95 % bounds, and one-sided p for "this head is needed".

    ``stability``: the share of random halves of the examples in which the drop stands out.
    """

    effect: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    stability: np.ndarray

    @property
    def needed(self) -> np.ndarray:
        """bool[heads]: a certain drop that also matters."""
        return (self.p < SIGNIFICANT) & (self.effect <= -LEAST_DROP)

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """(effect, low, high, p, stability)."""
        return self.effect, self.low, self.high, self.p, self.stability

    def rows(self) -> list[Row]:
        """(effect, low, high, p, stability) of each head."""
        return list(zip(*(column.tolist() for column in self.columns), strict=True))  # type: ignore[arg-type]


def weigh(differences: np.ndarray, hypotheses: int, rng: np.random.Generator) -> Evidence:
    """Test each head for a drop, corrected for ``hypotheses`` heads.

    Where every hypothesis was measured this is the max-statistic sign-flip permutation, valid under any dependence of
    the heads. Where the heads were picked out of more (by screening on the same examples, say), the flipped
    statistics of the measured heads stand for the others and p is multiplied by ``hypotheses``: valid however the
    heads were picked.

    Args:
        differences: float[heads, examples], paired.
        hypotheses: among how many heads these were chosen, times the number of such looks.
        rng: draws the flips.
    """
    heads, examples = differences.shape
    effect = differences.mean(1)
    margin = _t_quantile(examples) * _standard_error(differences)
    statistic = _statistic(differences)
    null = _flipped(differences, rng)
    if hypotheses <= heads:
        largest = null.max(1)
        p = (1 + (largest[:, None] >= statistic[None] - 1e-12).sum(0)) / (1 + len(largest))
    else:
        pooled = np.sort(null, axis=None)
        p = hypotheses * (1 + _at_least(pooled, statistic)) / (1 + pooled.size)
    again = _stability(differences, rng)
    return Evidence(effect, effect - margin, effect + margin, np.minimum(p, 1.0), again)


def uncorrected(differences: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One-sided p of each head on its own: float[heads, examples] -> float[heads]."""
    pooled = np.sort(_flipped(differences, rng), axis=None)
    return (1 + _at_least(pooled, _statistic(differences))) / (1 + pooled.size)


def stands_out(differences: np.ndarray) -> np.ndarray:
    """bool[heads]: the mean drop is at least two standard errors and matters. The cheap test between stages."""
    return (differences.mean(1) <= -2 * _standard_error(differences)) & (differences.mean(1) <= -LEAST_DROP)


def _stability(differences: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """float[heads], NaN where a half is too small for a standard error. A report, never a ranking."""
    heads, examples = differences.shape
    if examples < 4:
        return np.full(heads, np.nan)
    halves = (rng.permutation(examples)[: examples // 2] for _ in range(HALVES))
    return np.mean([stands_out(differences[:, half]) for half in halves], axis=0)


def _statistic(differences: np.ndarray) -> np.ndarray:
    """Drop over root sum of squares: flips of signs leave the denominator alone, so heads share one scale."""
    size = np.sqrt((differences**2).sum(1))
    return -differences.sum(1) / np.where(size > 0, size, 1.0)


def _at_least(pooled: np.ndarray, statistic: np.ndarray) -> np.ndarray:
    """How many of the sorted null statistics are no smaller; a hair of slack, as sums differ by rounding."""
    return pooled.size - np.searchsorted(pooled, statistic - 1e-12, side="left")


def _flipped(differences: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """float[flips, heads]: the statistics when each example's difference could as well have been its opposite.

    All heads flip together, which keeps their dependence.
    """
    flips = max(2000, DRAWS // len(differences))
    signs = rng.integers(0, 2, (flips, differences.shape[1])) * 2.0 - 1.0
    size = np.sqrt((differences**2).sum(1))
    return signs @ (differences / np.where(size > 0, size, 1.0)[:, None]).T


def _standard_error(differences: np.ndarray) -> np.ndarray:
    examples = differences.shape[1]
    if examples < 2:
        return np.full(len(differences), np.inf)
    return differences.std(1, ddof=1) / np.sqrt(examples)


def _t_quantile(examples: int) -> float:
    if examples < 2:
        return float("inf")
    from scipy.stats import t

    return float(t.ppf(0.975, examples - 1))
