"""Neurons that only the target needs come first.

If one fails: neurons that everything needs are removed, and the model with them.
"""

from __future__ import annotations

import numpy as np

from editkit.localizers.contrast import contrast, shared


def test_what_other_tasks_need_counts_against_a_neuron_and_what_harms_them_does_not_count_for_it() -> None:
    target = np.array([3.0, 3.0, 3.0, 1.0])
    controls = {"one": np.array([0.0, 2.0, -5.0, 0.0]), "two": np.array([0.0, 2.0, 0.0, 0.0])}
    np.testing.assert_array_equal(contrast({"target": target}, controls), [3.0, -1.0, 3.0, 1.0])
    np.testing.assert_array_equal(contrast({"target": target}, {}), target)


def test_every_format_of_the_target_counts() -> None:
    np.testing.assert_array_equal(contrast({"a": np.array([2.0, 0.0]), "b": np.array([0.0, 4.0])}, {}), [1.0, 2.0])


def test_a_task_that_does_the_same_as_the_target_shares_its_strongest_neurons() -> None:
    rng = np.random.default_rng(0)
    target, other = rng.normal(size=5000), rng.normal(size=5000)
    found = shared({"target": target}, {"same": 2 * target, "other": other}, 50)
    assert found["same"] == 1.0 and found["other"] < 0.1
