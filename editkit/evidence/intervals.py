"""Bounds of a mean score, and of its paired change: never of zero width, and wide enough where there is little to see.

    change_interval([1, 1, 0, 1], [0, 1, 0, 0], rng=rng)   ->   Interval(mean=-0.5, low=-0.93, high=0.26)

The bootstrap of a sample without variance is a point, as if a hundred right answers proved that no wrong one exists.
So 0/1 scores use closed forms that stay honest at the edge (Wilson for one arm, Bonett and Price for a paired
change), and other scores without variance are treated as the 0/1 sample of the same mean, which is the widest sample
that scores in [0, 1] allow. Where a clustered 0/1 sample varies, the interval is the hull of the clustered and the
closed form; where it does not, the closed form over examples stands alone, because a sample without variance carries
no trace of clustering (the practice of survey statistics: Korn and Graubard 1998).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from editkit.evidence.samples import Labels, Numbers, by_cluster, checked, is_binary, is_flat, paired

RESAMPLES = 4000
CONFIDENCE = 0.975  # the upper point of a two-sided 95 % interval
Z = NormalDist().inv_cdf(CONFIDENCE)
FEW = 20
"""Below this many clusters a bootstrap is too narrow: Student's t with cluster-robust variance takes its place."""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % bounds."""

    mean: float
    low: float
    high: float


def mean_interval(values: Numbers, *, rng: np.random.Generator, clusters: Labels | None = None) -> Interval:
    """The mean score of one arm: Wilson for 0/1 scores, else BCa bootstrap (t below ``FEW`` clusters).

    Args:
        values: scores in [0, 1], one per example.
        clusters: one label per example; examples with one label are resampled together. None: all apart.
    """
    scores = checked(values, "scores")
    sums, sizes = by_cluster(scores, clusters)
    mean = float(scores.mean())
    closed = _wilson(mean, len(scores))
    if is_flat(sums, sizes):
        return _clip(mean, *closed, floor=0.0)
    if not is_binary(scores):
        return _clip(mean, *_resampled(sums, sizes, rng), floor=0.0)
    if len(sums) == len(scores):
        return _clip(mean, *closed, floor=0.0)
    return _clip(mean, *_hull(closed, _resampled(sums, sizes, rng)), floor=0.0)


def change_interval(
    before: Numbers, after: Numbers, *, rng: np.random.Generator, clusters: Labels | None = None
) -> Interval:
    """The mean of ``after - before``: Bonett-Price for 0/1 scores, else paired BCa (t below ``FEW`` clusters)."""
    first, second = paired(before, after)
    change = second - first
    sums, sizes = by_cluster(change, clusters)
    mean = float(change.mean())
    centre, error = _bonett_price(change)
    reach = Z * error
    closed = (centre - reach, centre + reach)
    if is_flat(sums, sizes):
        return _clip(mean, *closed, floor=-1.0)
    if not (is_binary(first) and is_binary(second)):
        return _clip(mean, *_resampled(sums, sizes, rng), floor=-1.0)
    if len(sums) == len(change):
        return _clip(mean, *closed, floor=-1.0)
    return _clip(mean, *_hull(closed, _resampled(sums, sizes, rng)), floor=-1.0)


def moments(first: np.ndarray, second: np.ndarray, clusters: Labels | None) -> tuple[float, float, int | None]:
    """Centre, standard error and degrees of freedom (None = normal) of the mean change."""
    change = second - first
    sums, sizes = by_cluster(change, clusters)
    closed = _bonett_price(change)
    apart = len(sums) == len(change)
    if is_flat(sums, sizes) or (apart and is_binary(first) and is_binary(second)):
        return *closed, None
    error = _cluster_error(sums, sizes)
    if is_binary(first) and is_binary(second):
        error = max(error, closed[1])
    return float(change.mean()), error, len(sums) - 1


def _wilson(mean: float, n: int) -> tuple[float, float]:
    z = Z
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * np.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    return float(centre - reach), float(centre + reach)


def _bonett_price(change: np.ndarray) -> tuple[float, float]:
    """Centre and standard error of a paired change of 0/1 scores, one pair added to each discordant cell.

    Bonett and Price 2012, recommended by Fagerland, Lydersen and Laake 2014. Changes in between count by their size.
    """
    n = len(change)
    gained = (change.clip(min=0).sum() + 1) / (n + 2)
    lost = (-change.clip(max=0).sum() + 1) / (n + 2)
    return float(gained - lost), float(np.sqrt((gained + lost - (gained - lost) ** 2) / (n + 2)))


def _cluster_error(sums: np.ndarray, sizes: np.ndarray) -> float:
    """Standard error of a mean over clusters of unequal size, with G / (G - 1)."""
    groups = len(sums)
    rest = sums - sums.sum() / sizes.sum() * sizes
    return float(np.sqrt(groups / (groups - 1) * (rest**2).sum()) / sizes.sum())


def _resampled(sums: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Bounds of a mean over clusters: t below ``FEW`` of them, else BCa with Hesterberg's small-sample levels."""
    from scipy.stats import norm, t

    groups, mean = len(sums), sums.sum() / sizes.sum()
    tail = float(t.ppf(CONFIDENCE, groups - 1))
    if groups < FEW:
        reach = tail * _cluster_error(sums, sizes)
        return float(mean - reach), float(mean + reach)
    means = _bootstrap_means(sums, sizes, rng)
    below = ((means < mean).mean() + (means <= mean).mean()) / 2
    bias = norm.ppf(np.clip(below, 1 / RESAMPLES, 1 - 1 / RESAMPLES))
    left_out = (sums.sum() - sums) / (sizes.sum() - sizes)
    away = left_out.mean() - left_out
    skew = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    z = bias + np.array([-1, 1]) * tail * np.sqrt(groups / (groups - 1))
    low, high = np.quantile(means, norm.cdf(bias + z / np.maximum(1 - skew * z, 0.1)))
    return float(low), float(high)


def _bootstrap_means(sums: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    groups, chunk = len(sums), max(1, 2_000_000 // len(sums))
    means = []
    for start in range(0, RESAMPLES, chunk):
        index = rng.integers(0, groups, size=(min(chunk, RESAMPLES - start), groups))
        means.append(sums[index].sum(axis=1) / sizes[index].sum(axis=1))
    return np.concatenate(means)


def _hull(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    return min(first[0], second[0]), max(first[1], second[1])


def _clip(mean: float, low: float, high: float, *, floor: float) -> Interval:
    """Inside the range of scores, and around the mean."""
    return Interval(mean, max(floor, min(low, mean)), min(1.0, max(high, mean)))
