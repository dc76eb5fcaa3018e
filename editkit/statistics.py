"""Paired intervals, exact tests, multiplicity and the random-set null: arrays in, numbers out.

A score is a number in [0, 1] per example, and every comparison is of the same examples before and after:

    before = [1, 1, 0, 1]    after = [0, 1, 0, 0]    change = -0.5 [-0.93, 0.26], exact McNemar p = 0.5

Examples that share a template share a cluster; clusters, not examples, are then what is resampled and counted.

No interval has zero width. The bootstrap of a sample without variance is a point, as if a hundred right answers
proved that no wrong one exists. So 0/1 scores use closed forms that stay honest at the edge (Wilson for one arm,
Bonett and Price for a paired change), and other scores without variance are treated as the 0/1 sample of the same
mean, which is the widest sample that scores in [0, 1] allow. Where a clustered 0/1 sample varies, the interval is
the hull of the clustered and the closed form; where it does not, the closed form over examples stands alone, because
a sample without variance carries no trace of clustering (the practice of survey statistics: Korn and Graubard 1998).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from editkit.errors import EditkitError

Numbers = Sequence[float] | np.ndarray
Labels = Sequence[Hashable]

RESAMPLES = 4000
CONFIDENCE = 0.975  # the upper point of a two-sided 95 % interval
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
    scores = _scores(values, "scores")
    sums, sizes = _by_cluster(scores, clusters)
    mean = float(scores.mean())
    closed = _wilson(mean, len(scores))
    if _flat(sums, sizes):
        return _clip(mean, *closed, floor=0.0)
    if not _binary(scores):
        return _clip(mean, *_resampled(sums, sizes, rng), floor=0.0)
    if len(sums) == len(scores):
        return _clip(mean, *closed, floor=0.0)
    return _clip(mean, *_hull(closed, _resampled(sums, sizes, rng)), floor=0.0)


def change_interval(
    before: Numbers, after: Numbers, *, rng: np.random.Generator, clusters: Labels | None = None
) -> Interval:
    """The mean of ``after - before``: Bonett-Price for 0/1 scores, else paired BCa (t below ``FEW`` clusters)."""
    first, second = _pair(before, after)
    change = second - first
    sums, sizes = _by_cluster(change, clusters)
    mean = float(change.mean())
    centre, error = _bonett_price(change)
    reach = _normal(CONFIDENCE) * error
    closed = (centre - reach, centre + reach)
    if _flat(sums, sizes):
        return _clip(mean, *closed, floor=-1.0)
    if not (_binary(first) and _binary(second)):
        return _clip(mean, *_resampled(sums, sizes, rng), floor=-1.0)
    if len(sums) == len(change):
        return _clip(mean, *closed, floor=-1.0)
    return _clip(mean, *_hull(closed, _resampled(sums, sizes, rng)), floor=-1.0)


def change_p(before: Numbers, after: Numbers, *, rng: np.random.Generator, clusters: Labels | None = None) -> float:
    """Two-sided p of "nothing changed": exact McNemar for separate 0/1 scores, else sign flips over clusters."""
    first, second = _pair(before, after)
    sums, _ = _by_cluster(second - first, clusters)
    if _binary(first) and _binary(second) and len(sums) == len(first):
        return mcnemar(first, second)
    return sign_flip(sums, rng=rng)


def mcnemar(before: Numbers, after: Numbers) -> float:
    """Exact two-sided McNemar test of paired 0/1 scores: a fair coin over the pairs that differ."""
    from scipy.stats import binomtest

    first, second = _pair(before, after)
    if not (_binary(first) and _binary(second)):
        raise EditkitError("McNemar's test needs scores of 0 and 1 only; use sign_flip for scores in between.")
    lost, gained = int((first > second).sum()), int((second > first).sum())
    return 1.0 if lost + gained == 0 else float(binomtest(lost, lost + gained).pvalue)


def sign_flip(changes: Numbers, *, rng: np.random.Generator, flips: int = 10_000) -> float:
    """Two-sided p of "changes are symmetric around 0", by flipping signs; all flips up to 12 values, else a sample.

    Args:
        changes: one number per independent unit: the sum of ``after - before`` over a cluster, or one example's.
        flips: random flips when there are too many to list; the smallest p is then 1 / (1 + flips).
    """
    values = _finite(changes, "changes")
    values = values[values != 0]  # a zero stays zero under every flip
    if len(values) == 0:
        return 1.0
    # Sums that are equal in exact arithmetic may differ in the last bits.
    enough = abs(values.sum()) * (1 - 1e-9)
    if len(values) <= 12:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(values))))
        return float((np.abs(signs @ values) >= enough).mean())
    hits, left = 0, flips
    while left:
        take = min(left, max(1, 2_000_000 // len(values)))
        signs = rng.integers(0, 2, size=(take, len(values)), dtype=np.int8) * 2 - 1
        hits += int((np.abs(signs @ values) >= enough).sum())
        left -= take
    return (1 + hits) / (1 + flips)


def equivalence_p(before: Numbers, after: Numbers, *, margin: float, clusters: Labels | None = None) -> float:
    """TOST: p of "the mean changed by ``margin`` or more". Small p = equivalent within the margin.

    Two one-sided tests, the larger p counts: Student's t with cluster-robust variance, or Bonett-Price for
    separate 0/1 scores and for changes without variance.
    """
    from scipy.stats import norm, t

    if not margin > 0:
        raise EditkitError(f"An equivalence margin must be above 0 score points, found {margin}.")
    centre, error, freedom = _moments(*_pair(before, after), clusters)
    tail = norm.sf if freedom is None else lambda z: t.sf(z, freedom)
    return float(max(tail((centre + margin) / error), tail((margin - centre) / error)))


def holm(p: Numbers) -> np.ndarray:
    """Holm's correction: p-values valid together, in the order given."""
    values = _finite(p, "p-values")
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def random_set_p(change: float, random_changes: Numbers) -> float:
    """Empirical p of the knockout against random sets of its size: (1 + sets that fell as far) / (1 + sets)."""
    values = _finite(random_changes, "random-set changes")
    return float((1 + (values <= change + 1e-12).sum()) / (1 + len(values)))


