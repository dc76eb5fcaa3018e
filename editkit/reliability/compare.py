"""How far located sets agree: every pair of halves, by how the two are related, and by how sets are chosen.

The decoupling test: sets that follow the capability agree across content, and not across capabilities on the same
content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from editkit.evidence.overlap import MEASURES, overlap
from editkit.evidence.reliability import RELATIONS, Agreement, Pair
from editkit.localizers.commonality import beyond, common, contrasted, specific, strongest
from editkit.reliability.locate import Located
from editkit.reliability.plan import Settings

SIGMAS = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
SHARES = (0.0005, 0.0015, 0.005, 0.02)
"""The sizes that sets are compared at, as shares of all units; the paper's sets hold about .0015 of the parameters."""


@dataclass(frozen=True)
class Cut:
    """How a set is chosen from attributions, and what that is called."""

    name: str
    choose: Callable[[np.ndarray], np.ndarray]


def cut_of(settings: Settings) -> Cut:
    """By the paper's threshold, or by size where one is set."""
    return _sized(settings.size) if settings.size else _thresholded(settings.sigma)


def cuts(units: int, chosen: Cut) -> list[Cut]:
    """Every cut that agreement is reported at; ``chosen`` is among them."""
    sizes = sorted({max(2, round(share * units)) for share in SHARES})
    every = [*map(_thresholded, SIGMAS), *map(_sized, sizes)]
    return every if chosen.name in {cut.name for cut in every} else [chosen, *every]


def contrast(located: Sequence[Located], weight: float) -> list[Located]:
    """Every data set's attributions against those of all other capabilities; each control is a capability."""

    def others(own: Located) -> list[np.ndarray]:
        return [
            each.effect for each in located if each is not own and {each.sample.role, own.sample.role} != {"capability"}
        ]

    def halves(own: Located) -> np.ndarray:
        return np.stack([contrasted(half, others(own), weight) for half in own.halves])

    return [replace(each, halves=halves(each)) for each in located] if weight else list(located)


def sets(located: Sequence[Located], cut: Cut) -> dict[str, np.ndarray]:
    """What the data sets of the capability have in common, bool[units] by name.

    ``common``: what all locate; ``specific``: of these, what no other data set does; ``stable``: what every half of
    every one locates by itself.
    """
    own = [each for each in located if each.sample.role == "capability"]
    needed = [cut.choose(each.effect) for each in located if each.sample.role != "capability"]
    shared = common([cut.choose(each.effect) for each in own])
    stable = common([cut.choose(half) for each in own for half in each.halves])
    return {"common": shared, "specific": specific(shared, needed), "stable": stable}


def pairs(located: Sequence[Located], layer: np.ndarray, cut: Cut) -> list[Pair]:
    """Every pair of halves of which one at least shows the capability.

    Args:
        layer: int[units], the layer of each unit.
    """
    halves = [(each, which, cut.choose(each.halves[which])) for each in located for which in (0, 1)]
    return [
        Pair((a.sample.task.name, i), (b.sample.task.name, j), relation, overlap(first, second, layer))
        for (a, i, first), (b, j, second) in combinations(halves, 2)
        if (relation := _relation(a, i, b, j))
    ]


def agreement(located: Sequence[Located], layer: np.ndarray, chosen: Cut) -> list[Agreement]:
    """For each cut and relation, the mean of every measure."""
    return [
        _mean(cut.name, relation, [pair for pair in compared if pair.relation == relation])
        for cut in cuts(len(layer), chosen)
        for compared in [pairs(located, layer, cut)]
        for relation in RELATIONS
        if any(pair.relation == relation for pair in compared)
    ]


def _relation(a: Located, i: int, b: Located, j: int) -> str:
    """The first is before the second in the plan, so of the capability if one is."""
    if a.sample.role != "capability":
        return ""
    if b.sample.role != "capability":
        return "content" if b.sample.role == "content" else "neither"
    if a is b:
        return "other half"
    return f"other format, {'same' if a.contents[i] & b.contents[j] else 'other'} content"


def _mean(chosen: str, relation: str, compared: Sequence[Pair]) -> Agreement:
    full = [pair.overlap for pair in compared if pair.overlap.values]
    means = [
        {name: float(np.mean([getattr(each, kind)[name] for each in full])) for name in MEASURES} if full else {}
        for kind in ("values", "expected")
    ]
    size = float(np.mean([(pair.overlap.first + pair.overlap.second) / 2 for pair in compared]))
    return Agreement(chosen, relation, len(compared), len(compared) - len(full), size, *means)


def _thresholded(sigma: float) -> Cut:
    return Cut(f"{sigma:g} sigma", partial(beyond, sigma=sigma))


def _sized(size: int) -> Cut:
    return Cut(f"top {size}", partial(strongest, size=size))
