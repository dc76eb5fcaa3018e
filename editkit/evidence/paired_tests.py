"""What a paired comparison shows: exact tests, equivalence, multiplicity, the random-set null, and what n could show.

A score is a number in [0, 1] per example, and every comparison is of the same examples before and after:

    before = [1, 1, 0, 1]    after = [0, 1, 0, 0]    exact McNemar p = 0.5

``intervals.py`` has the bounds of the change itself.
"""

from __future__ import annotations

from itertools import product
from statistics import NormalDist

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence.intervals import moments
from editkit.evidence.samples import Labels, Numbers, by_cluster, finite, is_binary, paired

FEWEST_CLUSTERS = 6
"""With fewer no change is shown, however large: of five there are 32 sign flips, so p is 2 / 32 at best."""


def change_p(before: Numbers, after: Numbers, *, rng: np.random.Generator, clusters: Labels | None = None) -> float:
    """Two-sided p of "nothing changed": exact McNemar for separate 0/1 scores, else sign flips over clusters."""
    first, second = paired(before, after)
    sums, _ = by_cluster(second - first, clusters)
    if is_binary(first) and is_binary(second) and len(sums) == len(first):
        return mcnemar(first, second)
    return sign_flip(sums, rng=rng)


def mcnemar(before: Numbers, after: Numbers) -> float:
    """Exact two-sided McNemar test of paired 0/1 scores: a fair coin over the pairs that differ."""
    from scipy.stats import binomtest

    first, second = paired(before, after)
    if not (is_binary(first) and is_binary(second)):
        raise EditkitError("McNemar's test needs scores of 0 and 1 only; use sign_flip for scores in between.")
    lost, gained = int((first > second).sum()), int((second > first).sum())
    return 1.0 if lost + gained == 0 else float(binomtest(lost, lost + gained).pvalue)


def sign_flip(changes: Numbers, *, rng: np.random.Generator, flips: int = 10_000) -> float:
    """Two-sided p of "changes are symmetric around 0", by flipping signs; all flips up to 12 values, else a sample.

    Args:
        changes: one number per independent unit: the sum of ``after - before`` over a cluster, or one example's.
        flips: random flips when there are too many to list; the smallest p is then 1 / (1 + flips).
    """
    values = finite(changes, "changes")
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
    centre, error, freedom = moments(*paired(before, after), clusters)
    tail = norm.sf if freedom is None else lambda z: t.sf(z, freedom)
    return float(max(tail((centre + margin) / error), tail((margin - centre) / error)))


def holm(p: Numbers) -> np.ndarray:
    """Holm's correction: p-values valid together, in the order given."""
    values = finite(p, "p-values")
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def random_set_p(change: float, random_changes: Numbers) -> float:
    """Empirical p of the knockout against random sets of its size: (1 + sets that fell as far) / (1 + sets)."""
    values = finite(random_changes, "random-set changes")
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
    _, error, _ = moments(*paired(before, after), clusters)
    return float(min(1.0, (_normal(1 - alpha / 2) + _normal(power)) * error))


def _normal(level: float) -> float:
    return NormalDist().inv_cdf(level)
