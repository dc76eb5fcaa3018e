"""Find the heads a capability depends on: universal heads aside, a localizer on the rest, then what else they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from editkit.errors import EditkitError, OutOfMemory
from editkit.evidence.localization import Effect, Localization
from editkit.localizers import LOCALIZERS
from editkit.localizers.adaptive import auto, usual_budget
from editkit.localizers.common import common
from editkit.localizers.flip_test import LEAST_DROP, SIGNIFICANT
from editkit.localizers.format_heads import format_heads, same_questions
from editkit.localizers.protocol import Localizer, Ranking
from editkit.localizers.selectivity import Needed, selectivity
from editkit.localizers.universal import Universals, universal
from editkit.measuring.answers import AnswerMeasure
from editkit.measuring.attribution import gate_prior
from editkit.measuring.failure_modes import failing
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure, SearchMeasure, likelihood_measure
from editkit.removal.capability import Capability
from editkit.removal.joint_knockout import JointKnockout, joint_knockout
from editkit.tasks.builtin import PROSE
from editkit.tasks.task import Task, examples_of

STRONGEST, FALLBACK = 8, 5
"""For so many of the heads found, selectivity is measured too; where none is certain, for the first few."""
AFTERWARDS = 8.0
"""Evaluations kept back for that, and for the random sets."""
FORMAT_COST = 3.0
"""What looking for format heads takes beyond that."""
FORMAT_EXAMPLES = 60
"""Examples of the same questions as text: enough to tell a head that none of them needs from one that few need."""
MORE = 3
"""So many times the examples are asked, at most, of a task that the model often gets wrong."""
SHOWN = 3
"""Answers per control task that show how the model fails without a universal head."""


def localize(ledger: Ledger, capability: Capability, *, method: str | None = None, seed: int = 0) -> Localization:
    """Rank the heads by what their knockout costs the target, universal heads set aside first.

    Only the ``locate`` split is looked at. Deterministic in ``seed``; what the store holds is not measured again.

    Args:
        method: one of ``LOCALIZERS``; the recipe's own if None.

    Raises:
        EditkitError: the unedited model does not show the capability.
    """
    recipe, name = capability.recipe, method or capability.recipe.method
    if name not in LOCALIZERS:
        raise EditkitError(f"There is no method {name!r}. Known: {', '.join(LOCALIZERS)}.")
    with ledger.stage("Baseline answers") as staged:
        asked = [(task, examples_of(task, "locate", limit=recipe.examples.locate)) for task in capability.targets]
        likelihoods = [likelihood_measure(staged, task, examples) for task, examples in asked]
        controls = control_measures(staged, capability.retain, recipe.universal_examples)
        plain = plain_controls(staged, controls, capability.retain, recipe.universal_examples)
    by_answers = [AnswerMeasure(staged, task, tuple(examples)) for task, examples in asked]
    searches: Sequence[SearchMeasure] = by_answers if recipe.scores == "answers" else likelihoods
    first = searches[0]
    general = universal_heads(ledger, controls | plain, [*capability.retain, PROSE], per=first.examples, seed=seed)
    columns = np.setdiff1d(np.arange(first.units), general.columns)

    def localizer(search: SearchMeasure, likelihood: LikelihoodMeasure) -> Localizer:
        if name != "auto":
            return LOCALIZERS[name]
        asked_as_text = _as_text(search.task, controls) is not None
        left = usual_budget(search.units) - general.evaluations - AFTERWARDS - asked_as_text * FORMAT_COST
        # Answers have no gradient: those that the model gets right are likely or not.
        return partial(auto, prior=gate_prior(likelihood), budget=left)

    with ledger.stage("Finding heads") as staged:
        rankings = {
            search.task.name: localizer(search, likelihood)(
                replace(search, ledger=staged), columns, np.random.default_rng(seed)
            )
            for search, likelihood in zip(searches, likelihoods, strict=True)
        }
    ranking = common(rankings)
    with ledger.stage("What else they do") as staged:
        beside = _beside(ranking, general, controls, replace(first, ledger=staged), seed)
    heads, diagnostics = ledger.model.architecture.heads, dict(ranking.diagnostics)
    if "coefficients" in diagnostics:
        diagnostics["coefficients"] = {
            str(heads[column]): value for column, value in diagnostics["coefficients"].items()
        }
    numbers = zip(ranking.effect, ranking.low, ranking.high, ranking.p, ranking.stability, strict=True)
    order = tuple(
        Effect(
            heads[column],
            *map(float, (effect, low, high, p)),
            selectivity=beside.selectivity.get(column, float("nan")),
            given=tuple(heads[other] for other in ranking.given.get(column, ())),
            stability=float(stability),
        )
        for column, (effect, low, high, p, stability) in zip(ranking.columns.tolist(), numbers, strict=True)
    )
    return Localization(
        method=name,
        seed=seed,
        evaluations=float(ranking.evaluations + general.evaluations + sum(beside.costs.values())),
        order=order,
        universal=tuple(heads[int(column)] for column in general.columns),
        found=bool(ranking.found),
        diagnostics=diagnostics
        | {
            "examples": first.examples,
            "scores": recipe.scores,
            "together": beside.together.to_dict(),
            "universal": dict(general.diagnostics) | {"heads": _by_name(general.to_dict(heads)["universal"])},
            "evaluations": {
                "search": float(ranking.evaluations),
                "universal": float(general.evaluations),
            }
            | beside.costs,
        },
        formats=tuple(heads[column] for column in beside.formats),
    )


def plain_controls(
    ledger: Ledger, controls: Mapping[str, LikelihoodMeasure], tasks: Sequence[Task], limit: int
) -> dict[str, LikelihoodMeasure]:
    """Ordinary prose, where all retained tasks are of one format: universal heads need two (``universal``)."""
    formats = {task.format for task in tasks if task.name in controls}
    return control_measures(ledger, [PROSE], limit) if formats == {"generation"} else {}


def control_measures(ledger: Ledger, tasks: Sequence[Task], limit: int) -> dict[str, LikelihoodMeasure]:
    """A measure per retained task that the unedited model can do; what it cannot do, it cannot lose."""
    measures: dict[str, LikelihoodMeasure] = {}
    for task in tasks:
        try:
            measures[task.name] = right_answers(ledger, task, limit)
        except OutOfMemory:
            raise  # which says nothing of what the model can do
        except EditkitError:
            continue
    return measures


def right_answers(ledger: Ledger, task: Task, limit: int) -> LikelihoodMeasure:
    """The measure of a task on its first ``limit`` right answers in ``locate``, or on nearly so many.

    Of a task that the model often gets wrong more examples are asked: a loss is not seen on a handful of answers.

    Raises:
        EditkitError: the model gets (nearly) none of the first ``limit`` right.
    """
    examples = examples_of(task, "locate", limit=MORE * limit)
    first = likelihood_measure(ledger, task, examples[:limit])
    measure = likelihood_measure(ledger, task, examples[: -(-limit * limit // first.examples)])
    return replace(measure, anchors=measure.anchors[:limit])


def universal_heads(
    ledger: Ledger,
    controls: Mapping[str, LikelihoodMeasure],
    tasks: Sequence[Task],
    *,
    formats: bool = False,
    per: int | None = None,
    seed: int = 0,
) -> Universals:
    """The heads whose knockout breaks several unrelated tasks, and how the model fails without each.

    Args:
        formats: look for format heads too, where a letter task and the same questions as text are among the tasks.
        per: how many examples one evaluation stands for; None = the largest set given.
    """
    kinds = {task.name: task.format for task in tasks if task.name in controls}
    if not controls:
        raise EditkitError("The unedited model shows none of the retained tasks, so damage cannot be measured.")
    with ledger.stage("Universal heads") as staged:
        measures = {name: replace(measure, ledger=staged) for name, measure in controls.items()}
        units = next(iter(measures.values())).units
        return universal(
            measures,
            kinds,
            np.arange(units),
            np.random.default_rng(seed),
            failures=partial(_failures, controls),
            same=same_questions(kinds) if formats else None,
            per=per,
        )


def _failures(controls: Mapping[str, LikelihoodMeasure], columns: Sequence[int]) -> list[Mapping[str, float]]:
    """How the model fails without each column, on a few examples of every control task that it gets right."""
    first = next(iter(controls.values()))
    masks = np.zeros((len(columns), first.units), dtype=bool)
    masks[np.arange(len(columns)), columns] = True
    tasks = [(measure.task, [anchor.example for anchor in measure.anchors[:SHOWN]]) for measure in controls.values()]
    return failing(first.ledger, tasks, masks)


@dataclass(frozen=True)
class _Beside:
    """What is measured of the strongest heads after the search, by column; and what each measurement cost."""

    selectivity: dict[int, float]
    formats: list[int]
    together: JointKnockout
    costs: dict[str, float]


def _beside(
    ranking: Ranking,
    general: Universals,
    controls: Mapping[str, LikelihoodMeasure],
    measure: SearchMeasure,
    seed: int,
) -> _Beside:
    needed, architecture = _strongest(ranking), measure.ledger.model.architecture
    costs: dict[str, float] = {}
    shares, costs["selectivity"] = selectivity(needed, controls, per=measure.examples)
    formats: list[int] = []
    text = _as_text(measure.task, controls)
    if text is not None:
        wider = examples_of(text.task, "locate", limit=FORMAT_EXAMPLES)
        text = likelihood_measure(measure.ledger, text.task, wider)
        formats, costs["format"] = format_heads(needed, text, per=measure.examples)
    heads = [architecture.heads[head.column] for head in needed]
    aside = [architecture.heads[int(column)] for column in general.columns]
    joint, costs["random sets"] = joint_knockout(heads, aside, architecture, measure, np.random.default_rng(seed))
    costs["ways to fail"] = SHOWN * len(controls) * len(general.columns) / measure.examples
    return _Beside(shares, formats, joint, costs)


def _as_text(target: Task, controls: Mapping[str, LikelihoodMeasure]) -> LikelihoodMeasure | None:
    """The control task that asks as text what ``target`` asks by letter, if there is one."""
    twin = same_questions([target.name, *controls]).get(target.name)
    return controls[twin] if twin is not None and target.format == "choice-letter" else None


def _strongest(ranking: Ranking) -> list[Needed]:
    """The heads that are certainly needed, in order; where none is, the first few: a look at what noise does."""
    certain = np.flatnonzero((ranking.p < SIGNIFICANT) & (ranking.effect <= -LEAST_DROP))[:STRONGEST]
    first = certain if len(certain) else np.arange(len(ranking.columns))[:FALLBACK]
    return [
        Needed(column, -float(effect), ranking.given.get(column, ()))
        for column, effect in zip(ranking.columns[first].tolist(), ranking.effect[first], strict=True)
    ]


def _by_name(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {row["unit"]: {key: value for key, value in row.items() if key != "unit"} for row in rows}
