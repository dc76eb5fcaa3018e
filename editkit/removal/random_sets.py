"""The null of a removal: random sets of as many units in the same layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.evidence import verdict
from editkit.evidence.verdict import RandomHeads
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.removal.trial import Sheet
from editkit.units import Unit, kind


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
    few = slice(0, draw.examples)
    architecture, rng = ledger.model.architecture, np.random.default_rng(draw.seed)
    sets = random_sets(
        architecture, architecture.knockout(units), draw.sets, rng, aside=architecture.knockout(universal)
    )
    with ledger.stage(f"Random {kind(units)}s", len(sets) * len(before.examples[few])) as ledger:
        cells = task_scores(ledger, before.task, before.examples[few], sets)
    base = np.mean([cell.value for cell in before.cells[few]])
    change = float(np.mean([cell.value for cell in after.cells[few]]) - base)
    deltas = [float(np.mean([cell.value for cell in row]) - base) for row in cells]
    asked = len(before.cells[few])
    return verdict.random_heads(change, deltas, examples=asked, task=before.task.name, kind=kind(units))


def random_sets(
    architecture: Architecture, chosen: Knockout, count: int, rng: np.random.Generator, *, aside: Knockout = NOTHING
) -> list[Knockout]:
    """``count`` sets as large as ``chosen``, layer by layer and kind by kind, of other units.

    Where a layer has too few others, the set takes what there is.

    Args:
        aside: units that no set takes: universal heads are left out, as they are left out of the search.
    """
    taken = (chosen | aside).places
    starts: list[int] = architecture.starts.tolist()
    drawn: list[list[np.ndarray]] = [[] for _ in range(count)]
    sites, needs = np.unique(np.searchsorted(starts, chosen.places, side="right") - 1, return_counts=True)
    for site, need in zip(sites.tolist(), needs.tolist(), strict=True):
        pool = np.setdiff1d(np.arange(starts[site], starts[site + 1]), taken)
        for places in drawn:
            places.append(rng.choice(pool, size=min(need, len(pool)), replace=False))
    return [Knockout.of(np.concatenate(places)) for places in drawn]
