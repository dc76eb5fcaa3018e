"""The null of a removal: random sets of as many units in the same layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.evidence import verdict
from editkit.evidence.verdict import RandomHeads
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.removal.trial import Sheet
from editkit.units import Unit, kind

MANY = 1_000_000
"""More sets than so many are not counted: those of 200 neurons make a number of 500 digits."""


@dataclass(frozen=True)
class Draw:
    """How many random sets are drawn, and on how many of the target's examples each is measured."""

    sets: int
    examples: int
    seed: int = 0


def random_heads(
    ledger: Ledger, units: frozenset[Unit], universal: Iterable[Unit], before: Sheet, after: Sheet, draw: Draw
) -> RandomHeads | None:
    """The target's change under random sets of units, on the first ``draw.examples`` examples of its sheets.

    None where no set is to be drawn.
    """
    if draw.sets == 0 or not units:
        return None
    architecture, rng = ledger.model.architecture, np.random.default_rng(draw.seed)
    chosen, aside = architecture.knockout(units), architecture.knockout(universal)
    sets = random_sets(architecture, chosen, draw.sets, rng, aside=aside)
    change, deltas = changes(ledger, f"Random {kind(units)}s", sets, before, after, draw.examples)
    asked = len(before.cells[: draw.examples])
    null = verdict.random_heads(change, deltas, examples=asked, task=before.task.name, kind=kind(units))
    return replace(null, possible=possible(pools(architecture, chosen, aside)))


def changes(
    ledger: Ledger, title: str, sets: Sequence[Knockout], before: Sheet, after: Sheet, examples: int
) -> tuple[float, list[float]]:
    """The mean change of a task's first ``examples`` examples: in its sheets, and under each of ``sets``."""
    few = slice(0, examples)
    with ledger.stage(title, len(sets) * len(before.examples[few])) as ledger:
        cells = task_scores(ledger, before.task, before.examples[few], sets)
    base = np.mean([cell.value for cell in before.cells[few]])
    change = float(np.mean([cell.value for cell in after.cells[few]]) - base)
    return change, [float(np.mean([cell.value for cell in row]) - base) for row in cells]


def random_sets(
    architecture: Architecture, chosen: Knockout, count: int, rng: np.random.Generator, *, aside: Knockout = NOTHING
) -> list[Knockout]:
    """``count`` different sets as large as ``chosen``, layer by layer and kind by kind; fewer where there are no more.

    A set may hold some of the chosen units, but never all of them: so ``chosen`` and the sets are draws of one kind
    without repetition, and its rank among them is an exact p (Phipson and Smyth 2010).

    Args:
        aside: units that no set takes: universal heads are left out, as they are left out of the search.
    """
    kinds = pools(architecture, chosen, aside)
    there = possible(kinds)
    if there is not None and there - 1 <= count:
        every = product(*(combinations(pool.tolist(), need) for pool, need in kinds))
        return [out for parts in every if (out := Knockout.of(np.concatenate(parts))) != chosen]
    drawn: dict[Knockout, None] = {}
    while len(drawn) < count:
        parts = [np.sort(rng.choice(pool, size=need, replace=False)) for pool, need in kinds]
        if (out := Knockout.of(np.concatenate(parts))) != chosen:
            drawn[out] = None
    return list(drawn)


def possible(kinds: Sequence[tuple[np.ndarray, int]]) -> int | None:
    """How many sets there are, the chosen one among them; None: more than anybody draws."""
    there = math.prod(math.comb(len(pool), need) for pool, need in kinds)
    return there if there <= MANY else None


def pools(architecture: Architecture, chosen: Knockout, aside: Knockout = NOTHING) -> list[tuple[np.ndarray, int]]:
    """What is drawn from, and how many: for each layer and kind of ``chosen``, all that is not ``aside``."""
    spared = np.setdiff1d(aside.places, chosen.places)
    starts: list[int] = architecture.starts.tolist()
    sites, needs = np.unique(np.searchsorted(starts, chosen.places, side="right") - 1, return_counts=True)
    return [
        (np.setdiff1d(np.arange(starts[site], starts[site + 1]), spared), need)
        for site, need in zip(sites.tolist(), needs.tolist(), strict=True)
    ]
