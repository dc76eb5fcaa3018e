"""``auto``, the default: screen cheaply, knock the candidates out one by one, then look again behind what was found.

    1  screen      all heads alone on a few examples; all heads in small groups on many examples; and, when the model
                   can give them, integrated gradients (the ``prior``). Each screen sees what another misses: few
                   examples miss a head that matters to a tenth of them, groups drown a weak head among its neighbours.
    2  verify      exact single knockouts on the union, more examples for fewer heads, all examples at the end
    3  look again  for heads that show only together: see ``behind``
    4  stop        by evidence: a head counts when its drop is significant among all candidates and matters

A run with 1024 heads and 100 examples costs about 240 evaluations, one-shot search 1024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from editkit.evidence.localization import Measure, Ranking
from editkit.localizers.flip_test import weigh
from editkit.localizers.found import Found
from editkit.localizers.halving import Table, halve
from editkit.localizers.hidden_heads import backups, redundant
from editkit.localizers.search import Search

Prior = Callable[[], tuple[np.ndarray | None, float]]
"""Cheap guesses: effects of *all* units (float[units], negative = needed; None if they cannot be had); evaluations."""

PAIRS_COST = 10
"""About what looking for redundant pairs takes: twenty sets on a quarter of the examples, and the tests that follow."""
CONFIRMED = 12
"""How many finalists a second measure judges too."""


def auto(
    measure: Measure,
    columns: np.ndarray,
    rng: np.random.Generator,
    *,
    prior: Prior | None = None,
    confirm: Measure | None = None,
    budget: float | None = None,
) -> Ranking:
    """Find the heads with the fewest evaluations that let them be believed.

    Args:
        prior: integrated gradients over gates, when the model can give them. None: the screens do without, and a
            redundant pair is not found.
        confirm: a second, independent measure of the same capability (0/1 scores of generated answers). The strongest
            finalists are measured with it too and ordered by both: likelihoods weigh heads a little differently than
            answers do, and answers are coarse.
        budget: evaluations to stay under where stages are optional (looking again); None = ``usual_budget``.
    """
    search = Search(measure, columns)
    budget = usual_budget(search.candidates) if budget is None else budget
    guesses = _guesses(search, prior)
    plan = Plan.of(search.candidates, search.examples, guesses is not None)
    table = Table(search, rng)
    finalists = _screen(table, plan, guesses, rng)
    found = Found(table, weigh(table.differences[finalists], plan.hypotheses, rng), finalists)
    if confirm is not None:
        _confirmed(found, confirm)
    named = None if guesses is None else np.argsort(guesses, kind="stable")[: np.count_nonzero(guesses < 0)]
    skipped = _look_again(found, plan, named, budget, rng)
    return found.ranking({
        "finalists": len(finalists),
        "first": plan.first,
        "group": plan.group,
        "prior": guesses is not None,
        "skipped": skipped,
        "conditional": {
            int(search.columns[place]): search.columns[given].tolist() for place, given in found.conditional.items()
        },
    })  # fmt: skip


def usual_budget(candidates: int) -> float:
    """A bit over a quarter of one-shot search; just under half where heads are few, as the last stages have a price."""
    return max(0.27 * candidates, min(0.48 * candidates, 90.0))


@dataclass(frozen=True)
class Plan:
    """How many heads meet how many examples at each stage, for a number of candidates and of examples.

    ``first``: examples on which every head is tried alone; ``again``: the same, with the found heads out. ``group``:
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
    search.evaluations += cost
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
    masks = np.zeros((len(groups), table.search.candidates), dtype=bool)
    for mask, group in zip(masks, groups, strict=True):
        mask[group] = True
    drops = table.search.differences(masks, table.sequence[: plan.group_examples]).mean(1)
    return np.concatenate([groups[index] for index in np.argsort(drops, kind="stable")[: plan.groups_kept]])


def _confirmed(found: Found, confirm: Measure) -> None:
    """Order the strongest single heads by the mean of both measures, each in units of its own strongest drops."""
    search = found.table.search
    places = np.array(sorted(found.places, key=lambda place: found.weight[place])[:CONFIRMED], dtype=int)
    if len(places) < 2:
        return
    masks = np.zeros((1 + len(places), confirm.units), dtype=bool)
    masks[1 + np.arange(len(places)), search.columns[places]] = True
    scores = confirm(masks).mean(1)
    search.evaluations += len(masks) * confirm.examples / search.examples
    weights = np.array([found.weight[place] for place in places])
    second = scores[1:] - scores[0]
    scale = np.abs(weights).mean() / max(np.abs(second).mean(), 1e-12)
    for place, weight, other in zip(places.tolist(), weights, second, strict=True):
        found.weight[place] = float(weight + scale * other) / 2


def _look_again(
    found: Found, plan: Plan, named: np.ndarray | None, budget: float, rng: np.random.Generator
) -> str | None:
    """Backups, then redundant pairs, then backups again until nothing new shows, as far as the budget goes.

    Returns what was left out for want of budget, if anything.
    """
    search = found.table.search
    screening = 1.3 * search.candidates * plan.again / search.examples + 2
    new, paired = bool(found.places), named is None
    while new or not paired:
        if search.evaluations + (screening if new else PAIRS_COST) > budget:
            kind = "backups" if new else "redundant pairs"
            return f"looking for {kind} would go beyond the budget of {budget:.0f} evaluations"
        new = new and backups(found, plan.again, 2 * plan.hypotheses, rng) > 0
        if named is not None and not paired and search.evaluations + PAIRS_COST <= budget:
            new = redundant(found, named, 2 * plan.hypotheses, rng) > 0 or new
            paired = True
    return None
