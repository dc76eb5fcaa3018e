"""A capability: a recipe with its tasks found, what to lose and what to keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.errors import EditkitError
from editkit.removal.recipe import Recipe
from editkit.tasks.find import find
from editkit.tasks.task import Task


@dataclass(frozen=True)
class Capability:
    """The groups share no task.

    Args:
        targets: the formats that the capability is searched in; all must be lost.
        transfer: formats that only the report asks.
        also: tasks that the report asks and the verdict does not count.
    """

    recipe: Recipe
    targets: tuple[Task, ...]
    retain: tuple[Task, ...]
    transfer: tuple[Task, ...] = ()
    also: tuple[Task, ...] = ()


def capability(
    recipe: Recipe, *, folder: Path = Path("."), allow_code: bool = False, planning: bool = False
) -> Capability:
    """Find the recipe's tasks.

    Args:
        folder: where the recipe lies; the files it names are looked up there.
        allow_code: whether Python scorers may run here, and code that the model writes in a sandbox.
        planning: whether the tasks are only described, never scored: then no code runs, allowed or not.

    Raises:
        EditkitError: an unknown task, one that is named twice, or a hidden one that is none of them.
    """

    def task(spec: Any) -> Task:
        return find(
            spec, where=f"recipe {recipe.capability!r}", folder=folder, allow_code=allow_code, planning=planning
        )

    groups = (recipe.target, recipe.retain, recipe.transfer, recipe.also)
    targets, retain, transfer, also = (tuple(task(spec) for spec in group) for group in groups)
    names = [each.name for each in (*targets, *retain, *transfer, *also)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise EditkitError(
            f"The recipe {recipe.capability!r} names {twice[0]!r} more than once in target, retain, transfer and also: "
            "drop all but one."
        )
    if lost := sorted(set(recipe.hide) - set(names)):
        raise EditkitError(f"The recipe {recipe.capability!r} hides {lost[0]!r}, which is none of its tasks.")
    return Capability(recipe, targets, retain, transfer, also)
