"""Scores as samples: checked numbers, the same examples twice, and clusters of examples that belong together.

    checked([1, 0, 1], "scores")                         -> array([1., 0., 1.])
    by_cluster([1, 0, 1], ["greeting", "greeting", "bye"])  -> sums [1., 1.], sizes [2., 1.]

Examples that share a template share a cluster; clusters, not examples, are then what is resampled and counted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from editkit.errors import EditkitError

Numbers = Sequence[float] | np.ndarray
Labels = Sequence[Hashable]


def finite(values: Numbers, what: str) -> np.ndarray:
    """A flat array of numbers; ``what`` names them in errors."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1:
        raise EditkitError(f"Expected a flat list of {what}, found an array of shape {array.shape}.")
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise EditkitError(f"{len(bad)} of {len(array)} {what} are not numbers (first at {bad[0]}): mend the scorer.")
    return array


def checked(values: Numbers, what: str) -> np.ndarray:
    """Scores: at least one, all in [0, 1]."""
    array = finite(values, what)
    if len(array) == 0:
        raise EditkitError(f"No {what}: a task needs at least one example in the split.")
    if array.min() < 0 or array.max() > 1:
        raise EditkitError(f"Scores must lie in [0, 1]; these {what} reach from {array.min():g} to {array.max():g}.")
    return array


def paired(before: Numbers, after: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the same examples, before and after."""
    first, second = checked(before, "scores before"), checked(after, "scores after")
    if len(first) != len(second):
        raise EditkitError(
            f"A paired comparison needs the same examples twice, found {len(first)} before and {len(second)} after."
        )
    return first, second


def by_cluster(values: np.ndarray, clusters: Labels | None) -> tuple[np.ndarray, np.ndarray]:
    """Sum and size of each cluster."""
    if clusters is None:
        return values, np.ones(len(values))
    if len(clusters) != len(values):
        raise EditkitError(f"Expected one cluster per example, found {len(clusters)} for {len(values)}.")
    numbers: dict[Hashable, int] = {}
    index = np.array([numbers.setdefault(label, len(numbers)) for label in clusters])
    return np.bincount(index, weights=values), np.bincount(index).astype(float)


def labels(clusters: Sequence[str]) -> Labels | None:
    """A label per example from the names of clusters: an empty name stands alone. None: all of them do."""
    # A number is no name, so an example that stands alone never meets a cluster that was named by a number.
    return [name or number for number, name in enumerate(clusters)] if any(clusters) else None


def is_binary(values: np.ndarray) -> bool:
    """Whether all scores are 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())
