"""Which tasks of a recipe the unedited model can do at all: what it cannot do, it cannot lose."""

from __future__ import annotations

import warnings
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


def able(ledger: Ledger, capability: Capability) -> tuple[Capability, tuple[Unable, ...]]:
    """The capability without the retained tasks that the model cannot do; and those, with a warning.

    Raises:
        EditkitError: the model can do none of them.
    """
    with ledger.stage("What the model can do") as staged:
        looks = [_look(staged, task, capability.recipe.universal_examples) for task in capability.retain]
    unable = tuple(look for look in looks if look.score < look.chance + ABOVE)
    if not unable:
        return capability, ()
    shown = ", ".join(f"{look.task} ({look.score:.0%} of {look.n}, chance {look.chance:.0%})" for look in unable)
    if len(unable) == len(capability.retain):
        raise EditkitError(
            f"{ledger.model.source.base.model} can do none of the retained tasks, so damage cannot be measured: "
            f"{shown}. Name tasks in retain that it can do."
        )
    warnings.warn(f"Left out, as the unedited model cannot do them: {shown}.", stacklevel=2)
    names = {look.task for look in unable}
    return replace(capability, retain=tuple(task for task in capability.retain if task.name not in names)), unable


def _look(ledger: Ledger, task: Task, examples: int) -> Unable:
    """One task's score; ``locate`` examples, which the search asks too."""
    [cells] = task_scores(ledger, task, examples_of(task, "locate", limit=examples), ledger.mask())
    return Unable(task.name, float(np.mean([cell.value for cell in cells])), task.chance, len(cells))
