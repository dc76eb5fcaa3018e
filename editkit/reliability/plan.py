"""What a reliability run asks: data sets that show one capability, and data sets that do not. Strict YAML.

reliability: capitals
summary: Capitals, asked in three ways.
capability: [capitals, capitals-chat, capitals-reversed]
content: [{prompts: continents.csv, scorer: exact, name: continents}]      # the same countries, another question
other: [plurals, addition]                                                 # neither
settings: {units: neurons, locate: 20, report: 30}

A recipe serves too: its target and transfer show the capability, what it retains does not; so do names of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from editkit.errors import EditkitError
from editkit.localizers.commonality import PAPER_SIGMA, PAPER_STEPS
from editkit.removal import recipe as recipes
from editkit.removal.complaints import validated
from editkit.removal.recipe import Name, Spec, Strict
from editkit.tasks import strict_yaml
from editkit.tasks.builtin import TASKS
from editkit.tasks.find import find
from editkit.tasks.task import Task

Role = Literal["capability", "content", "other"]
"""Shows the capability; is about the same things, but shows another one; neither."""
Count = Annotated[int, Field(ge=1, le=100_000)]
Rate = Annotated[float, Field(gt=0, le=1, strict=False)]


class Settings(Strict):
    """How units are located, and how much is measured."""

    units: Literal["heads", "neurons"] = "neurons"
    """What is located."""
    sigma: Annotated[float, Field(ge=0, le=50, strict=False)] = PAPER_SIGMA
    """Located: mean attribution above the mean of all units by so many standard deviations."""
    size: Annotated[int, Field(ge=0)] = 0
    """Located instead: so many units of the largest attribution. 0: by ``sigma``."""
    contrast: Annotated[float, Field(ge=0, le=100, strict=False)] = 0.0
    """Attributions less so many times the largest positive one of another capability. 0: as the paper does."""
    path: Literal["layers", "joint"] = "layers"
    """Scale one layer at a time, as the paper does; or all together, which costs a layer's share and is coarser."""
    steps: Count = PAPER_STEPS
    """Points on the path; with ``joint``, 1 is activation times gradient."""
    locate: Count = 40
    """Examples per data set to locate and to train."""
    report: Count = 60
    """Examples per data set to erase and to score."""
    draws: Annotated[int, Field(ge=0, le=10_000)] = 20
    """Random sets that erasing is compared with."""
    draw_examples: Count = 20
    """On so many examples of the capability's data sets random sets give answers; likelihoods are on all."""
    seeds: Annotated[int, Field(ge=0, le=100)] = 3
    """How often each set is trained; 0: nothing is."""
    schools: Count = 8
    """Trained on at most so many of the capability's data sets, the first."""
    train: Literal["specific", "common"] = "specific"
    """Which located set is trained: what no other data set needs; or all that the capability's have in common."""
    train_steps: Count = 40
    """Steps of each training."""
    rates: tuple[Rate, ...] = Field(default=(1e-3,), strict=False, min_length=1, max_length=20)
    """Learning rates. Of several each set is trained at its own: the one that teaches it most, by other examples."""


class Plan(Strict):
    """One capability's data sets, by their role. Every key has a default but the first two."""

    reliability: Name
    """What the plan is called, in the cache and in the folder that it ends in."""
    capability: tuple[Spec, ...] = Field(strict=False, min_length=1, max_length=8)
    """Data sets that show the capability."""
    content: tuple[Spec, ...] = Field(default=(), strict=False)
    """Tasks about the same things that show another capability."""
    other: tuple[Spec, ...] = Field(default=(), strict=False)
    """Tasks that have nothing to do with it."""
    summary: str = ""
    """One sentence for people: what is tested."""
    settings: Settings = Settings()
    """How units are located, and how much is measured."""


@dataclass(frozen=True)
class DataSets:
    """A plan with its tasks found. No task is named twice."""

    plan: Plan
    tasks: tuple[tuple[Task, Role], ...]

    def of(self, *roles: Role) -> tuple[Task, ...]:
        return tuple(task for task, role in self.tasks if role in roles)


def read(names: Sequence[str], *, content: Sequence[str] = (), other: Sequence[str] = ()) -> tuple[Plan, Path]:
    """A plan from a file, from a recipe, or from the names of tasks; and the folder that its files lie in.

    Args:
        names: the path of a plan or of a recipe, or a built-in recipe; else tasks that show the capability.
        content, other: more tasks, for their role.

    Raises:
        EditkitError: naming the file and the key that is wrong, or what there is no task for.
    """
    first = names[0]
    file = Path(first) if first.endswith((".yaml", ".yml")) else None
    if len(names) > 1 or (file is None and first not in recipes.names()):
        if file is not None:
            raise EditkitError(f"{first}: a file stands alone; other names beside it are tasks.")
        plan = Plan(reliability=first if first in TASKS else "tasks", capability=tuple(names))
    else:
        plan = _parsed(recipes.text(first), first)
    more = {"content": (*plan.content, *content), "other": (*plan.other, *other)}
    return plan.model_copy(update=more), file.parent if file else Path(".")


def changed(plan: Plan, settings: Mapping[str, Any]) -> Plan:
    """The plan with some settings set to other values.

    Raises:
        EditkitError: naming the setting whose value will not do.
    """
    value = plan.settings.model_dump() | dict(settings)
    return plan.model_copy(update={"settings": validated(value, Settings)})


def data_sets(plan: Plan, *, folder: Path = Path("."), allow_code: bool = False) -> DataSets:
    """Find the plan's tasks.

    Raises:
        EditkitError: an unknown task, or one that is named twice.
    """
    where = f"reliability {plan.reliability!r}"

    def of(role: Role, specs: Sequence[Spec]) -> list[tuple[Task, Role]]:
        return [(find(spec, where=where, folder=folder, allow_code=allow_code), role) for spec in specs]

    tasks = (*of("capability", plan.capability), *of("content", plan.content), *of("other", plan.other))
    names = [task.name for task, _ in tasks]
    if twice := [name for name in names if names.count(name) > 1]:
        raise EditkitError(f"{where} names {twice[0]!r} more than once: drop all but one.")
    return DataSets(plan, tasks)


def _parsed(text: str, where: str) -> Plan:
    try:
        value = strict_yaml.load(text)
    except yaml.YAMLError as error:
        raise EditkitError(f"{where} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(value, dict) or "reliability" not in value:
        recipe = recipes.parse(text, where=where)
        shown = (*recipe.target, *recipe.transfer)
        return Plan(reliability=recipe.capability, capability=shown, other=recipe.retain, summary=recipe.summary)
    return validated(value, Plan, where)
