"""The null of a removal: random sets of as many heads in the same layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from editkit.checkpoints.architecture import Architecture
from editkit.evidence import verdict
from editkit.evidence.verdict import RandomHeads
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.removal.trial import Sheet
from editkit.units import Head


@dataclass(frozen=True)
class Draw:
    """How many random sets are drawn, and on how many of the target's examples each is measured."""

    sets: int
    examples: int
    seed: int = 0


def random_heads(
    ledger: Ledger, heads: frozenset[Head], universal: Iterable[Head], before: Sheet, after: Sheet, draw: Draw
) -> RandomHeads | None:
    """The target's change under random head sets, on the first ``draw.examples`` examples of its sheets.

    None where no set is to be drawn.
    """
    if draw.sets == 0 or not heads:
        return None
    few = slice(0, draw.examples)
    masks = random_sets(ledger.model.architecture, heads, universal, draw.sets, np.random.default_rng(draw.seed))
    with ledger.stage("Random heads", len(masks) * len(before.examples[few])) as ledger:
        cells = task_scores(ledger, before.task, before.examples[few], masks)
    base = np.mean([cell.value for cell in before.cells[few]])
    change = float(np.mean([cell.value for cell in after.cells[few]]) - base)
    deltas = [float(np.mean([cell.value for cell in row]) - base) for row in cells]
    return verdict.random_heads(change, deltas, examples=len(before.cells[few]), task=before.task.name)


def random_sets(
    architecture: Architecture, heads: Iterable[Head], universal: Iterable[Head], count: int, rng: np.random.Generator
) -> np.ndarray:
    """``count`` sets as large as ``heads``, layer by layer, of other heads: bool[count, heads].

    Universal heads are left out, as they are left out of the search. Where a layer has too few others, the set takes
    what there is.
    """
    chosen, taken = sorted(heads), {*heads, *universal}
    masks = np.zeros((count, len(architecture.heads)), dtype=bool)
    for layer in {head.layer for head in chosen}:
        need = sum(head.layer == layer for head in chosen)
        pool = [column for head, column in architecture.column.items() if head.layer == layer and head not in taken]
        for row in masks:
            row[rng.choice(np.array(pool, dtype=int), size=min(need, len(pool)), replace=False)] = True
    return masks
