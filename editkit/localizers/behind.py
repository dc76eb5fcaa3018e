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
from editkit.localizers.search import Search

NOTABLE = 0.1
"""What is not at least this share of the strongest drop is not worth conditioning on, nor counted as a backup."""
SILENT = 16
"""How many heads that a prior names, and that do little alone, are knocked out together: see ``fours``."""
SETS, MEMBERS, MOST = 3, 3, 0.4
"""So many sets are looked into; in a pair or a triple, each head restores at least this share of the drop. More heads
than three that all restore it are no redundant pair, but general damage."""
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
    """Knock out together, four at a time, what the prior names and what does little alone. Returns how many it takes.

    Not all at once: the prior also names heads that everything needs a little, and sixteen of those break any task.
    Each two of the sixteen meet in exactly one of twenty sets of four.

    Args:
        named: positions that the prior calls needed, most needed first.
    """
    table, search = found.table, found.table.search
    few = table.sequence[: max(1, search.examples // 4)]
    measured = set(np.flatnonzero(np.isfinite(table.differences[:, few]).all(axis=1)).tolist())
    silent = np.array([place for place in named.tolist() if place in measured and place not in found.places][:SILENT])
    if len(silent) < 2:
        return 0
    lines = [silent[[point for point in line if point < len(silent)]] for line in fours()]
    lines = [line for line in lines if len(line) > 1]
    masks = np.zeros((len(lines), search.candidates), dtype=bool)
    for mask, line in zip(masks, lines, strict=True):
        mask[line] = True
    joint = search.differences(masks, few)
    excess = joint - np.stack([table.differences[np.ix_(line, few)].sum(0) for line in lines])
    telling = np.flatnonzero(stands_out(excess))
    before = len(found.places)
    for index in telling[np.argsort(excess.mean(1)[telling], kind="stable")][:SETS]:
        members = _members(search, lines[index], joint[index], few)
        if 1 < len(members) <= MEMBERS and not set(members.tolist()) & set(found.places):
            _take_together(found, members, hypotheses, rng)
    return len(found.places) - before


def fours() -> list[list[int]]:
    """The twenty lines of the affine plane over the field of four elements: sixteen points, four on each line."""
    times = ((0, 0, 0, 0), (0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2))
    slanted = [[4 * x + (times[slope][x] ^ shift) for x in range(4)] for slope in range(4) for shift in range(4)]
    return slanted + [[4 * x + y for y in range(4)] for x in range(4)]


def _members(search: Search, line: np.ndarray, joint: np.ndarray, few: np.ndarray) -> np.ndarray:
    """Who of a set matters: put back alone, it restores most of what the set costs."""
    masks = np.zeros((len(line), search.candidates), dtype=bool)
    masks[:, line] = True
    masks[np.arange(len(line)), line] = False
    added = joint[None] - search.differences(masks, few)
    return line[stands_out(added) & (added.mean(axis=1) <= MOST * joint.mean())]


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
