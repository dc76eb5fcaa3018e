"""Overlaps are what sets say, and their expectations are what drawing says.

If one fails: agreement is claimed that chance alone would show.
"""

from __future__ import annotations

import numpy as np
import pytest

from editkit.evidence.overlap import MEASURES, overlap

LAYER = np.repeat([0, 1, 2], [40, 25, 10])


def of(places: set[int]) -> np.ndarray:
    return np.isin(np.arange(len(LAYER)), list(places))


def plain(first: set[int], second: set[int]) -> dict[str, float]:
    shared = len(first & second)
    return {
        "iou": shared / len(first | second),
        "dice": 2 * shared / (len(first) + len(second)),
        "overlap coefficient": shared / min(len(first), len(second)),
        "of the larger": shared / max(len(first), len(second)),
        "of the first": shared / len(first),
        "of the second": shared / len(second),
    }


FIRST, SECOND = {0, 1, 2, 3, 4, 5, 41, 42, 66}, {3, 4, 5, 6, 43, 44, 45, 66, 67, 68, 69, 70}


def test_every_measure_is_that_of_the_sets() -> None:
    found = overlap(of(FIRST), of(SECOND), LAYER)
    assert found.values == pytest.approx(plain(FIRST, SECOND)) and set(found.values) == set(MEASURES)


def test_expectations_and_p_are_those_of_random_sets_of_the_same_sizes_in_each_layer() -> None:
    rng, found = np.random.default_rng(0), overlap(of(FIRST), of(SECOND), LAYER)

    def draw(like: set[int]) -> set[int]:
        pools = [np.flatnonzero(each == LAYER) for each in range(3)]
        sizes = [sum(LAYER[place] == each for place in like) for each in range(3)]
        return {int(n) for pool, size in zip(pools, sizes, strict=True) for n in rng.choice(pool, size, replace=False)}

    drawn = [(draw(FIRST), draw(SECOND)) for _ in range(4000)]
    for name, expected in found.expected.items():
        values = [plain(*pair)[name] for pair in drawn]
        assert abs(np.mean(values) - expected) < 4 * np.std(values) / np.sqrt(len(values)), name
    assert found.p == pytest.approx(np.mean([len(a & b) >= found.shared for a, b in drawn]), abs=0.03)


def test_where_a_set_is_empty_nothing_is_claimed() -> None:
    found = overlap(of(FIRST), of(set()), LAYER)
    assert (found.values, found.p) == ({}, 1.0)
    assert overlap(of(FIRST), of(FIRST), LAYER).values["iou"] == 1
    assert overlap(of({0}), of({60}), LAYER).p == 1, "no layer in common: nothing to share"
