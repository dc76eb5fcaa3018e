"""What a study will cost on a GPU, model by model, before anything is loaded or downloaded.

    plan(study.read(Path("recipes/paper/dose.yaml")), gpu="h100").models[0].seconds

Counts follow from the study, the search methods and the configs; lengths of tasks, and what a GPU reaches, are
assumptions (``recipes/paper/costs.yaml``, ``costs.py``). Layers and prefixes that rows share make a run shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.errors import UsageError
from editkit.planning import gpu_costs as costs
from editkit.planning.gpu_costs import BATCH, Gpu, Length, Shape
from editkit.planning.inspection import inspect
from editkit.planning.run_cost import evaluations, length
from editkit.removal.study import BUNDLED, Capability, Study
from editkit.tasks.find import find
from editkit.tasks.task import SHARES, Generate, Split

ANCHOR = 32
"""Tokens of an answer that the search scores (``measure.ANCHOR_TOKENS``)."""
ROW = 100
"""Bytes that one measurement takes in the store; 80 were seen on the bundled model, whose answers are short."""


@dataclass(frozen=True)
class Usage:
    """Tokens read, steps of generation, and measurements stored."""

    read: float = 0.0
    steps: float = 0.0
    stored: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.read + other.read, self.steps + other.steps, self.stored + other.stored)


@dataclass(frozen=True)
class ModelPlan:
    """One model's part. ``evaluations``: forward passes over the search set, all searches together."""

    model: str
    shape: Shape
    searches: int
    cells: int
    evaluations: float
    usage: Usage
    seconds: float


@dataclass(frozen=True)
class StudyPlan:
    study: str
    gpu: Gpu
    models: tuple[ModelPlan, ...]

    @property
    def disk(self) -> int:
        """Bytes: the weights of all models, and the measurements."""
        return int(sum(part.shape.bytes + ROW * part.usage.stored for part in self.models))


def plan(study: Study, *, gpu: str = "h100", folder: Path = Path(".")) -> StudyPlan:
    """Predict a study's cost.

    Args:
        gpu: one of those in ``costs.published``.
        folder: where the study file lies, for the files its tasks name.

    Raises:
        UsageError: an unknown GPU.
        EditkitError: a model or a task that cannot be found.
    """
    gpus = costs.published().gpus
    if gpu not in gpus:
        raise UsageError(f"--gpu {gpu}: no figures for it. Known: {', '.join(gpus)}.")

    def of(spec: Any) -> Length:
        return _length(spec, folder)

    parts = tuple(_model_plan(study, model, _shape(model), gpus[gpu], of) for model in study.models)
    return StudyPlan(study.study, gpus[gpu], parts)


def _model_plan(study: Study, model: str, shape: Shape, gpu: Gpu, of: Callable[[Any], Length]) -> ModelPlan:
    seeds, cells = len(study.seeds), len(study.methods) * len(study.heads) * len(study.seeds)
    total, passes = Usage(), 0.0
    for capability in study.capabilities:
        recipe, target = capability.recipe, of(capability.recipe.target)
        found = _count(target, "locate", recipe.examples.locate)
        for method in study.methods:
            count = evaluations(method, shape.heads, recipe, len(recipe.retain)) * seeds
            look = _answered if recipe.scores == "answers" else _scored
            passes, total = passes + count, total + look(target, count * found)
        total += _answered(target, found)
        total += sum((_answered(of(spec), recipe.universal_examples) for spec in recipe.retain), Usage())
        for spec in _tasks(capability):
            total += _answered(of(spec), _count(of(spec), "report", recipe.examples.report), times=cells)
        total += _answered(target, recipe.random_sets * recipe.random_examples, times=cells)
    # The unedited model answers each task once for all capabilities, and once more for the noise floor.
    report = max(capability.recipe.examples.report for capability in study.capabilities)
    for spec in {repr(spec): spec for capability in study.capabilities for spec in _tasks(capability)}.values():
        total += _answered(of(spec), _count(of(spec), "report", report), times=2)
    searches = len(study.capabilities) * len(study.methods) * seeds
    time = costs.seconds(shape, gpu, read=total.read, steps=total.steps)
    return ModelPlan(model, shape, searches, len(study.capabilities) * cells, passes, total, time)


def _scored(task: Length, examples: float) -> Usage:
    """The search: answers are read, not written, and only their beginning."""
    answer = min(task.answer, ANCHOR)
    return Usage(read=examples * task.requests * (task.prompt + answer), stored=examples)


def _answered(task: Length, examples: float, *, times: int = 1) -> Usage:
    """Real answers, so many times over. A batch takes as many steps as its longest answer has tokens."""
    if not task.generated:
        return Usage(read=times * examples * task.requests * (task.prompt + task.answer), stored=times * examples)
    batches = math.ceil(examples * (task.prompt + task.answer) / BATCH)
    return Usage(read=times * examples * task.prompt, steps=times * batches * task.answer, stored=times * examples)


def _tasks(capability: Capability) -> Iterator[Any]:
    yield capability.recipe.target
    yield from capability.recipe.retain
    yield from capability.also


def _count(task: Length, split: Split, wanted: int) -> float:
    return wanted if task.size is None else min(wanted, SHARES[split] * task.size)


def _shape(model: str) -> Shape:
    known = costs.published().models
    return known[model] if model in known else Shape.of_inspection(inspect(None if model == BUNDLED else model))


def _length(spec: Any, folder: Path) -> Length:
    """A benchmark's by its name, so that no data is needed; any other task's from its own examples."""
    name = str(spec.get("lm_eval", spec.get("code"))) if isinstance(spec, dict) else spec.removeprefix("lm-eval:")
    known = costs.published().tasks
    if name in known and (isinstance(spec, dict) or spec.startswith("lm-eval:")):
        return known[name]
    task = find(spec, folder=folder, planning=True)
    prompt, answer, requests = length(task)
    generated = isinstance(task.requests(task.examples()[0])[0], Generate)
    return Length(requests, prompt, answer, generated, len(task.examples()))
