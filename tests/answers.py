"""Answers that must be the same, and masks to get them under."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from editkit.models.language_model import LanguageModel
from editkit.tasks.task import Likelihood, Output


def assert_same(first: Sequence[Output], second: Sequence[Output]) -> None:
    """Equal but for rounding: float32 sums over other batch shapes, or by another kernel, differ by 1e-6 a token."""
    for one, other in zip(first, second, strict=True):
        if isinstance(one, Likelihood) and isinstance(other, Likelihood):
            assert (one.tokens, one.greedy) == (other.tokens, other.greedy)
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        else:
            assert one == other


def random_masks(model: LanguageModel, rows: int) -> np.ndarray:
    """bool[rows, heads], a tenth of the heads each; the first row is the unedited model."""
    masks = np.random.default_rng(0).random((rows, len(model.architecture.heads))) < 0.1
    masks[0] = False
    return masks
