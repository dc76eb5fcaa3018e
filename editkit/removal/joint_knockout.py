"""What the found heads do as a set: their joint drop against random sets, and which of them share a KV group.

JointKnockout(units=(L1H3, L2H17), drop=.52, few_drop=.55, random=(.00, .01, ...), examples=10, p=.05,
              clusters=((L2H16, L2H17),))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from editkit.checkpoints.architecture import Architecture
from editkit.localizers.protocol import Measure
from editkit.removal.random_sets import random_sets
from editkit.units import Head

SETS, EXAMPLES = 19, 10
"""With 19 random sets the smallest p is 1/20. The report of a removal draws more, and real answers."""


@dataclass(frozen=True)
class JointKnockout:
    """``drop`` is on all examples; ``few_drop`` and the drops of the ``random`` sets are on the first ``examples``."""

    units: tuple[Head, ...]
    drop: float
    few_drop: float
    random: tuple[float, ...]
    examples: int
    p: float
    clusters: tuple[tuple[Head, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "units": [str(head) for head in self.units],
            "drop": self.drop,
            "random sets": {
                "sets": len(self.random),
                "examples": self.examples,
                "found drop": self.few_drop,
                "mean drop": float(np.mean(self.random)) if self.random else None,
                "largest drop": max(self.random, default=None),
                "p": self.p,
            },
            "in one KV group": [[str(head) for head in cluster] for cluster in self.clusters],
        }


def joint_knockout(
    heads: Sequence[Head],
    universal: Iterable[Head],
    architecture: Architecture,
    measure: Measure,
    rng: np.random.Generator,
) -> tuple[JointKnockout, float]:
    """Knock all ``heads`` out at once, and random sets with as many heads in each layer; and what that cost."""
    few = np.arange(min(EXAMPLES, measure.examples))
    unedited, edited = measure(architecture.masks([[], heads]))
    chosen, aside = architecture.knockout(heads), architecture.knockout(universal)
    drawn = random_sets(architecture, chosen, SETS, rng, aside=aside)
    sets = np.zeros((len(drawn), len(architecture.heads)), dtype=bool)
    for row, out in zip(sets, drawn, strict=True):
        row[out.places] = True
    before, drop = float(unedited[few].mean()), float((unedited - edited)[few].mean())
    drops = tuple(before - float(row.mean()) for row in measure(sets, few))
    p = (1 + sum(other >= drop for other in drops)) / (1 + len(drops))
    whole = float((unedited - edited).mean())
    value = JointKnockout(tuple(heads), whole, drop, drops, len(few), p, clusters(heads, architecture))
    return value, 1 + len(sets) * len(few) / measure.examples


def clusters(heads: Iterable[Head], architecture: Architecture) -> tuple[tuple[Head, ...], ...]:
    """Heads that read the same keys and values (GQA), where two or more are among ``heads``.

    They see the same things: what looks like several heads may be one group.
    """
    groups: dict[tuple[int, int], list[Head]] = defaultdict(list)
    for head in sorted(heads):
        site = architecture.site(head)
        if site.groups and site.groups < site.units:
            groups[head.layer, head.index * site.groups // site.units].append(head)
    return tuple(tuple(members) for members in groups.values() if len(members) > 1)
