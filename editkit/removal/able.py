"""Which tasks of a recipe the unedited model can do at all: what it cannot do, it cannot lose."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence.exhibits import Unable
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.removal.capability import Capability
from editkit.tasks.task import Task, examples_of

ABOVE = 0.1
"""A retained task must score so much above chance."""
ABOVE_TARGET = 0.2
"""A format of the target must score so much above chance, or its loss could not be shown."""


def able(ledger: Ledger, capability: Capability) -> tuple[Capability, tuple[Unable, ...]]:
    """The capability without what the model cannot do, with a warning; and what that is.

    Retained tasks are left out. Of several formats of the target, those that the model hardly shows are reported beside
    the formats that were not searched, and the verdict does not need them.

    Raises:
        EditkitError: the model can do none of the retained tasks.
    """
    recipe, formats = capability.recipe, capability.targets if len(capability.targets) > 1 else ()
    with ledger.stage("What the model can do") as staged:
        retained = [_look(staged, task, recipe.universal_examples) for task in capability.retain]
        targets = [_look(staged, task, recipe.examples.locate) for task in formats]
    left_out = [look for look in retained if look.score < look.chance + ABOVE]
    weak = [look for look in targets if look.score < look.chance + ABOVE_TARGET]
    if len(left_out) == len(capability.retain) and left_out:
        raise EditkitError(
            f"{ledger.model.source.base.model} can do none of the retained tasks, so damage cannot be measured: "
            f"{_shown(left_out)}. Name tasks in retain that it can do."
        )
    if len(weak) == len(capability.targets):
        weak = []  # the verdict says that there is nothing to remove
    if left_out:
        warnings.warn(f"Left out, as the unedited model cannot do them: {_shown(left_out)}.", stacklevel=2)
    if weak:
        warnings.warn(f"Reported only, as the unedited model hardly does them: {_shown(weak)}.", stacklevel=2)
    names = {look.task for look in (*left_out, *weak)}
    moved = tuple(task for task in capability.targets if task.name in names)
    return replace(
        capability,
        targets=tuple(task for task in capability.targets if task not in moved),
        retain=tuple(task for task in capability.retain if task.name not in names),
        transfer=(*moved, *capability.transfer),
    ), (*left_out, *weak)


def _shown(looks: Sequence[Unable]) -> str:
    return ", ".join(f"{look.task} ({look.score:.0%} of {look.n}, chance {look.chance:.0%})" for look in looks)


def _look(ledger: Ledger, task: Task, examples: int) -> Unable:
    """One task's score; ``locate`` examples, which the search asks too."""
    [cells] = task_scores(ledger, task, examples_of(task, "locate", limit=examples), ledger.mask())
    return Unable(task.name, float(np.mean([cell.value for cell in cells])), task.chance, len(cells))
