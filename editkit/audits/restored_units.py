"""Removed units put back, a few at a time: does one of them carry it all?

Up to eight heads or neurons one by one; more in eight random groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from editkit.audits.subject import Arm, Dose, Scores, Subject
from editkit.checkpoints.knockout import Knockout
from editkit.evidence.attacks import Attack
from editkit.units import show

GROUPS = 8


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target and group of units."""
    places, architecture = subject.edited.out.places, subject.edited.model.architecture
    for group in np.array_split(rng.permutation(len(places)), min(GROUPS, len(places))):
        names = show(architecture.units(Knockout.of(places[group])))
        dose = Dose(f"{', '.join(names[:2])}{f' and {len(names) - 2} more' if len(names) > 2 else ''} back")
        for sample in subject.targets:
            scores, beside = (
                _without(arm, group).scores(sample.task, sample.scored) for arm in (subject.edited, subject.control)
            )
            yield subject.row("restored-units", dose, sample, Scores(scores), subject.beside(beside))


def _without(arm: Arm, group: np.ndarray) -> Arm:
    """With as many of its units back."""
    return replace(arm, out=Knockout.of(np.delete(arm.out.places, group)))
