"""Find the heads a capability hangs on: universal heads aside, a localizer on the rest, then selectivity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from editkit.attribution import gate_prior
from editkit.errors import EditkitError
from editkit.localization import Effect, Localization, Localizer, Ranking
from editkit.localizers import LOCALIZERS
from editkit.localizers.adaptive import auto
from editkit.measure import LikelihoodMeasure, likelihood_measure
from editkit.model import LanguageModel
from editkit.progress import Stages, silent
from editkit.recipe import Recipe
from editkit.store import Store
from editkit.task import Task, examples_of
from editkit.tasks.find import find
from editkit.universal import Universals, universal

SELECTIVITY_HEADS = 8
"""For so many of the strongest heads the effect on the retained tasks is measured too."""


@dataclass(frozen=True)
class Capability:
    """A recipe with its tasks found: what to lose, what to keep, and the model's standing on both."""

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

    def found(spec: Any) -> Task:
        return find(spec, where=f"recipe {recipe.capability!r}", folder=folder, allow_code=allow_code)

    target, retain = found(recipe.target), tuple(found(spec) for spec in recipe.retain)
    if target.name in {task.name for task in retain}:
        raise EditkitError(f"The recipe {recipe.capability!r} both removes and retains {target.name!r}: drop one.")
    return Capability(recipe, target, retain)


def localize(
    model: LanguageModel,
    wanted: Capability,
    store: Store,
    *,
    method: str | None = None,
    seed: int = 0,
    stages: Stages = silent,
) -> Localization:
    """Rank the heads by what their knockout costs the target, universal heads set aside first.

    Only the ``locate`` split is looked at. Deterministic in ``seed``; what the store holds is not measured again.

    Args:
        method: one of ``LOCALIZERS``; the recipe's own if None.

    Raises:
        EditkitError: the unedited model does not show the capability.
    """
    recipe, name = wanted.recipe, method or wanted.recipe.method
    if name not in LOCALIZERS:
        raise EditkitError(f"There is no method {name!r}. Known: {', '.join(LOCALIZERS)}.")
    with stages("Baseline answers", None) as advance:
        examples = examples_of(wanted.target, "locate", limit=recipe.examples.locate)
        measure = likelihood_measure(model, wanted.target, examples, store, advance=advance)
        controls = control_measures(model, wanted.retain, store, recipe.universal_examples, advance=advance)
    general = universal_heads(controls, wanted.retain, per=measure.examples, seed=seed, stages=stages)
    columns = np.setdiff1d(np.arange(measure.units), general.columns)
    localizer: Localizer = partial(auto, prior=gate_prior(measure)) if name == "auto" else LOCALIZERS[name]
    with stages("Finding heads", None) as advance:
        ranking = localizer(replace(measure, advance=advance), columns, np.random.default_rng(seed))
    with stages("Selectivity", None) as advance:
        selectivity, cost = _selectivity(ranking, controls, measure.examples)
    heads = model.architecture.heads
    diagnostics = dict(ranking.diagnostics)
    given = {
        column: tuple(heads[other] for other in others) for column, others in diagnostics.pop("conditional", {}).items()
    }
    places = {column: place for place, column in enumerate(ranking.columns.tolist())}
    order = tuple(
        Effect(
            unit=heads[column],
            effect=float(ranking.effect[place]),
            low=float(ranking.low[place]),
            high=float(ranking.high[place]),
            p=float(ranking.p[place]),
            selectivity=selectivity.get(column, float("nan")),
            given=given.get(column, ()),
        )
        for column, place in places.items()
    )
    return Localization(
        method=name,
        seed=seed,
        evaluations=float(ranking.evaluations + general.evaluations + cost),
        order=order,
        universal=tuple(heads[int(column)] for column in general.columns),
        found=bool(ranking.found),
        diagnostics=diagnostics
        | {
            "examples": measure.examples,
            "universal": dict(general.diagnostics),
            "evaluations": {
                "search": float(ranking.evaluations),
                "universal": float(general.evaluations),
                "selectivity": cost,
            },
        },
    )


def control_measures(
    model: LanguageModel, tasks: Sequence[Task], store: Store, limit: int, *, advance: Any = lambda cells: None
) -> dict[str, LikelihoodMeasure]:
    """A measure per retained task that the unedited model can do; what it cannot do, it cannot lose."""
    measures: dict[str, LikelihoodMeasure] = {}
    for task in tasks:
        try:
            examples = examples_of(task, "locate", limit=limit)
            measures[task.name] = likelihood_measure(model, task, examples, store, advance=advance)
        except EditkitError:
            continue
    return measures


def universal_heads(
    controls: Mapping[str, LikelihoodMeasure],
    tasks: Sequence[Task],
    *,
    per: int | None = None,
    seed: int = 0,
    stages: Stages = silent,
) -> Universals:
    """The heads whose knockout breaks several unrelated tasks (METHODS: a partial-conjunction test)."""
    formats = {task.name: task.format for task in tasks if task.name in controls}
    if not controls:
        raise EditkitError("The unedited model shows none of the retained tasks, so damage cannot be measured.")
    with stages("Universal heads", None) as advance:
        measures = {name: replace(measure, advance=advance) for name, measure in controls.items()}
        units = next(iter(measures.values())).units
        return universal(measures, formats, np.arange(units), np.random.default_rng(seed), per=per)


def _selectivity(
    ranking: Ranking, controls: Mapping[str, LikelihoodMeasure], examples: int
) -> tuple[dict[int, float], float]:
    """Target drop / (target drop + mean drop of the retained tasks), for the strongest heads; and what it cost."""
    columns = ranking.columns[:SELECTIVITY_HEADS].astype(int)
    drops = np.maximum(0.0, -ranking.effect[:SELECTIVITY_HEADS])
    damage, cost = np.zeros(len(columns)), 0.0
    for measure in controls.values():
        masks = np.zeros((len(columns) + 1, measure.units), dtype=bool)
        masks[np.arange(len(columns)), columns] = True
        means = measure(masks).mean(axis=1)
        damage += np.maximum(0.0, means[-1] - means[:-1]) / len(controls)
        cost += len(masks) * measure.examples / examples
    share = drops / np.where(drops + damage > 0, drops + damage, 1.0)
    return {int(column): float(part) for column, part in zip(columns, share, strict=True)}, cost
