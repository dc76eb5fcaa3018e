"""Laws of measurement matrices: balance, exact row sizes, prefixes, and an honest count of what they can resolve.

If one fails: a search measures the wrong sets of heads, and its effects are off without a sign.
"""

from __future__ import annotations

import numpy as np
import pytest

from editkit.localizers.masks import bernoulli, coverage, heads_per_mask, stratified

CASES = [(128, 40, 0.05), (512, 100, 0.02), (100, 7, 0.29), (16, 9, 1.0), (5, 3, 0.01), (1, 2, 0.5)]


@pytest.mark.parametrize(("columns", "masks", "sparsity"), CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_stratified_rows_are_exact_and_columns_balanced(columns: int, masks: int, sparsity: float, seed: int) -> None:
    design = stratified(columns, masks, sparsity, np.random.default_rng(seed))
    assert design.shape == (masks, columns) and design.dtype == bool
    assert set(design.sum(1)) == {heads_per_mask(columns, sparsity)}
    assert np.ptp(design.sum(0)) <= 1


@pytest.mark.parametrize(("columns", "masks", "sparsity"), CASES)
def test_every_prefix_of_a_stratified_design_is_balanced(columns: int, masks: int, sparsity: float) -> None:
    design = stratified(columns, masks, sparsity, np.random.default_rng(3))
    for length in range(1, masks + 1):
        assert np.ptp(design[:length].sum(0)) <= 1


def test_heads_per_mask_is_not_fooled_by_floats() -> None:
    assert heads_per_mask(100, 0.29) == 29  # 100 * 0.29 is 28.999999999999996
    assert heads_per_mask(1000, 0.001) == 1
    assert heads_per_mask(10, 0.001) == 1


@pytest.mark.parametrize("sampler", [stratified, bernoulli])
def test_a_design_is_a_function_of_its_seed(sampler) -> None:
    first, again, other = (sampler(64, 20, 0.1, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert (first == again).all() and (first != other).any()


def test_ties_are_broken_at_random_so_that_rows_mix() -> None:
    """In eight passes no two of 64 heads may always go together."""
    design = stratified(64, 80, 0.1, np.random.default_rng(0))
    assert coverage(design).duplicates == 0
    order = np.arange(64)
    assert any((np.flatnonzero(row) != order[:6]).any() for row in design[:5])


def test_bernoulli_matches_its_rate() -> None:
    design = bernoulli(500, 400, 0.05, np.random.default_rng(0))
    assert abs(design.mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / design.size)


def test_coverage_counts_passes_and_twins() -> None:
    one_pass = stratified(100, 10, 0.1, np.random.default_rng(0))
    report = coverage(one_pass)
    assert report.passes == 1 and report.fewest == report.most == 1
    assert report.duplicates == 90  # ten groups of ten: nine of each have a twin before them
    assert report.warning is not None and "1.0 times" in report.warning and "80 masks" in report.warning
    assert coverage(stratified(100, 80, 0.1, np.random.default_rng(0))).warning is None
