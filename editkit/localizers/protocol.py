"""What a localizer sees of a model, and what it answers.

>>> ranking = LOCALIZERS["halving"](measure, columns, np.random.default_rng(0))
>>> ranking.columns[:2], ranking.effect[:2]
(array([ 41, 107]), array([-0.31, -0.18]))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


class Measure(Protocol):
    """The only view of a model that a localizer has.

    Scores are in [0, 1], higher = the capability is shown more; the all-zero mask is the unedited model.
    """

    @property
    def examples(self) -> int:
        """How many examples the full search set has."""
        ...

    @property
    def units(self) -> int:
        """How many columns a mask has: every unit of the model, candidates or not."""
        ...

    def __call__(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        """bool[m, units] (True = knocked out), int[e] indices into the search set (None = all) -> float[m, e]."""
        ...


class Localizer(Protocol):
    """Finds the columns whose knockout lowers the score. Deterministic in ``rng``."""

    def __call__(self, measure: Measure, columns: np.ndarray, rng: np.random.Generator) -> Ranking:
        """``columns``: int[c], the candidate columns; a localizer never knocks out any other."""
        ...


@dataclass(frozen=True)
class Ranking:
    """A localizer's answer in columns: strongest first. Arrays share one length.

    ``effect`` is the change of the mean score when the unit is knocked out (negative = the unit is needed); ``low`` and
    ``high`` bound it at 95 %; ``p`` is corrected for multiplicity; ``stability`` is the share of random halves of
    what was measured (masks or examples) in which the unit shows. Unknown values are NaN.
    """

    columns: np.ndarray
    effect: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    stability: np.ndarray
    found: bool
    """Whether at least one drop is certain, and matters."""
    evaluations: float
    """Forward passes over the full search set, fractions included."""
    given: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Column -> the columns that were out as well when its effect was measured: a unit that shows only together with
    others (a backup, a redundant pair) carries the change that it adds to their knockout."""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
