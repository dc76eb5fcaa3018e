"""The harder null of a removal: sets of as many heads, drawn by their own effect on the target, whatever their layers.

Would strong heads, picked by their own effect alone, have done the same? A set is drawn head by head, each time one of
the heads that are left, with probability proportional to its own effect (successive sampling).
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from editkit.checkpoints.knockout import Knockout
from editkit.evidence import strong_heads as evidence
from editkit.evidence.localization import Localization
from editkit.evidence.strong_heads import StrongHeads
from editkit.measuring.ledger import Ledger
from editkit.removal.random_sets import Draw, changes
from editkit.removal.trial import Sheet
from editkit.units import Head, Unit

BATCH, BATCHES = 1 << 20, 100
"""Waiting times in a batch of draws, at most; and batches. Sets that do not come up by then, within seconds, are left
out: where four heads of 79 hold nearly all of the effect, nearly every draw is these four."""


def strong_heads(
    ledger: Ledger, units: frozenset[Unit], localization: Localization, before: Sheet, after: Sheet, draw: Draw
) -> StrongHeads | None:
    """The target's change under sets of strong heads, on the first ``draw.examples`` examples of its sheets.

    None where no set is to be drawn or there is none, and for an edit that holds neurons: few of them have a measured
    effect of their own.
    """
    own = own_effects(localization)
    if not units or not own or any(not isinstance(unit, Head) for unit in units):
        return None
    architecture, rng = ledger.model.architecture, np.random.default_rng(draw.seed)
    places = np.array([int(architecture.knockout([head]).places[0]) for head in own])
    sets = strong_sets(places, np.array(list(own.values())), architecture.knockout(units), draw.sets, rng)
    if not sets:
        return None
    change, deltas = changes(ledger, "Strong heads", sets, before, after, draw.examples)
    asked = len(before.cells[: draw.examples])
    return evidence.strong_heads(change, deltas, pool=len(own), examples=asked, task=before.task.name)


def own_effects(localization: Localization) -> dict[Head, float]:
    """The heads whose knockout alone is known to lower the target, and by how much (> 0); universal heads aside."""
    return {
        each.unit: -each.effect
        for each in localization.order
        if isinstance(each.unit, Head) and each.effect < 0 and math.isfinite(each.effect) and not each.given
        if each.unit not in localization.universal
    }


def strong_sets(
    places: np.ndarray, effects: np.ndarray, chosen: Knockout, count: int, rng: np.random.Generator
) -> list[Knockout]:
    """``count`` different sets as large as ``chosen``, which is none of them; fewer where there are no more.

    The heads of a set are those with the shortest of exponential waiting times, whose rates are the effects: the order
    in which they come is that of draws without replacement (Efraimidis and Spirakis 2006).

    Args:
        places: int[heads], what is drawn from, each once.
        effects: float[heads], > 0: how strong each is.
    """
    size = len(chosen)
    if not 0 < size <= len(places) or count == 0:
        return []
    there = math.comb(len(places), size) - bool(np.isin(chosen.places, places).all())
    if there <= count:
        every = (Knockout.of(places[list(some)]) for some in combinations(range(len(places)), size))
        return [out for out in every if out != chosen]
    drawn: dict[Knockout, None] = {}
    rows, most = 2 * count, max(1, BATCH // len(places))
    for _ in range(BATCHES):
        waiting = rng.exponential(size=(min(rows, most), len(places))) / effects
        for first in np.argpartition(waiting, size - 1, axis=1)[:, :size]:
            if (out := Knockout.of(places[first])) != chosen:
                drawn[out] = None
            if len(drawn) == count:
                return list(drawn)
        rows *= 2
    return list(drawn)
