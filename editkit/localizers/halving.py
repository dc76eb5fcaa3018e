"""Sequential halving: knock out every head alone on a few examples, keep the better half, double the examples.

    1024 heads x 3 examples -> 512 x 6 -> 256 x 12 -> 128 x 25 -> 64 x 50 -> 32 x 100

A single teacher-forced knockout has no noise but the differences between examples, so no assumption of sparsity or
additivity is needed. Examples are added, never repeated: the whole costs about a tenth of knocking out every head
on everything. It is blind to heads that show only together (see ``adaptive``), and a head that matters
to a tenth of the examples may be lost in the first round: raise ``first``.
"""

from __future__ import annotations

import numpy as np

from editkit.localizers.flip_test import weigh
from editkit.localizers.knockouts import Search, Table
from editkit.localizers.protocol import Measure, Ranking


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
    search = Search.of(measure, columns)
    table = Table(search, rng)
    finalists = halve(table, np.arange(search.candidates), first=first, keep=keep)
    evidence = weigh(table.differences[finalists], search.candidates, rng)
    order = table.order()
    numbers = np.full((5, search.candidates), np.nan)
    numbers[0] = table.means()
    numbers[:, finalists] = evidence.columns
    diagnostics = {"finalists": len(finalists), "first": first}
    return Ranking(
        search.columns[order],
        *numbers[:, order],
        found=bool(evidence.needed.any()),
        evaluations=search.evaluations,
        diagnostics=diagnostics,
    )


def halve(
    table: Table, places: np.ndarray, *, first: int, keep: int, shrink: int = 2, last: int | None = None
) -> np.ndarray:
    """The best of ``places``, strongest first, measured on ``last`` examples: at most ``keep`` of them.

    Args:
        first: examples in the first round; doubled in each.
        shrink: keep 1 of ``shrink`` candidates per round.
        last: examples in the last round; None = all.
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
