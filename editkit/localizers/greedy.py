"""Exhaustive search: every head alone on every example (``one-shot``), again after each head taken (``greedy``).

    greedy, 1024 heads, 5 rounds: 1024 + 1023 + 1022 + 1021 + 1020 = 5110 evaluations
    one-shot:                     1024

The paper's two baselines. Greedy alone sees backup heads, because each round starts from the heads already out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from editkit.localizers.flip_test import Row, weigh
from editkit.localizers.knockouts import Search, Table
from editkit.localizers.protocol import Measure, Ranking


def one_shot(measure: Measure, columns: np.ndarray, rng: np.random.Generator) -> Ranking:
    """Knock out every head alone on the full search set and sort."""
    return greedy(measure, columns, rng, heads=1)


def greedy(measure: Measure, columns: np.ndarray, rng: np.random.Generator, *, heads: int = 5) -> Ranking:
    """Take the head that lowers the score most, knock it out for good, and look again.

    Args:
        heads: how many rounds. Each taken head carries the effect it had in its round, given those before it; all
            others the one they had alone, in the first.
    """
    search = Search.of(measure, columns)
    taken: dict[int, Row] = {}
    alone: dict[int, Row] = {}
    certain, rest = False, np.arange(search.candidates)
    while len(taken) < min(heads, search.candidates):
        table = Table(search, rng)
        table.grow(rest, search.examples)
        evidence = weigh(table.differences[rest], len(rest), rng)
        order = np.argsort(evidence.effect, kind="stable")
        rows = evidence.rows()
        if not taken:
            alone = {int(rest[index]): rows[index] for index in order}
            certain = bool(evidence.needed.any())
        best = int(rest[order[0]])
        taken[best] = rows[order[0]]
        search = replace(search, given=(*search.given, best), before=search.before + table.differences[best])
        rest = rest[rest != best]
    places = list(taken | alone)
    ranked = search.columns[places]
    given = {int(ranked[step]): tuple(ranked[:step].tolist()) for step in range(1, len(taken))}
    numbers = np.array([(alone | taken)[place] for place in places]).T
    return Ranking(
        ranked,
        *numbers,
        found=certain,
        evaluations=search.evaluations,
        given=given,
        diagnostics={"rounds": len(taken)},
    )
