"""R and its bounds: what an attack brings back is neither made up nor hidden.

If one fails: a card gives a share that was brought back which the scores do not show.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editkit.evidence.recovery import recovered

ONES, ZEROS = [1.0] * 40, [0.0] * 40


def test_r_is_0_at_the_edited_score_and_1_at_the_bases() -> None:
    for attacked, share in ((ZEROS, 0.0), (ONES, 1.0), ([1.0, 0.0] * 20, 0.5)):
        found = recovered(ONES, ZEROS, attacked)
        assert found and found.share == share and found.low <= share <= found.high
        assert found.high - found.low < 0.5, "40 examples say something"


def test_where_nothing_was_removed_there_is_no_way_back() -> None:
    assert recovered(ONES, ONES, ONES) is None and recovered(ONES, [1.0] * 39 + [0.0], ONES) is None
    assert recovered(ZEROS, ONES, ONES) is None, "and none where it was taught"


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 1.0])] * 3), min_size=4, max_size=30))
def test_the_share_lies_within_its_bounds_and_these_in_the_range(rows) -> None:
    base, edited, attacked = zip(*rows, strict=True)
    found = recovered(base, edited, attacked)
    if found:
        assert -1 <= found.low <= max(-1, min(2, found.share)) + 1e-6
        assert min(2, max(-1, found.share)) - 1e-6 <= found.high <= 2


@pytest.mark.parametrize("truth", [0.0, 0.3, 0.9])
def test_the_bounds_hold_the_truth_nineteen_times_in_twenty(truth: float) -> None:
    """Examples of a base that scores .9, edited .1, attacked in between; a few misses more are chance."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(200):
        base, edited = (rng.random(30) < 0.9).astype(float), (rng.random(30) < 0.1).astype(float)
        attacked = (rng.random(30) < 0.1 + 0.8 * truth).astype(float)
        found = recovered(base, edited, attacked)
        missed += found is None or not found.low <= truth <= found.high
    assert missed <= 16
