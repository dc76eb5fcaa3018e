"""Sequential halving: knock out every head alone on a few examples, keep the better half, double the examples.

    1024 heads x 3 examples -> 512 x 6 -> 256 x 12 -> 128 x 25 -> 64 x 50 -> 32 x 100

A single teacher-forced knockout has no noise but the differences between examples, so no assumption of sparsity or
additivity is needed. Examples are added, never repeated: the whole costs about a tenth of knocking out every head
on everything. It is blind to heads that show only together (see ``adaptive``), and a head that matters
to a tenth of the examples may be lost in the first round: raise ``first``.
"""

from __future__ import annotations

import numpy as np

from editkit.evidence.localization import Measure, Ranking
from editkit.localizers.flip_test import weigh
from editkit.localizers.search import Search


def halving(
    measure: Measure,
    columns: np.ndarray,
    rng: np.random.Generator,
    *,
    first: int = 6,
    keep: int = 16,
) -> Ranking:
    """Order the heads by exact single knockouts, spending examples where they decide something.

    Args:
        first: on how many examples every head is tried.
        keep: how many heads are measured on all examples at the end.
    """
    search = Search(measure, columns)
    table = Table(search, rng)
    finalists = halve(table, np.arange(search.candidates), first=first, keep=keep)
    evidence = weigh(table.differences[finalists], search.candidates, rng)
    order = table.order()
    numbers = np.full((5, search.candidates), np.nan)
    numbers[0] = table.means()
    numbers[:, finalists] = evidence.columns
    diagnostics = {"finalists": len(finalists), "first": first}
    effect, low, high, p, again = numbers[:, order]
    found = bool(evidence.needed.any())
    return Ranking(search.columns[order], effect, low, high, p, again, found, search.evaluations, diagnostics)


class Table:
    """What is known of each head: its paired differences, NaN where it was not measured.

    ``given`` are heads (positions) that are out in every row, and ``before`` are the scores with just those out, to
    which differences are taken. Examples come in one order for all heads, so that heads are compared on the same ones.
    """

    def __init__(
        self,
        search: Search,
        rng: np.random.Generator,
        given: np.ndarray | None = None,
        before: np.ndarray | None = None,
    ) -> None:
        self.search, self.given = search, given
        self.before = search.unedited if before is None else before
        self.sequence = telling_first(self.before, rng)
        self.differences = np.full((search.candidates, search.examples), np.nan)

    def grow(self, places: np.ndarray, examples: int) -> None:
        """Measure ``places`` on the first ``examples`` of the sequence; what is known is not asked again."""
        wanted = self.sequence[:examples]
        unknown = np.isnan(self.differences[np.ix_(places, wanted)])
        for pattern in np.unique(unknown, axis=0):
            if pattern.any():
                rows, new = places[(unknown == pattern).all(1)], wanted[pattern]
                scores = self.search.scores(self.search.masks_of(rows, self.given), new)
                self.differences[np.ix_(rows, new)] = scores - self.before[new]

    def known(self) -> np.ndarray:
        """On how many examples each head was measured."""
        return (~np.isnan(self.differences)).sum(1)

    def means(self) -> np.ndarray:
        known = self.known()
        return np.where(known > 0, np.nansum(self.differences, 1) / np.maximum(known, 1), np.nan)

    def best(self, places: np.ndarray, count: int) -> np.ndarray:
        """The ``count`` of ``places`` with the strongest drop, strongest first."""
        return places[np.argsort(self.means()[places], kind="stable")[:count]]

    def order(self) -> np.ndarray:
        """Heads measured on more examples first, the strongest drop first among equals."""
        return np.lexsort((np.nan_to_num(self.means(), nan=np.inf), -self.known()))


def halve(
    table: Table, places: np.ndarray, *, first: int, keep: int, shrink: int = 2, last: int | None = None
) -> np.ndarray:
    """The best of ``places``, strongest first, measured on ``last`` examples: at most ``keep`` of them.

    Args:
        first: examples in the first round; doubled in each.
        shrink: one in how many goes on to the next round.
        last: stop at so many examples (None: all).
    """
    last = table.search.examples if last is None else last
    examples = min(first, last)
    while len(places) > keep:
        table.grow(places, examples)
        some = max(keep, len(places) // shrink) if examples < last else keep
        places = table.best(places, some)
        examples = min(2 * examples, last)
    table.grow(places, last)
    return table.best(places, keep)


def telling_first(before: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order of the examples, those that cannot show a drop last: one that scores .1 can fall by .1 at most."""
    shuffled = rng.permutation(len(before))
    return shuffled[np.argsort(before[shuffled] < np.median(before) / 2, kind="stable")]
