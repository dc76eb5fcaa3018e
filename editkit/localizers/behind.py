"""Heads that show only together with others: backups, and redundant pairs.

    backup           knocking out B alone does nothing, as A does the work; with A out, B does it
    redundant pair   A and B do the same work: neither alone shows, both together do

A search by single knockouts sees neither. ``backups`` screens again with the found heads out. ``redundant`` needs a
prior that names heads which alone do nothing (gradients taken with all heads scaled down together do): without one,
any of a million pairs could be the one.
"""

from __future__ import annotations

import numpy as np

from editkit.localizers.evidence import stands_out, weigh
from editkit.localizers.found import Found
from editkit.localizers.halving import Table, halve

NOTABLE = 0.1
"""What is not at least this share of the strongest drop is not worth conditioning on, nor counted as a backup."""
SILENT = 16
"""How many heads that a prior names, and that do little alone, are knocked out together."""
BEST = 4
"""How many heads each look behind the found ones measures on all examples."""


def backups(found: Found, first: int, hypotheses: int, rng: np.random.Generator) -> int:
    """Screen all other heads with the found ones out, and take those that are needed now. Returns how many.

    A head counts as a backup when its drop given the others is significant, notable, and at least twice its drop alone:
    a weak head grows a little in any model that is already damaged. One that is needed alone as well was only missed by
    the screen, and is taken as such.
    """
    table, search = found.table, found.table.search
    strongest = min(found.numbers[place][0] for place in found.places)
    given = np.array([place for place in found.places if found.numbers[place][0] <= NOTABLE * strongest])
    rest = np.setdiff1d(np.arange(search.candidates), found.places)
    if len(rest) == 0:
        return 0
    out = np.zeros((1, search.candidates), dtype=bool)
    out[0, given] = True
    again = Table(search, rng, given, search.scores(out)[0])
    best = halve(again, rest, first=first, keep=BEST, shrink=4)
    best = best[stands_out(again.differences[best]) & (again.means()[best] <= NOTABLE * strongest)]
    if len(best) == 0:
        return 0
    table.grow(best, search.examples)
    alone, behind = (weigh(part.differences[best], hypotheses, rng) for part in (table, again))
    before = len(found.places)
    for index, place in enumerate(best.tolist()):
        if alone.needed[index] and place not in found.places:
            found.add(place, alone.rows()[index], None)
        elif behind.needed[index] and behind.effect[index] <= 2 * alone.effect[index]:
            found.add(place, behind.rows()[index], given, beyond=float(behind.effect[index] - alone.effect[index]))
    return len(found.places) - before


def redundant(found: Found, named: np.ndarray, hypotheses: int, rng: np.random.Generator) -> int:
    """Knock out together what the prior names and what does little alone; put each back to see who matters.

    Args:
        named: positions that the prior calls needed, most needed first.
    """
    table, search = found.table, found.table.search
    few = table.sequence[: max(1, search.examples // 4)]
    measured = set(np.flatnonzero(np.isfinite(table.differences[:, few]).all(axis=1)).tolist())
    silent = np.array([place for place in named.tolist() if place in measured and place not in found.places][:SILENT])
    if len(silent) < 2:
        return 0
    together = np.zeros((1, search.candidates), dtype=bool)
    together[0, silent] = True
    joint = search.differences(together, few)
    alone = table.differences[np.ix_(silent, few)]
    if not stands_out(joint - alone.sum(0)).all():
        return 0
    without = np.repeat(together, len(silent), axis=0)
    without[range(len(silent)), silent] = False
    added = joint - search.differences(without, few)
    matters = stands_out(added - alone) & (added.mean(axis=1) <= 0.25 * joint.mean())
    members = silent[matters][np.argsort(added.mean(1)[matters], kind="stable")][:BEST]
    return _take_together(found, members, hypotheses, rng) if len(members) > 1 else 0


def _take_together(found: Found, members: np.ndarray, hypotheses: int, rng: np.random.Generator) -> int:
    """Test on all examples what each member adds to the knockout of the others."""
    search = found.table.search
    masks = np.zeros((1 + len(members), search.candidates), dtype=bool)
    masks[:, members] = True
    masks[1 + np.arange(len(members)), members] = False
    scores = search.scores(masks)
    evidence = weigh(scores[0] - scores[1:], hypotheses, rng)
    before = len(found.places)
    for place, row, needed in zip(members.tolist(), evidence.rows(), evidence.needed, strict=True):
        if needed:
            found.add(place, row, members[members != place], beyond=row[0] / len(members))
    return len(found.places) - before
