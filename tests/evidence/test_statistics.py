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

from editkit.errors import EditkitError
from editkit.evidence import intervals
from editkit.evidence import paired_tests as statistics
from editkit.evidence.margin_test import Flips, below_margin, equivalence, flips
from editkit.evidence.power import detectable, needed
from editkit.evidence.share_left import share_left

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, list[int] | None]]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("right", "n"), [(0, 200), (3, 200), (200, 200), (770, 1000)])
def test_a_binary_arm_has_the_interval_of_agresti_and_coull(right: int, n: int) -> None:
    found = intervals.mean_interval([1.0] * right + [0.0] * (n - right))
    low, high = (float(bound) for bound in proportion_confint(right, n, method="agresti_coull"))  # pyright: ignore
    assert found.mean == right / n and found.high > found.low
    # Student's t in place of the normal: 1 % wider at n = 200.
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01 * (high - low))


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
    runs, source = 300, rng(7)
    arm = both = 0
    for _ in range(runs):
        before, after, labels = draw(source)
        first = intervals.mean_interval(before, clusters=labels)
        delta = intervals.change_interval(before, after, clusters=labels)
        arm += first.low <= mean <= first.high
        both += delta.low <= change <= delta.high
    # 95 % nominal; 300 runs have a standard error of 1.3 points. The naive bootstrap covers 39 % in "nearly perfect".
    assert arm / runs >= 0.915
    assert both / runs >= 0.915


def test_ignoring_clusters_would_be_too_narrow() -> None:
    before, after, labels = clustered(12, 25, True)(rng(5))
    apart = intervals.change_interval(before, after)
    together = intervals.change_interval(before, after, clusters=labels)
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
    arm = intervals.mean_interval(same)
    change = intervals.change_interval(same, same)
    assert 0 <= arm.low <= value <= arm.high <= 1
    assert arm.high > arm.low
    assert -1 <= change.low < 0 < change.high <= 1
    assert intervals.change_interval(same, same, clusters=[0] * n) == intervals.Interval(0.0, -1.0, 1.0)
    assert statistics.change_p(same, same, rng=rng()) == 1


def test_equivalence_is_exact_and_needs_enough_examples() -> None:
    """With nothing flipped p is what a loss of the margin gives so often: .98 ** n, and .001 for the unknown churn."""
    for n in (50, 200, 500):
        assert 0.98**n <= equivalence(Flips(0, 0, n), 0.02) <= 0.98**n + 0.0015
    assert below_margin(Flips(7, 0, 200), 0.02) > 0.5 > 0.05 > below_margin(Flips(0, 7, 200), 0.02)
    assert equivalence(Flips(0, 7, 200), 0.02) == below_margin(Flips(7, 0, 200), 0.02)


def test_a_loss_of_the_margin_is_called_less_in_at_most_one_of_twenty() -> None:
    source, runs = rng(1), 1500
    for n, margin, churn in [(200, 0.02, 0.0), (150, 0.02, 0.02), (120, 0.05, 0.1), (500, 0.05, 0.2)]:
        counts = source.multinomial(n, [margin + churn / 2, churn / 2, 1 - margin - churn], runs)
        pairs, often = np.unique(counts[:, :2], axis=0, return_counts=True)
        p = [below_margin(Flips(lost, gained, n), margin) for lost, gained in pairs.tolist()]
        # A standard error of .6 points. The normal approximation in its place calls it so in 8.8 % at n = 200.
        assert often[np.array(p) <= 0.05].sum() / runs <= 0.065, (n, margin, churn)


def test_a_cluster_counts_once_however_large() -> None:
    """200 unchanged prompts of one template are one finding, those of six are six."""
    same = [1.0] * 200
    for groups, least in ((1, 1.0), (6, 0.39), (20, 0.1)):
        labels = [place % groups for place in range(200)]
        change = intervals.change_interval(same, same, clusters=labels)
        assert change.low <= -least
        assert below_margin(flips(0, 0, 200, groups), 0.02) >= 0.98**groups