def detectable(
    before: Numbers,
    after: Numbers,
    *,
    clusters: Labels | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """The smallest mean change that this many examples, as variable as these, would have shown (two-sided)."""
    _, error, _ = _moments(*_pair(before, after), clusters)
    return float(min(1.0, (_normal(1 - alpha / 2) + _normal(power)) * error))


def examples_needed(change: float, discordance: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Pairs of 0/1 scores needed to see ``change`` when a share ``discordance`` of the pairs differs (METHODS 3.5)."""
    if not 0 < abs(change) <= discordance <= 1:
        raise EditkitError(f"Expected 0 < |change| <= discordance <= 1, found {change} and {discordance}.")
    spread = _normal(1 - alpha / 2) * discordance**0.5 + _normal(power) * (discordance - change**2) ** 0.5
    return int(np.ceil((spread / change) ** 2))


def _finite(values: Numbers, what: str) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1:
        raise EditkitError(f"Expected a flat list of {what}, found an array of shape {array.shape}.")
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise EditkitError(f"{len(bad)} of {len(array)} {what} are not numbers (first at {bad[0]}): mend the scorer.")
    return array


def _scores(values: Numbers, what: str) -> np.ndarray:
    array = _finite(values, what)
    if len(array) == 0:
        raise EditkitError(f"No {what}: a task needs at least one example in the split.")
    if array.min() < 0 or array.max() > 1:
        raise EditkitError(f"Scores must lie in [0, 1]; these {what} reach from {array.min():g} to {array.max():g}.")
    return array


def _pair(before: Numbers, after: Numbers) -> tuple[np.ndarray, np.ndarray]:
    first, second = _scores(before, "scores before"), _scores(after, "scores after")
    if len(first) != len(second):
        raise EditkitError(
            f"A paired comparison needs the same examples twice, found {len(first)} before and {len(second)} after."
        )
    return first, second


def _by_cluster(values: np.ndarray, clusters: Labels | None) -> tuple[np.ndarray, np.ndarray]:
    """Sum and size of each cluster."""
    if clusters is None:
        return values, np.ones(len(values))
    if len(clusters) != len(values):
        raise EditkitError(f"Expected one cluster per example, found {len(clusters)} for {len(values)}.")
    place: dict[Hashable, int] = {}
    index = np.array([place.setdefault(label, len(place)) for label in clusters])
    return np.bincount(index, weights=values), np.bincount(index).astype(float)


def _moments(first: np.ndarray, second: np.ndarray, clusters: Labels | None) -> tuple[float, float, int | None]:
    """Centre, standard error and degrees of freedom (None = normal) of the mean change."""
    change = second - first
    sums, sizes = _by_cluster(change, clusters)
    closed = _bonett_price(change)
    apart = len(sums) == len(change)
    if _flat(sums, sizes) or (apart and _binary(first) and _binary(second)):
        return *closed, None
    error = _cluster_error(sums, sizes)
    if _binary(first) and _binary(second):
        error = max(error, closed[1])
    return float(change.mean()), error, len(sums) - 1


def _binary(values: np.ndarray) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _flat(sums: np.ndarray, sizes: np.ndarray) -> bool:
    """Whether every cluster has the same mean, so that nothing can be resampled."""
    means = sums / sizes
    return len(means) < 2 or float(np.ptp(means)) < 1e-12


def _wilson(mean: float, n: int) -> tuple[float, float]:
    z = _normal(CONFIDENCE)
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


def _normal(level: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(level)
