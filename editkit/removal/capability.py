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
    """``target`` and ``retain`` share no task."""

    recipe: Recipe
    target: Task
    retain: tuple[Task, ...]


def capability(recipe: Recipe, *, folder: Path = Path("."), allow_code: bool = False) -> Capability:
    """Find the recipe's tasks.

    Args:
        folder: where the recipe lies; the files it names are looked up there.
        allow_code: whether Python scorers may run here, and code that the model writes in a sandbox.

    Raises:
        EditkitError: an unknown task, or a target that is also retained.
    """

    def task(spec: Any) -> Task:
        return find(spec, where=f"recipe {recipe.capability!r}", folder=folder, allow_code=allow_code)

    target, retain = task(recipe.target), tuple(task(spec) for spec in recipe.retain)
    if target.name in {kept.name for kept in retain}:
        raise EditkitError(f"The recipe {recipe.capability!r} both removes and retains {target.name!r}: drop one.")
    return Capability(recipe, target, retain)
