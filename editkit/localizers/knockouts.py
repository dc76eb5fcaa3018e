"""Knockouts of the candidates, counted, as changes of the score; and a table of those that were measured.

search = Search.of(measure, columns)
search.differences(masks)            bool[m, candidates] -> float[m, examples], knocked out minus unedited
search.behind(places)                the same search with those heads out in every mask
search.evaluations                   1.0 for the unedited model + m + 1.0 for the model without those heads

A head is named by its *place*: its position among the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from editkit.errors import EditkitError
from editkit.localizers.masks import of_sets
from editkit.localizers.protocol import Measure


class Counted:
    """A measure that counts what it is asked: ``evaluations``, in passes over its full search set."""

    def __init__(self, measure: Measure) -> None:
        self.measure, self.units, self.examples = measure, measure.units, measure.examples
        self.evaluations = 0.0

    def __call__(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        self.evaluations += len(masks) * (1.0 if examples is None else len(examples) / self.examples)
        return self.measure(masks, examples)


@dataclass(frozen=True)
class Search:
    """A measure seen by a localizer: knockouts of candidates only, as changes of the score.

    ``before`` are the scores that changes are taken to, float[examples]: those of the model with the places ``given``
    out, which every mask knocks out as well. At first nothing is given, and that is the unedited model.
    """

    measure: Counted
    columns: np.ndarray
    before: np.ndarray
    given: tuple[int, ...] = ()

    @classmethod
    def of(cls, measure: Measure, columns: np.ndarray) -> Search:
        """Measure the unedited model on the full search set.

        Raises:
            EditkitError: there are no candidates, or one comes twice.
        """
        columns = np.asarray(columns, dtype=int)
        if len(columns) == 0 or len(np.unique(columns)) != len(columns):
            raise EditkitError("a localizer needs at least one candidate head, and each only once.")
        counted = Counted(measure)
        return cls(counted, columns, counted(np.zeros((1, measure.units), dtype=bool))[0])

    def behind(self, given: Iterable[int]) -> Search:
        """The same search with the places ``given`` out in every mask too: one more evaluation, unless there are none.

        It counts together with this one.
        """
        places = tuple(map(int, given))
        if not places:
            return self
        return replace(self, given=(*self.given, *places), before=self.scores(self.masks([places]))[0])

    @property
    def candidates(self) -> int:
        return len(self.columns)

    @property
    def examples(self) -> int:
        return self.measure.examples

    @property
    def evaluations(self) -> float:
        return self.measure.evaluations

    def masks(self, sets: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
        """bool[sets, candidates]: one mask for each set of places."""
        return of_sets([np.asarray(places).tolist() for places in sets], self.candidates)

    def scores(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        """bool[m, candidates], int[e] or None (all) -> float[m, e]."""
        full = np.zeros((len(masks), self.measure.units), dtype=bool)
        full[:, self.columns] = masks
        full[:, self.columns[list(self.given)]] = True
        return self.measure(full, examples)

    def differences(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        """The paired change against ``before``: float[m, e], negative = the capability was shown less."""
        before = self.before if examples is None else self.before[examples]
        return self.scores(masks, examples) - before

    def alone(self, places: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        """The change when each of ``places`` is knocked out by itself: float[places, e]."""
        return self.differences(self.masks(places[:, None]), examples)


class Table:
    """What is known of each head: its paired differences, float[candidates, examples], NaN where it was not measured.

    Examples come in one order for all heads, so that heads are compared on the same ones.
    """

    def __init__(self, search: Search, rng: np.random.Generator) -> None:
        self.search = search
        self.sequence = telling_first(search.before, rng)
        self.differences = np.full((search.candidates, search.examples), np.nan)

    def grow(self, places: np.ndarray, examples: int) -> None:
        """Measure ``places`` on the first ``examples`` of the sequence; what is known is not asked again."""
        chosen = self.sequence[:examples]
        unknown = np.isnan(self.differences[np.ix_(places, chosen)])
        for pattern in np.unique(unknown, axis=0):
            if pattern.any():
                rows, new = places[(unknown == pattern).all(1)], chosen[pattern]
                self.differences[np.ix_(rows, new)] = self.search.alone(rows, new)

    def counts(self) -> np.ndarray:
        """On how many examples each head was measured."""
        return (~np.isnan(self.differences)).sum(1)

    def means(self) -> np.ndarray:
        counts = self.counts()
        return np.where(counts > 0, np.nansum(self.differences, 1) / np.maximum(counts, 1), np.nan)

    def best(self, places: np.ndarray, count: int) -> np.ndarray:
        """The ``count`` of ``places`` with the strongest drop, strongest first."""
        return places[np.argsort(self.means()[places], kind="stable")[:count]]

    def order(self) -> np.ndarray:
        """Heads measured on more examples first, the strongest drop first among equals."""
        return np.lexsort((np.nan_to_num(self.means(), nan=np.inf), -self.counts()))


def telling_first(before: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order of the examples, those that cannot show a drop last: one that scores .1 can fall by .1 at most."""
    shuffled = rng.permutation(len(before))
    return shuffled[np.argsort(before[shuffled] < np.median(before) / 2, kind="stable")]
