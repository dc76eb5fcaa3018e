"""``auto``, the default: screen cheaply, knock the candidates out one by one, then look again without what was found.

    1  screen      all heads alone on a few examples; all heads in small groups on many examples; and, when the model
                   can give them, integrated gradients (the ``prior``). Each screen sees what another misses: few
                   examples miss a head that matters to a tenth of them, groups drown a weak head among its neighbours.
    2  verify      exact single knockouts on the union, more examples for fewer heads, all examples at the end
    3  look again  for heads that show only together: see ``hidden_heads``
    4  stop        by evidence: a head counts when its drop is significant among all candidates and matters

A run with 1024 heads and 100 examples costs about 240 evaluations, one-shot search 1024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from editkit.localizers.flip_test import Row, weigh
from editkit.localizers.halving import halve
from editkit.localizers.hidden_heads import Taken, backups, redundant
from editkit.localizers.knockouts import Search, Table
from editkit.localizers.protocol import Measure, Ranking

Prior = Callable[[], tuple[np.ndarray | None, float]]
"""Cheap guesses: effects of *all* units (float[units], negative = needed; None if they cannot be had); evaluations."""

PAIRS_COST = 13
"""About what looking for redundant pairs takes: thirty sets on a quarter of the examples, and the tests that follow."""


def auto(
    measure: Measure,
    columns: np.ndarray,
    rng: np.random.Generator,
    *,
    prior: Prior | None = None,
    budget: float | None = None,
) -> Ranking:
    """Find the heads with the fewest evaluations that let them be believed.

    Args:
        prior: integrated gradients over gates, when the model can give them. None: the screens do without, and a
            redundant pair is not found.
        budget: evaluations to stay under where stages are optional (looking again); None = ``usual_budget``.
    """
    search = Search.of(measure, columns)
    budget = usual_budget(search.candidates) if budget is None else budget
    guesses = _guesses(search, prior)
    plan = Plan.of(search.candidates, search.examples, guesses is not None)
    table = Table(search, rng)
    finalists = _screen(table, plan, guesses, rng)
    evidence = weigh(table.differences[finalists], plan.hypotheses, rng)
    numbers = dict(zip(finalists.tolist(), evidence.rows(), strict=True))
    taken = [Taken(place, numbers[place], numbers[place][0]) for place in finalists[evidence.needed].tolist()]
    named = None if guesses is None else np.argsort(guesses, kind="stable")[: np.count_nonzero(guesses < 0)]
    hidden, skipped = _look_again(taken, table, plan, named, budget, rng)
    diagnostics = {
        "finalists": len(finalists),
        "first": plan.first,
        "group": plan.group,
        "prior": guesses is not None,
        "skipped": skipped,
    }
    return _ranking([*taken, *hidden], numbers, table, diagnostics)


def usual_budget(candidates: int) -> float:
    """A bit over a quarter of one-shot search; just under half where heads are few, as the last stages have a price."""
    return max(0.27 * candidates, min(0.48 * candidates, 90.0))


@dataclass(frozen=True)
class Plan:
    """How many heads meet how many examples at each stage, for a number of candidates and of examples.

    ``first``: examples on which every head is tried alone; ``again``: the same, with the taken heads out. ``group``:
    heads per group (0: no groups), tried on ``group_examples``; the members of ``groups_kept`` go on. ``named``: heads
    that go on because the prior names them. ``halfway``: examples on which all that go on are compared.
    ``finalists``: heads measured on all examples.
    """

    first: int
    again: int
    group: int
    group_examples: int
    groups_kept: int
    named: int
    halfway: int
    finalists: int
    hypotheses: int
    """By how much p is corrected: the candidates, twice where a prior allows a second kind of find."""

    @classmethod
    def of(cls, candidates: int, examples: int, prior: bool) -> Plan:
        few = candidates < (256 if prior else 96)
        group = 0 if few else int(np.clip(candidates // 16, 2, 8))
        groups = candidates // group if group else 0
        return cls(
            first=max(min(2, examples), round((0.06 if few and not prior else 0.03) * examples)),
            again=max(min(2, examples), round(0.03 * examples)),
            group=group,
            group_examples=max(1, examples // (4 if prior else 2)),
            groups_kept=max(6, groups // (16 if prior else 8)),
            named=int(np.clip(candidates // 16, min(20, candidates // 5), 48)),
            halfway=max(1, examples // 4),
            finalists=int(np.clip(candidates // 20, 8, 24)),
            hypotheses=candidates * (2 if prior else 1),
        )


def _guesses(search: Search, prior: Prior | None) -> np.ndarray | None:
    if prior is None:
        return None
    effects, cost = prior()
    search.measure.evaluations += cost
    return None if effects is None else np.asarray(effects, dtype=float)[search.columns]


def _screen(table: Table, plan: Plan, guesses: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """Three screens propose, exact knockouts on a quarter of the examples and then on all decide."""
    everyone = np.arange(table.search.candidates)
    proposed = halve(table, everyone, first=plan.first, keep=3 * plan.finalists, shrink=4, last=plan.halfway)
    grouped = _grouped(table, plan, rng) if plan.group else everyone[:0]
    named = np.argsort(guesses, kind="stable")[: plan.named] if guesses is not None else everyone[:0]
    union = np.unique(np.concatenate([proposed, grouped, named]))
    table.grow(union, plan.halfway)
    return halve(table, union, first=plan.halfway, keep=plan.finalists)


def _grouped(table: Table, plan: Plan, rng: np.random.Generator) -> np.ndarray:
    """The members of the groups whose joint knockout costs most."""
    groups = np.array_split(rng.permutation(table.search.candidates), -(-table.search.candidates // plan.group))
    drops = table.search.differences(table.search.masks(groups), table.sequence[: plan.group_examples]).mean(1)
    return np.concatenate([groups[index] for index in np.argsort(drops, kind="stable")[: plan.groups_kept]])


def _look_again(
    taken: list[Taken], table: Table, plan: Plan, named: np.ndarray | None, budget: float, rng: np.random.Generator
) -> tuple[list[Taken], str | None]:
    """Backups, then redundant pairs, then backups again until nothing new shows, as far as the budget goes.

    Returns the heads that this adds, and what was left out for want of budget, if anything.
    """
    search, hypotheses, hidden = table.search, 2 * plan.hypotheses, list[Taken]()
    screening = 1.3 * search.candidates * plan.again / search.examples + 2
    new, paired = bool(taken), named is None
    while new or not paired:
        if search.evaluations + (screening if new else PAIRS_COST) > budget:
            kind = "backups" if new else "redundant pairs"
            return hidden, f"looking for {kind} would go beyond the budget of {budget:.0f} evaluations"
        before = len(hidden)
        if new:
            hidden += backups([*taken, *hidden], table, plan.again, hypotheses, rng)
        if named is not None and not paired and search.evaluations + PAIRS_COST <= budget:
            hidden += redundant([*taken, *hidden], search, named, hypotheses, rng)
            paired = True
        new = len(hidden) > before
    return hidden, None


def _ranking(taken: list[Taken], numbers: dict[int, Row], table: Table, diagnostics: dict[str, object]) -> Ranking:
    """Taken heads by weight, then the others by how far they came, with their ``numbers`` where they were finalists."""
    ordered = sorted(taken, key=lambda head: head.weight)
    numbers = numbers | {head.place: head.row for head in ordered}
    first = [head.place for head in ordered]
    order = first + [place for place in table.order().tolist() if place not in first]
    unknown, means, columns = (float("nan"),) * 4, table.means(), table.search.columns
    rows = np.array([numbers.get(place, (float(means[place]), *unknown)) for place in order], dtype=float)
    given = {int(columns[head.place]): tuple(columns[list(head.given)].tolist()) for head in ordered if head.given}
    return Ranking(
        columns[order],
        *rows.T,
        found=bool(taken),
        evaluations=table.search.evaluations,
        given=given,
        diagnostics=diagnostics,
    )
