"""Heads that show only together with others: backups, and redundant pairs.

    backup           knocking out B alone does nothing, as A does the work; with A out, B does it
    redundant pair   A and B do the same work: neither alone shows, both together do

A search by single knockouts sees neither. ``backups`` screens again with the found heads out. ``redundant`` needs a
prior that names heads which alone do nothing (gradients taken with all heads scaled down together do): without one,
any of a million pairs could be the one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from editkit.localizers.flip_test import stands_out, weigh
from editkit.localizers.found import NOTABLE, Found
from editkit.localizers.halving import Table, halve, telling_first
from editkit.localizers.search import Search

SILENT = 16
"""How many heads that a prior names, and that do little alone, are knocked out together: see ``fours``."""
SETS, MEMBERS, MOST = 3, 3, 0.4
"""So many sets are looked into; in a pair or a triple, each head restores at least this share of the drop. More heads
than three that all restore it are no redundant pair, but general damage."""
DOMINANT = 0.5
"""A head that alone takes more than this share of the score hides what is behind it."""
BEST = 4
"""How many heads each look behind the found ones measures on a quarter of the examples; all, if they matter there."""


def backups(found: Found, first: int, hypotheses: int, rng: np.random.Generator) -> int:
    """Screen all other heads with the found ones out, and take those that are needed now. Returns how many.

    A head counts as a backup when its drop given the others is significant, notable, and at least twice its drop alone:
    a weak head grows a little in any model that is already damaged. One that is needed alone as well was only missed by
    the screen, and is taken as such.
    """
    table, search = found.table, found.table.search
    strongest, given = found.strongest(), found.notable()
    rest = np.setdiff1d(np.arange(search.candidates), found.places)
    if len(rest) == 0:
        return 0
    out = np.zeros((1, search.candidates), dtype=bool)
    out[0, given] = True
    again = Table(search, rng, given, search.scores(out)[0])
    best = halve(again, rest, first=first, keep=BEST, shrink=4, last=max(1, search.examples // 4))
    best = best[again.means()[best] <= NOTABLE * strongest]
    if len(best) == 0:
        return 0
    again.grow(best, search.examples)
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

    The found heads are out meanwhile: what no longer matters then is no part of what is left. Those stay in that alone
    take most of the score (a format head, say): with them out nothing is left to see. Not all at once: the prior also
    names heads that everything needs a little, and sixteen of those break any task. Each two of the sixteen meet in
    exactly one of twenty sets of four.

    Args:
        named: positions that the prior calls needed, most needed first.
    """
    search, given = found.table.search, found.notable()
    given = given[[found.numbers[place][0] > -DOMINANT * search.unedited.mean() for place in given.tolist()]]
    silent = np.array([place for place in named.tolist() if place not in found.places][:SILENT], dtype=int)
    lines = [silent[[point for point in line if point < len(silent)]] for line in fours()]
    lines = [line for line in lines if len(line) > 1]
    if not lines:
        return 0
    behind = Behind(search, given, rng)
    joint = behind.differences(lines, behind.few)
    telling = np.flatnonzero(stands_out(joint))
    before = len(found.places)
    for index in telling[np.argsort(joint.mean(1)[telling], kind="stable")][:SETS]:
        line = lines[index]
        added = joint[index] - behind.differences([line[line != place] for place in line], behind.few)
        members = line[stands_out(added) & (added.mean(axis=1) <= MOST * joint[index].mean())]
        if 1 < len(members) <= MEMBERS and not set(members.tolist()) & set(found.places):
            _take_together(found, behind, members, hypotheses, rng)
    return len(found.places) - before


def fours() -> list[list[int]]:
    """The twenty lines of the affine plane over the field of four elements: sixteen points, four on each line."""
    times = ((0, 0, 0, 0), (0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2))
    slanted = [[4 * x + (times[slope][x] ^ shift) for x in range(4)] for slope in range(4) for shift in range(4)]
    return slanted + [[4 * x + y for y in range(4)] for x in range(4)]


class Behind:
    """Knockouts of sets of heads on top of ``given``, as differences to ``given`` alone."""

    def __init__(self, search: Search, given: np.ndarray, rng: np.random.Generator) -> None:
        self.search, self.given = search, given
        self.before = search.scores(self._masks([given]))[0] if len(given) else search.unedited
        self.few = telling_first(self.before, rng)[: max(1, search.examples // 4)]

    def differences(self, sets: Sequence[np.ndarray], examples: np.ndarray | None = None) -> np.ndarray:
        """float[sets, examples]; None = all examples."""
        before = self.before if examples is None else self.before[examples]
        return self.search.scores(self._masks(sets), examples) - before

    def _masks(self, sets: Sequence[np.ndarray]) -> np.ndarray:
        masks = np.zeros((len(sets), self.search.candidates), dtype=bool)
        masks[:, self.given] = True
        for mask, places in zip(masks, sets, strict=True):
            mask[places] = True
        return masks


def _take_together(
    found: Found, behind: Behind, members: np.ndarray, hypotheses: int, rng: np.random.Generator
) -> None:
    """Test on all examples what each member adds to the knockout of the others: at least twice what it does alone."""
    others = [members[members != place] for place in members]
    whole, *rest = behind.differences([members, *others, *members[:, None]])
    added = whole - np.array(rest[: len(members)])
    alone = np.array(rest[len(members) :]).mean(1)
    evidence = weigh(added, hypotheses, rng)
    for index, place in enumerate(members.tolist()):
        row = evidence.rows()[index]
        if evidence.needed[index] and row[0] <= 2 * alone[index]:
            found.add(place, row, np.concatenate([others[index], behind.given]), beyond=row[0] / len(members))
