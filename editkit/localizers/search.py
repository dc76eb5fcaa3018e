"""A measure seen by a localizer: candidate columns only, differences to the unedited model, and what was spent.

search = Search(measure, columns)
search.differences(masks)            bool[m, candidates] -> float[m, examples], knocked out minus unedited
search.evaluations                   1.0 for the unedited model + m
"""

from __future__ import annotations

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence.localization import Measure


class Search:
    """Everything a localizer asks goes through here, so that nothing is forgotten in the count.

    The unedited model is measured once, on the full search set, when the search opens.
    """

    def __init__(self, measure: Measure, columns: np.ndarray) -> None:
        self.columns = np.asarray(columns, dtype=int)
        if len(self.columns) == 0 or len(np.unique(self.columns)) != len(self.columns):
            raise EditkitError("a localizer needs at least one candidate head, and each only once.")
        self.measure = measure
        self.examples = measure.examples
        self.evaluations = 1.0
        self.unedited = measure(np.zeros((1, measure.units), dtype=bool))[0]

    @property
    def candidates(self) -> int:
        return len(self.columns)

    def scores(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        """bool[m, candidates], int[e] or None -> float[m, e]."""
        full = np.zeros((len(masks), self.measure.units), dtype=bool)
        full[:, self.columns] = masks
        self.evaluations += len(masks) * (1.0 if examples is None else len(examples) / self.examples)
        return self.measure(full, examples)

    def differences(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        """The paired change against the unedited model: float[m, e], negative = the capability was shown less."""
        before = self.unedited if examples is None else self.unedited[examples]
        return self.scores(masks, examples) - before

    def alone(
        self, places: np.ndarray, examples: np.ndarray | None = None, given: np.ndarray | None = None
    ) -> np.ndarray:
        """Change when each of ``places`` (positions among the candidates) is knocked out, ``given`` out as well."""
        return self.differences(self.masks_of(places, given), examples)

    def masks_of(self, places: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
        """One mask per place, each with the places in ``given`` knocked out too."""
        masks = np.zeros((len(places), self.candidates), dtype=bool)
        masks[np.arange(len(places)), places] = True
        if given is not None:
            masks[:, given] = True
        return masks
