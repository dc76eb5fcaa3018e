"""Exhaustive search: every head alone on every example (``one-shot``), again after each head taken (``greedy``).

    greedy, 1024 heads, 5 rounds: 1024 + 1023 + 1022 + 1021 + 1020 = 5110 evaluations
    one-shot:                     1024

The paper's two baselines. Greedy alone sees backup heads, because each round starts from the heads already out.
"""

from __future__ import annotations

import numpy as np

from editkit.evidence.localization import Measure, Ranking
from editkit.localizers.flip_test import weigh
from editkit.localizers.halving import Table
from editkit.localizers.search import Search


def one_shot(measure: Measure, columns: np.ndarray, rng: np.random.Generator) -> Ranking:
    """Knock out every head alone on the full search set and sort."""
    return greedy(measure, columns, rng, heads=1)


def greedy(measure: Measure, columns: np.ndarray, rng: np.random.Generator, *, heads: int = 5) -> Ranking:
    """Take the head that lowers the score most, knock it out for good, and look again.

    Args:
        heads: how many rounds. Each taken head carries the effect it had in its round, given those before it.
    """
    search = Search(measure, columns)
    before = search.unedited
    taken: list[int] = []
    rows = []
    rest = np.arange(search.candidates)
    while len(taken) < min(heads, search.candidates):
        table = Table(search, rng, np.array(taken) if taken else None, before)
        table.grow(rest, search.examples)
        evidence = weigh(table.differences[rest], len(rest), rng)
        order = np.argsort(evidence.effect, kind="stable")
        if not taken:
            alone = rest[order], *(value[order] for value in evidence.columns)
            found = bool(evidence.needed.any())
        best = order[0]
        before = before + table.differences[rest[best]]
        taken.append(int(rest[best]))
        rows.append(evidence.rows()[best])
        rest = np.delete(rest, best)
    places, *values = alone
    later = ~np.isin(places, taken)
    columns_in_order = search.columns[np.concatenate([np.array(taken), places[later]])]
    effect, low, high, p, again = (
        np.concatenate([np.array(rows)[:, index], value[later]]) for index, value in enumerate(values)
    )
    conditional = {
        int(search.columns[place]): search.columns[taken[:step]].tolist() for step, place in enumerate(taken)
    }
    diagnostics = {"rounds": len(taken), "conditional": {head: given for head, given in conditional.items() if given}}
    return Ranking(columns_in_order, effect, low, high, p, again, found, search.evaluations, diagnostics)
