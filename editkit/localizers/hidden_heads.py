"""Heads that show only together with others: backups, and redundant pairs.

    backup           knocking out B alone does nothing, as A does the work; with A out, B does it
    redundant pair   A and B do the same work: neither alone shows, both together do

A search by single knockouts sees neither. ``backups`` screens again with the found heads out. ``redundant`` needs a
prior that names heads which alone do nothing (gradients taken with all heads scaled down together do): without one,
any of a million pairs could be the one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editkit.localizers.flip_test import Row, stands_out, weigh
from editkit.localizers.halving import halve
from editkit.localizers.knockouts import Search, Table, telling_first

NOTABLE = 0.1
"""What is not at least this share of the strongest drop is not worth conditioning on, nor counted as a backup."""
SILENT = 25
"""How many heads that a prior names, and that do little alone, are knocked out together: see ``fives``."""
SETS, MEMBERS, MOST = 3, 3, 0.4
"""So many sets are looked into; in a pair or a triple, each head restores at least this share of the drop. More heads
than three that all restore it are no redundant pair, but general damage."""
DOMINANT = 0.5
"""A head that alone takes more than this share of the score hides what it does not carry itself."""
BEST = 4
"""How many heads each screen for backups measures on a quarter of the examples; all, if they matter there."""


@dataclass(frozen=True)
class Taken:
    """A head that is certainly needed, by its place: ``row`` was measured with the places ``given`` out as well.

    ``weight`` decides the order of all taken heads: the change that the head makes beyond what it does alone.
    """

    place: int
    row: Row
    weight: float
    given: tuple[int, ...] = ()


def places_of(taken: Sequence[Taken]) -> list[int]:
    return [head.place for head in taken]


def backups(taken: Sequence[Taken], table: Table, first: int, hypotheses: int, rng: np.random.Generator) -> list[Taken]:
    """Screen all other heads with the taken ones out: those that are needed now.

    A head counts as a backup when its drop given the others is significant, notable, and at least twice its drop alone:
    a weak head grows a little in any model that is already damaged. One that is needed alone as well was only missed by
    the screen, and is taken as such.

    Args:
        first: on how many examples every head is tried.
    """
    search, given = table.search, places_of(_notable(taken))
    rest = np.setdiff1d(np.arange(search.candidates), places_of(taken))
    if len(rest) == 0:
        return []
    least = NOTABLE * min(head.row[0] for head in taken)
    again = Table(search.behind(given), rng)
    best = halve(again, rest, first=first, keep=BEST, shrink=4, last=max(1, search.examples // 4))
    best = best[again.means()[best] <= least]
    if len(best) == 0:
        return []
    again.grow(best, search.examples)
    best = best[stands_out(again.differences[best]) & (again.means()[best] <= least)]
    if len(best) == 0:
        return []
    table.grow(best, search.examples)
    alone, behind = (weigh(each.differences[best], hypotheses, rng) for each in (table, again))
    new = []
    for index, place in enumerate(best.tolist()):
        if alone.needed[index]:
            new.append(Taken(place, alone.rows()[index], float(alone.effect[index])))
        elif behind.needed[index] and behind.effect[index] <= 2 * alone.effect[index]:
            beyond = float(behind.effect[index] - alone.effect[index])
            new.append(Taken(place, behind.rows()[index], beyond, tuple(given)))
    return new


def redundant(
    taken: Sequence[Taken], search: Search, named: np.ndarray, hypotheses: int, rng: np.random.Generator
) -> list[Taken]:
    """Knock out together, five at a time, what the prior names and what does little alone: pairs and triples.

    The taken heads are out meanwhile: what no longer matters then has no share in what is left. A head that alone
    takes most of the score (a format head, say) stays in: without it nothing is left to see. Not all 25 at once: the
    prior also names heads that everything needs a little, and 25 of those break any task.

    Args:
        named: places that the prior calls needed, most needed first.
    """
    silent = np.array([place for place in named.tolist() if place not in places_of(taken)][:SILENT], dtype=int)
    sets = [silent[[point for point in line if point < len(silent)]] for line in fives()]
    sets = [places for places in sets if len(places) > 1]
    if not sets:
        return []
    dominant = -DOMINANT * search.before.mean()
    rest = search.behind(head.place for head in _notable(taken) if head.row[0] > dominant)
    few = telling_first(rest.before, rng)[: max(1, search.examples // 4)]
    joint = rest.differences(rest.masks(sets), few)
    telling = np.flatnonzero(stands_out(joint))
    new: list[Taken] = []
    for index in telling[np.argsort(joint.mean(1)[telling], kind="stable")][:SETS]:
        places = sets[index]
        added = joint[index] - rest.differences(rest.masks(places[places != place] for place in places), few)
        members = places[stands_out(added) & (added.mean(axis=1) <= MOST * joint[index].mean())]
        if 1 < len(members) <= MEMBERS and not set(members.tolist()) & set(places_of(new)):
            new += _together(rest, members, hypotheses, rng)
    return new


def fives() -> list[list[int]]:
    """Thirty sets of five that cover 25 points so that each two of them meet in exactly one set.

    These are the lines of the affine plane over the integers modulo 5.
    """
    slanted = [[5 * x + (slope * x + shift) % 5 for x in range(5)] for slope in range(5) for shift in range(5)]
    return slanted + [[5 * x + y for y in range(5)] for x in range(5)]


def _together(search: Search, members: np.ndarray, hypotheses: int, rng: np.random.Generator) -> list[Taken]:
    """Test on all examples what each member adds to the knockout of the others: at least twice what it does alone."""
    others = [members[members != place] for place in members]
    whole, *rest = search.differences(search.masks([members, *others, *members[:, None]]))
    added = whole - np.array(rest[: len(members)])
    alone = np.array(rest[len(members) :]).mean(1)
    evidence = weigh(added, hypotheses, rng)
    return [
        Taken(place, row, row[0] / len(members), (*map(int, beside), *search.given))
        for place, row, needed, single, beside in zip(
            members.tolist(), evidence.rows(), evidence.needed, alone, others, strict=True
        )
        if needed and row[0] <= 2 * single
    ]


def _notable(taken: Sequence[Taken]) -> list[Taken]:
    """The taken heads that matter next to the strongest: those to knock out when looking again."""
    least = NOTABLE * min((head.row[0] for head in taken), default=0.0)
    return [head for head in taken if head.row[0] <= least]
