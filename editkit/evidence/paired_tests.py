"""Has anything changed? Exact tests of paired scores, multiplicity, and the null of random sets.

A score is a number in [0, 1] per example, and every comparison is of the same examples before and after:

    before = [1, 1, 0, 1]    after = [0, 1, 0, 0]    exact McNemar p = 0.5

``intervals.py`` has the bounds of the change itself, ``margin_test.py`` shows that it is small.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from editkit.evidence.samples import Labels, Numbers, by_cluster, finite, is_binary, paired

FEWEST_CLUSTERS = 6
"""With fewer no change is shown, however large: of five there are 32 sign flips, so p is 2 / 32 at best."""


def change_p(before: Numbers, after: Numbers, *, rng: np.random.Generator, clusters: Labels | None = None) -> float:
    """Two-sided p of "nothing changed": exact McNemar for separate 0/1 scores, else sign flips over clusters."""
    first, second = paired(before, after)
    sums, _ = by_cluster(second - first, clusters)
    if is_binary(first) and is_binary(second) and len(sums) == len(first):
        return discordant_p(int((first > second).sum()), int((second > first).sum()))
    return sign_flip(sums, rng=rng)


def discordant_p(lost: int, gained: int) -> float:
    """McNemar's exact two-sided p of so many pairs that differ: a fair coin decides the direction of each."""
    from scipy.stats import binomtest

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
