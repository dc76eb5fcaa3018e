"""Located sets are what their definitions say, and hold what was planted.

If one fails: "the capability's neurons" are others than the paper's threshold and intersections give.
"""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from editkit.localizers.commonality import beyond, common, contrasted, specific, strongest

RNG = np.random.default_rng(5)
LAYER = np.repeat(np.arange(4), 200)


def world(own: list[int], general: list[int]) -> np.ndarray:
    """float[units]: attributions of a data set that needs some units, two of them more than any other."""
    effect = RNG.normal(scale=0.1, size=len(LAYER))
    effect[own] += RNG.uniform(4, 6, len(own))
    effect[general] += 5
    return effect


@pytest.mark.parametrize("sigma", [0, 1, 2.5])
def test_the_threshold_is_so_many_standard_deviations_above_the_mean(sigma: float) -> None:
    for _ in range(5):
        effect = RNG.standard_t(3, size=50)
        bar = statistics.fmean(effect) + sigma * statistics.pstdev(effect)
        assert np.flatnonzero(beyond(effect, sigma)).tolist() == [n for n, value in enumerate(effect) if value > bar]


def test_a_matched_size_takes_the_largest_and_nothing_that_works_against_the_answer() -> None:
    effect = np.array([0.5, -3.0, 2.0, 0.5, 0.0])
    assert strongest(effect, 2).tolist() == [True, False, True, False, False]
    assert strongest(effect, 5).tolist() == [True, False, True, True, False]


def test_what_is_planted_in_all_data_sets_is_common_and_what_controls_share_is_not_specific() -> None:
    capability, general = [3, 250, 410], [7, 790]
    formats = [world([*capability, 20], general), world([*capability, 630], general)]
    control = world([100, 500], general)
    shared = common([beyond(each, 6) for each in formats])
    assert np.flatnonzero(shared).tolist() == sorted([*capability, *general])
    assert np.flatnonzero(specific(shared, [beyond(control, 6)])).tolist() == capability
    assert (specific(shared, []) == shared).all()
    against = [contrasted(each, [control], 2) for each in formats]
    assert np.flatnonzero(common([strongest(each, 4) for each in against])).tolist() == capability
