"""Which units a capability's data sets have in common: thresholds over attributions, and intersections.

    effects = {"gsm8k": scores.mean(0), "metamath": others.mean(0)}      # float[units]: mean over examples
    sets = [beyond(each, sigma=6) for each in effects.values()]           # bool[units]
    specific(common(sets), needed_by_controls)

The located set of *Capabilities Can Be Localized* (arXiv 2502.20992), as far as it could be established: a unit is
located by a data set where its mean attribution lies more than ``sigma`` standard deviations above the mean of all
units of the model; a capability's units are those that all its data sets locate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PAPER_SIGMA = 6.0
"""Standard deviations above the mean, in the paper."""
PAPER_STEPS = 19
"""Points on the path of the integrated gradients, in the paper."""


def beyond(effect: np.ndarray, sigma: float) -> np.ndarray:
    """bool[units]: whose effect lies more than ``sigma`` standard deviations above the mean; the upper tail only."""
    return effect > effect.mean() + sigma * effect.std()


def strongest(effect: np.ndarray, size: int) -> np.ndarray:
    """bool[units]: the ``size`` units of largest effect, of equal ones the first; none whose effect is not above 0."""
    chosen = np.zeros(len(effect), dtype=bool)
    chosen[np.argsort(-effect, kind="stable")[:size]] = True
    return chosen & (effect > 0)


def contrasted(effect: np.ndarray, others: Sequence[np.ndarray], weight: float) -> np.ndarray:
    """float[units]: the effect, less ``weight`` times the largest positive effect among ``others``."""
    return effect - weight * np.maximum.reduce([np.zeros_like(effect), *others])


def common(sets: Sequence[np.ndarray]) -> np.ndarray:
    """bool[units]: what is in all of at least one set."""
    return np.logical_and.reduce(sets)


def specific(shared: np.ndarray, needed: Sequence[np.ndarray]) -> np.ndarray:
    """bool[units]: the common units that no control needs."""
    return shared & ~np.logical_or.reduce([np.zeros_like(shared), *needed])
