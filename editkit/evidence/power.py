"""What a number of examples can show: the loss it would have seen, and how many examples would show that none is there.

    detectable(Flips(0, 0, 200), 0.05 / 9)   ->   0.06: four in five samples of 200 would show a loss of 6 points

Both are about the tests that are used: the exact McNemar test of the change, with the level that is left after the
correction for several rows, and the exact test of a margin. What flipped both ways goes on flipping; the loss comes
on top of it, with the variance that it adds.
"""

from __future__ import annotations

import math

import numpy as np

from editkit.evidence.margin_test import Flips

POWER = 0.8
ALPHA = 0.05


def detectable(sample: Flips, level: float) -> float | None:
    """The least loss that a two-sided exact McNemar test at ``level`` shows in four of five samples; None: none."""
    noise = min(sample.lost, sample.gained) / sample.n
    low, high = 0.0, 1.0 - 2 * noise
    if power(sample.n, noise, high, level) < POWER:
        return None
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if power(sample.n, noise, middle, level) >= POWER else (middle, high)
    return high


def power(n: int, noise: float, loss: float, level: float) -> float:
    """How often McNemar's exact test shows ``loss``, where ``noise`` of the units flips one way and as many back."""
    from scipy.stats import binom

    flipped = np.arange(n + 1)
    rate = 2 * noise + loss
    least = binom.isf(level / 2, flipped, 0.5) + 1  # losses, or gains, that make p small enough
    share = (noise + loss) / rate if rate else 0.5
    shown = binom.sf(least - 1, flipped, share) + binom.cdf(flipped - least, flipped, share)
    return float((binom.pmf(flipped, n, rate) * shown).sum())


def needed(sample: Flips, margin: float) -> int:
    """About how many units show, in four of five samples, that less than ``margin`` is lost, if nothing is."""
    churn = sample.churn
    linear = 2 * margin - churn
    gains = (math.sqrt(linear**2 + 4 * churn * margin * (1 - margin)) - linear) / 4  # likeliest under the margin
    under = 2 * gains + margin * (1 - margin)
    near = (1.645 * math.sqrt(under) + 0.842 * math.sqrt(churn)) ** 2 / margin**2 + 1 / margin
    return math.ceil(max(near, math.log(ALPHA) / math.log1p(-margin)))