@pytest.mark.parametrize(("groups", "size"), [(6, 30), (10, 20), (20, 9)])
@pytest.mark.parametrize("alike", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5])
def test_bounds_of_few_clusters_cover_the_truth(groups: int, size: int, alike: float, rate: float) -> None:
    rest, source, runs = (1 - alike) / alike, rng(2), 2000
    lost = source.binomial(size, source.beta(rate * rest, (1 - rate) * rest, (runs, groups)))
    for sums, least, truth in ((size - lost, 0.0, 1 - rate), (-lost, -1.0, -rate)):
        low, high = intervals.bounds(sums, np.full(groups, float(size)), least=least)
        assert np.mean((low <= truth) & (truth <= high)) >= 0.93


@pytest.mark.parametrize(("n", "churn", "rows"), [(200, 0.0, 1), (200, 0.1, 9), (60, 0.2, 1)])
def test_the_detectable_loss_is_detected_in_four_of_five_samples(n: int, churn: float, rows: int) -> None:
    loss = detectable(Flips(n * churn / 2, n * churn / 2, n), 0.05 / rows)
    assert loss is not None
    counts = rng(3).multinomial(n, [churn / 2 + loss, churn / 2, 1 - churn - loss], 2000)
    pairs, often = np.unique(counts[:, :2], axis=0, return_counts=True)
    p = np.array([statistics.discordant_p(lost, gained) for lost, gained in pairs.tolist()])
    assert 0.77 <= often[p <= 0.05 / rows].sum() / 2000 <= 0.83


def test_five_units_detect_nothing() -> None:
    assert detectable(Flips(0, 0, 5), 0.05) is None
    assert detectable(Flips(0, 0, 6), 0.05) is not None
    assert detectable(Flips(0, 0, 6), 0.05 / 9) is None


@pytest.mark.parametrize("churn", [0.0, 0.05, 0.2])
def test_the_examples_that_are_needed_are_enough(churn: float) -> None:
    n = needed(Flips(50 * churn, 50 * churn, 100), 0.05)
    counts = rng(4).multinomial(n, [churn / 2, churn / 2, 1 - churn], 300).tolist()
    assert np.mean([below_margin(Flips(lost, gained, n), 0.05) <= 0.05 for lost, gained, _ in counts]) >= 0.75


def test_what_is_left_is_bounded_and_not_only_estimated() -> None:
    none = share_left([1.0] * 20, [0.0] * 20, chance=0.0)
    few = share_left([1.0] * 9, [0.0] * 9, chance=0.0)
    assert none and few and none.share == few.share == 0
    assert none.at_most == pytest.approx(1 - 0.05 ** (1 / 20), abs=0.01) and few.at_most > 0.25
    assert share_left([0.0] * 20, [0.0] * 20, chance=0.0) is None
    source, missed = rng(5), 0
    for _ in range(500):
        before = (source.random(60) < 0.8).astype(float)
        found = share_left(before, before * (source.random(60) < 0.15), chance=0.0)
        missed += found is not None and found.at_most < 0.15
    assert missed / 500 <= 0.075


def test_random_sets_never_give_p_zero() -> None:
    assert statistics.random_set_p(-0.9, [0.0] * 49) == pytest.approx(1 / 50)
    assert statistics.random_set_p(-0.9, [-0.9, 0.0, 0.1]) == pytest.approx(2 / 4)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: intervals.mean_interval([]), "at least one example"),
        (lambda: intervals.mean_interval([0.5, float("nan")]), r"1 of 2 .*\(first at 1\)"),
        (lambda: intervals.mean_interval([0.0, 2.0]), r"\[0, 1\].* 0 to 2"),
        (lambda: intervals.change_interval([1.0], [1.0, 0.0]), "1 before and 2 after"),
        (lambda: intervals.mean_interval([1.0], clusters=["a", "b"]), "2 for 1"),
        (lambda: below_margin(Flips(0, 0, 9), -0.1), "between 0 and 1"),
    ],
)
def test_what_cannot_be_judged_is_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(EditkitError, match=says):
        call()


def test_sampled_flips_never_give_p_zero() -> None:
    assert statistics.sign_flip(np.full(40, -1.0), rng=rng(), flips=500) == pytest.approx(1 / 501)
