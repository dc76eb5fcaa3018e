"""Laws of the statistics: they agree with scipy and statsmodels, cover what they promise, and never claim certainty.

If one fails: an interval or p-value in a report promises more than the data say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import ttost_paired

from editkit.errors import EditkitError
from editkit.evidence import intervals
from editkit.evidence import paired_tests as statistics

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, list[int] | None]]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("right", "n"), [(0, 10), (3, 10), (10, 10), (77, 100), (100, 100), (1, 1)])
def test_a_binary_arm_has_the_wilson_interval(right: int, n: int) -> None:
    found = intervals.mean_interval([1.0] * right + [0.0] * (n - right), rng=rng())
    low, high = proportion_confint(right, n, method="wilson")
    assert found.mean == right / n and (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.high > found.low


@pytest.mark.parametrize(("lost", "gained", "same"), [(0, 0, 9), (5, 0, 20), (9, 3, 50), (40, 1, 0), (1, 1, 0)])
def test_mcnemar_agrees_with_statsmodels(lost: int, gained: int, same: int) -> None:
    before = [1] * lost + [0] * gained + [1] * same
    after = [0] * lost + [1] * gained + [1] * same
    expected: Any = reference_mcnemar([[same, lost], [gained, 0]], exact=True)
    assert statistics.change_p(before, after, rng=rng()) == pytest.approx(expected.pvalue)


def test_holm_agrees_with_statsmodels() -> None:
    values = rng().random(12) ** 3
    np.testing.assert_allclose(statistics.holm(values), np.asarray(multipletests(values, method="holm")[1]))
    assert len(statistics.holm([])) == 0


@pytest.mark.parametrize("n", [8, 40])
def test_sign_flips_agree_with_scipy(n: int) -> None:
    change = rng(n).normal(0.15, 0.3, n)
    expected = stats.permutation_test(
        (change,), np.mean, permutation_type="samples", vectorized=True, n_resamples=20_000, rng=rng(1)
    ).pvalue
    # Both sample at n = 40: 10,000 flips have a standard error of at most 0.005.
    assert statistics.sign_flip(change, rng=rng()) == pytest.approx(expected, abs=0.015 if n > 12 else 1e-9)


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.2])
def test_equivalence_agrees_with_statsmodels(margin: float) -> None:
    before = rng(1).random(60)
    after = np.clip(before + rng(2).normal(0, 0.05, 60), 0, 1)
    expected = ttost_paired(after, before, -margin, margin)[0]
    assert statistics.equivalence_p(before, after, margin=margin) == pytest.approx(expected)


def test_the_bootstrap_agrees_with_scipy() -> None:
    values = rng(3).beta(1, 4, 200)
    expected = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=rng(4)).confidence_interval
    found = intervals.mean_interval(values, rng=rng())
    # The small-sample levels widen ours by 1.2 % at n = 200; the rest is resampling noise.
    width = expected.high - expected.low
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.05 * width)
    assert found.high - found.low > 0.97 * width


def binary(n: int, right: float, lost: float, gained: float) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, None]:
        before = rng.random(n) < right
        flip = rng.random(n) < np.where(before, lost, gained)
        return before.astype(float), (before ^ flip).astype(float), None

    return draw


def fractional(n: int) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, None]:
        before = rng.beta(4, 1, n)
        return before, before * rng.beta(1, 2, n), None

    return draw


def clustered(groups: int, size: int, binary: bool) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[int]]:
        easy = np.repeat(rng.beta(2, 1, groups), size)
        hurt = np.repeat(rng.beta(1, 1, groups), size)
        labels = np.repeat(np.arange(groups), size).tolist()
        if not binary:
            return easy, easy * hurt, labels
        before = (rng.random(groups * size) < easy).astype(float)
        return before, before * (rng.random(groups * size) < hurt), labels

    return draw


WORLDS: list[tuple[str, Draw, float, float]] = [
    ("certain", binary(60, 1.0, 0.0, 0.0), 1.0, 0.0),
    ("nearly perfect", binary(50, 0.99, 0.01, 0.5), 0.99, 0.5 * 0.01 - 0.01 * 0.99),
    ("rare loss", binary(80, 0.9, 0.02, 0.0), 0.9, -0.018),
    ("A/A with noise", binary(100, 0.5, 0.1, 0.1), 0.5, 0.0),
    ("removal", binary(40, 0.8, 0.9, 0.0), 0.8, -0.72),
    ("fractional", fractional(60), 0.8, 0.8 / 3 - 0.8),
    ("few prompts", fractional(12), 0.8, 0.8 / 3 - 0.8),
    ("twelve templates", clustered(12, 6, True), 2 / 3, -1 / 3),
    ("thirty templates", clustered(30, 4, False), 2 / 3, -1 / 3),
]


@pytest.mark.parametrize(("draw", "mean", "change"), [world[1:] for world in WORLDS], ids=[w[0] for w in WORLDS])
def test_intervals_cover_the_truth(draw: Draw, mean: float, change: float) -> None:
    runs, source, resample = 300, rng(7), rng(8)
    arm = both = 0
    for _ in range(runs):
        before, after, labels = draw(source)
        first = intervals.mean_interval(before, rng=resample, clusters=labels)
        delta = intervals.change_interval(before, after, rng=resample, clusters=labels)
        arm += first.low <= mean <= first.high
        both += delta.low <= change <= delta.high
    # 95 % nominal; 300 runs have a standard error of 1.3 points. The naive bootstrap covers 39 % in "nearly perfect".
    assert arm / runs >= 0.915
    assert both / runs >= 0.915


def test_ignoring_clusters_would_be_too_narrow() -> None:
    before, after, labels = clustered(12, 25, True)(rng(5))
    apart = intervals.change_interval(before, after, rng=rng())
    together = intervals.change_interval(before, after, rng=rng(), clusters=labels)
    assert together.high - together.low > 1.5 * (apart.high - apart.low)


@pytest.mark.parametrize("binary_scores", [True, False])
def test_p_values_of_no_change_are_not_small_too_often(binary_scores: bool) -> None:
    source, flips, small = rng(9), rng(10), 0
    for _ in range(300):
        before, after = source.random((2, 30))
        if binary_scores:
            before, after = (before < 0.5).astype(float), (after < 0.5).astype(float)
        small += statistics.change_p(before, after, rng=flips) <= 0.05
    # 300 runs of a 5 % test have a standard error of 1.3 points.
    assert small / 300 <= 0.09


@pytest.mark.parametrize("n", [1, 2, 5, 150])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_samples_without_variance_keep_a_width(n: int, value: float) -> None:
    same = [value] * n
    arm = intervals.mean_interval(same, rng=rng())
    change = intervals.change_interval(same, same, rng=rng())
    templates = intervals.change_interval(same, same, rng=rng(), clusters=[0] * n)
    assert 0 <= arm.low <= value <= arm.high <= 1
    assert arm.high > arm.low
    assert change == templates
    assert -1 <= change.low < 0 < change.high <= 1
    assert statistics.change_p(same, same, rng=rng()) == 1
    assert statistics.detectable(same, same) > 0


def test_equivalence_needs_enough_examples() -> None:
    assert statistics.equivalence_p([1.0] * 50, [1.0] * 50, margin=0.02) > 0.05
    assert statistics.equivalence_p([1.0] * 200, [1.0] * 200, margin=0.02) < 0.05
    assert statistics.equivalence_p([1.0] * 200, [1.0] * 190 + [0.0] * 10, margin=0.02) > 0.5


def test_random_sets_never_give_p_zero() -> None:
    assert statistics.random_set_p(-0.9, [0.0] * 49) == pytest.approx(1 / 50)
    assert statistics.random_set_p(-0.9, [-0.9, 0.0, 0.1]) == pytest.approx(2 / 4)


def test_the_detectable_change_shrinks_with_the_square_root_of_n() -> None:
    before, after = np.tile([1.0, 0.0, 1.0, 1.0], 25), np.tile([0.0, 1.0, 1.0, 1.0], 25)
    small = statistics.detectable(before, after)
    large = statistics.detectable(np.tile(before, 4), np.tile(after, 4))
    assert large == pytest.approx(small / 2, rel=0.02)
    assert small == pytest.approx(2.8 * (0.5 / 100) ** 0.5, rel=0.03)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: intervals.mean_interval([], rng=rng()), "at least one example"),
        (lambda: intervals.mean_interval([0.5, float("nan")], rng=rng()), r"1 of 2 .*\(first at 1\)"),
        (lambda: intervals.mean_interval([0.0, 2.0], rng=rng()), r"\[0, 1\].* 0 to 2"),
        (lambda: intervals.change_interval([1.0], [1.0, 0.0], rng=rng()), "1 before and 2 after"),
        (lambda: intervals.mean_interval([1.0], rng=rng(), clusters=["a", "b"]), "2 for 1"),
        (lambda: statistics.mcnemar([0.5], [1.0]), "sign_flip"),
        (lambda: statistics.equivalence_p([1.0], [1.0], margin=0), "above 0"),
    ],
)
def test_what_cannot_be_judged_is_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(EditkitError, match=says):
        call()


def test_the_same_seed_gives_the_same_interval() -> None:
    before, after, labels = clustered(30, 3, True)(rng(2))
    first = intervals.change_interval(before, after, rng=rng(1), clusters=labels)
    assert first == intervals.change_interval(before, after, rng=rng(1), clusters=labels)
    assert first != intervals.change_interval(before, after, rng=rng(2), clusters=labels)


def test_sampled_flips_never_give_p_zero() -> None:
    assert statistics.sign_flip(np.full(40, -1.0), rng=rng(), flips=500) == pytest.approx(1 / 501)
