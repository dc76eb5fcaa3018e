"""Is a loss below a margin? An exact test of paired counts, and of clusters that count once each.

    below_margin(Flips(lost=0, gained=0, n=200), 0.02)   ->   0.0176 + 0.001: .98 ** 200, and what the nuisance costs

Of n examples ``lost`` went from right to wrong and ``gained`` the other way: a trinomial with rates (l, g) and the loss
l - g. The p-value is the largest probability, over all rates with l - g = margin, of a sample that speaks as much
against such a loss; samples are ordered by Tango's score statistic (1998). Rates that the number of flips excludes at
0.1 % are left out and 0.001 is added (Berger and Boos 1994). No approximation enters, so the test holds its size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from editkit.errors import EditkitError

EXCLUDED = 0.001
"""The chance that the churn lies outside the rates that are looked at; it is added to p."""
RATES = 25


@dataclass(frozen=True)
class Flips:
    """Of ``n`` independent units, how many were lost and how many gained. Parts of a unit count as parts."""

    lost: float
    gained: float
    n: int

    @property
    def churn(self) -> float:
        """The share that flipped, either way."""
        return (self.lost + self.gained) / self.n

    @property
    def turned(self) -> Flips:
        """The same with losses for gains."""
        return Flips(self.gained, self.lost, self.n)


def flips(lost: float, gained: float, n: int, clusters: int | None = None) -> Flips:
    """The flips of ``n`` examples in units: examples, or ``clusters``, each of which counts once, however large."""
    units = n if clusters is None else clusters
    return Flips(lost * units / n, gained * units / n, units)


def below_margin(sample: Flips, margin: float) -> float:
    """p of "``margin`` or more is lost": small = the loss is below the margin. Parts of a unit count as lost."""
    if not 0 <= margin <= 1:
        raise EditkitError(f"A margin must lie between 0 and 1, found {margin:g}.")
    if margin in (0, 1):
        return 1.0 if margin == 0 or sample.lost > sample.n - 1e-9 else 0.0
    lost = math.ceil(sample.lost - 1e-9)
    return _p(lost, min(math.floor(sample.gained + 1e-9), sample.n - lost), sample.n, margin)


@lru_cache(4096)
def _p(lost: int, gained: int, n: int, margin: float) -> float:
    from scipy.special import bdtr

    rates = _rates(lost + gained, n, margin)
    most = int(n * rates[-1] + 12 * math.sqrt(n * rates[-1]) + 12)  # beyond: less than one in a billion
    gains = np.arange(min(most, n) + 1)
    allowed = _allowed(_score(lost, gained, n, margin), gains, n, margin)
    # Gains are binomial; given these, so are losses among the rest.
    rates, gains, rest = rates[:, None], gains[None], n - gains[None]
    given = bdtr(np.maximum(allowed, 0.0)[None], rest, (rates + margin) / (1 - rates)) * (allowed >= 0)
    return float(min(1.0, (_binomial(gains, n, rates) * given).sum(axis=1).max() + EXCLUDED))


def equivalence(sample: Flips, margin: float) -> float:
    """TOST: p of "the score changed by ``margin`` or more, up or down"."""
    return max(below_margin(sample, margin), below_margin(sample.turned, margin))


def _rates(flipped: int, n: int, margin: float) -> np.ndarray:
    """Rates of gain to look at: up to the highest that this many flips allow."""
    from scipy.special import betaincinv

    highest = 1.0 if flipped == n else float(betaincinv(flipped + 1, n - flipped, 1 - EXCLUDED))
    return np.linspace(0.0, max(0.0, min(highest, 1.0) - margin) / 2, RATES)


def _score(lost: np.ndarray | int, gained: np.ndarray | int, n: int, margin: float) -> np.ndarray:
    """Tango's statistic for a loss of ``margin``: low where the sample shows less."""
    net = np.asarray(lost, dtype=float) - gained
    linear = (2 * n - net) * margin - (lost + np.asarray(gained, dtype=float))
    root = np.sqrt(linear**2 + 8 * n * gained * margin * (1 - margin))
    rate = (root - linear) / (4 * n)  # of gains, likeliest under the margin
    return (net - n * margin) / np.sqrt(np.maximum(n * (2 * rate + margin * (1 - margin)), 1e-12))


def _allowed(score: np.ndarray, gains: np.ndarray, n: int, margin: float) -> np.ndarray:
    """int[gains]: the most losses beside so many gains that speak as much against the margin; -1: none does."""
    low, high = np.full(len(gains), -1), n - gains
    while (low < high).any():
        middle = (low + high + 1) // 2
        as_much = (middle < 0) | (_score(middle, gains, n, margin) <= score + 1e-9)
        low, high = np.where(as_much, middle, low), np.where(as_much, high, middle - 1)
    return low


def _binomial(count: np.ndarray, n: int, rate: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln, xlog1py, xlogy

    choose = gammaln(n + 1) - gammaln(count + 1) - gammaln(n - count + 1)
    return np.exp(choose + xlogy(count, rate) + xlog1py(n - count, -rate))
