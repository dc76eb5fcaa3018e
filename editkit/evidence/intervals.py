"""Bounds of a mean score, and of its paired change: never of zero width, and wide enough where there is little to see.

    change_interval([1, 1, 0, 1], [0, 1, 0, 0])   ->   Interval(mean=-0.5, low=-1.0, high=0.66)

A sample without variance does not prove that there is none: of six templates that all stayed as they were, a seventh
may break. So about two more clusters are added at either end of the range, as Agresti and Coull (1998) add successes
and failures, before Student's t over clusters is taken. An example that belongs to no cluster is one by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from editkit.evidence.samples import Labels, Numbers, by_cluster, checked, paired

CONFIDENCE = 0.975
"""The upper point of a two-sided 95 % interval."""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % bounds."""

    mean: float
    low: float
    high: float


def mean_interval(values: Numbers, *, clusters: Labels | None = None) -> Interval:
    """The mean score of one arm.

    Args:
        values: scores in [0, 1], one per example.
        clusters: one label per example; examples with one label count together. None: all apart.
    """
    return _interval(checked(values, "scores"), clusters, least=0.0)


def change_interval(before: Numbers, after: Numbers, *, clusters: Labels | None = None) -> Interval:
    """The mean of ``after - before`` on the same examples."""
    first, second = paired(before, after)
    return _interval(second - first, clusters, least=-1.0)


def standard_error(values: Numbers, *, clusters: Labels | None = None) -> float | None:
    """The standard error of the mean by clusters, as evaluation programs print it beside a score.

    It is 0 where nothing varies, which proves nothing: no bound here is made of it. None: there is one cluster.
    """
    scores = checked(values, "scores")
    sums, sizes = by_cluster(scores, clusters)
    if len(sums) < 2:
        return None
    spread = ((sums - scores.mean() * sizes) ** 2).sum()
    return float(np.sqrt(spread * len(sums) / (len(sums) - 1)) / len(scores))


def bounds(
    sums: np.ndarray, sizes: np.ndarray, *, least: float, most: float = 1.0, confidence: float = CONFIDENCE
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a mean of values from ``least`` to ``most``, by clusters.

    Args:
        sums: float[..., clusters], the sum of the values of each; leading axes are samples of their own.
        sizes: float[clusters].
        confidence: that the mean is not above the upper bound, and that it is not below the lower one.
    """
    from scipy.special import ndtri, stdtrit

    total, size = sizes.sum(), sizes.mean()
    added = size * ndtri(confidence) ** 2 / 2
    whole = total + 2 * added
    centre = (sums.sum(axis=-1) + added * (least + most)) / whole
    spread = ((sums - centre[..., None] * sizes) ** 2).sum(axis=-1)
    spread += size * added * ((most - centre) ** 2 + (least - centre) ** 2)
    freedom = total**2 / (sizes**2).sum() - 1  # clusters, less one; fewer where a few hold most examples
    quantile = float(stdtrit(freedom, confidence)) if freedom > 1e-9 else np.inf
    reach = quantile * np.sqrt(spread) / whole
    return centre - reach, centre + reach


def _interval(values: np.ndarray, clusters: Labels | None, *, least: float) -> Interval:
    mean = float(values.mean())
    low, high = (float(bound) for bound in bounds(*by_cluster(values, clusters), least=least))
    return Interval(mean, max(least, min(low, mean)), min(1.0, max(high, mean)))
