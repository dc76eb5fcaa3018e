"""What a study will cost on a GPU, model by model, before anything is loaded or downloaded.

    plan(study.read(Path("recipes/paper/dose.yaml")), gpu="h100").models[0].seconds

Counts follow from the study and the search methods. Lengths of tasks, and what a GPU reaches, are assumptions
(``recipes/paper/costs.yaml``). Layers and prefixes that rows share make a run shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from editkit.errors import UsageError
from editkit.planning.inspection import inspect
from editkit.planning.run_cost import BATCH, Plan, duration, evaluations, length
from editkit.removal.study import BUNDLED, Study
from editkit.render.inert import code
from editkit.tasks.find import find
from editkit.tasks.task import SHARES, Generate, Split

EFFICIENCY = 0.4
"""The share of a GPU's data-sheet operations that forward passes of transformers reach; our assumption."""
STEP = 0.03
"""Seconds that a step of generation takes: Python and kernel launches; our assumption. Reading 16 GB of weights takes
less on every GPU of ``costs.yaml``."""
ANCHOR = 32
"""Tokens of an answer that the search scores (``likelihood.ANCHOR_TOKENS``)."""


@dataclass(frozen=True)
class Size:
    """A model by its numbers: layers, heads, parameters, bytes of its weights."""

    layers: int
    heads: int
    parameters: int
    bytes: int

    @property
    def memory(self) -> int:
        """Bytes that one example at a time needs, libraries included: batches shrink to what there is."""
        return int(1.15 * self.bytes) + (1 << 30)


@dataclass(frozen=True)
class Length:
    """One example: ``requests`` texts of ``prompt`` tokens, each with ``answer`` tokens, written or only scored."""

    requests: float
    prompt: float
    answer: float
    generated: bool = False
    size: int | None = None
    """How many examples the task has; None: as many as are asked for."""


@dataclass(frozen=True)
class Gpu:
    """Operations a second by its data sheet, and bytes of memory."""

    name: str
    operations: float
    memory: float

    def seconds(self, size: Size, usage: Usage) -> float:
        return 2 * size.parameters * usage.read / (EFFICIENCY * self.operations) + STEP * usage.steps

    def assumed(self) -> str:
        """What ``seconds`` is based on, as a sentence."""
        return (
            f"Assumed: {EFFICIENCY:.0%} of {self.operations / 1e12:.0f} TFLOP/s, {1000 * STEP:.0f} ms for a step of "
            "generation."
        )


@dataclass(frozen=True)
class OnGpu:
    """One run on a GPU: whether it fits, and the order of magnitude of its time in seconds."""

    gpu: Gpu
    memory: int
    seconds: float

    @property
    def fits(self) -> bool:
        return self.memory <= self.gpu.memory

    def describe(self) -> str:
        """One sentence for the terminal."""
        sizes = f"about {self.memory / 1e9:.1f} of {self.gpu.memory / 1e9:.0f} GB"
        if not self.fits:
            return f"{self.gpu.name}: does not fit ({sizes}); --device balanced spreads a model over several"
        return f"{self.gpu.name}: fits ({sizes}), about {duration(self.seconds)} (an estimate: nothing was run on one)"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"name": self.gpu.name, "fits": self.fits, "memory": self.memory, "seconds": self.seconds}


def on_gpu(cost: Plan, name: str) -> OnGpu:
    """A run's plan on one of the GPUs of ``costs.yaml``.

    Raises:
        UsageError: an unknown GPU.
    """
    gpu = gpu_named(name)
    reading = 2 * cost.parameters * (cost.search_tokens + cost.answer_tokens) / (EFFICIENCY * gpu.operations)
    return OnGpu(gpu, cost.memory, reading + STEP * cost.steps)


@dataclass(frozen=True)
class Usage:
    """Tokens read, and steps of generation: one token for each row of a batch."""

    read: float = 0.0
    steps: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.read + other.read, self.steps + other.steps)

    def times(self, number: int) -> Usage:
        return Usage(number * self.read, number * self.steps)


@dataclass(frozen=True)
class ModelCost:
    """One model's share. ``evaluations``: forward passes over the search set, all searches together."""

    model: str
    size: Size
    searches: int
    cells: int
    evaluations: float
    usage: Usage
    seconds: float


@dataclass(frozen=True)
class StudyCost:
    study: str
    gpu: Gpu
    models: tuple[ModelCost, ...]

    def table(self) -> str:
        """A Markdown table, one line per model; then the sum, and what it is based on."""
        gpu = self.gpu
        titles = ("model", "heads", "searches", "cells", "evaluations", "tokens read", "memory, at least")
        lines = [[*titles, gpu.name], ["---"] * (len(titles) + 1)]
        for cost in self.models:
            counts = [f"{count:,}" for count in (cost.size.heads, cost.searches, cost.cells, round(cost.evaluations))]
            sizes = [f"{cost.usage.read / 1e6:,.0f} M", f"{cost.size.memory / 1e9:.0f} GB"]
            lines.append([code(cost.model), *counts, *sizes, duration(cost.seconds)])
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        text += (
            f"\n\n{self.study}: {duration(sum(cost.seconds for cost in self.models))} on one {gpu.name}, "
            f"{sum(cost.size.bytes for cost in self.models) / 1e9:.0f} GB of weights. {gpu.assumed()} Shared layers "
            "and prefixes make it shorter; batches shrink where memory is short."
        )
        tight = [code(cost.model) for cost in self.models if cost.size.memory > gpu.memory]
        if tight:
            text += f"\n\n**Does not fit into {gpu.memory / 1e9:.0f} GB:** {', '.join(tight)}."
        return text + "\n"


@lru_cache(maxsize=1)
def published() -> tuple[dict[str, Size], dict[str, Gpu], dict[str, Length]]:
    """The paper's models, in bfloat16; GPUs; benchmarks: nothing is downloaded for their numbers."""
    value = yaml.safe_load((files("editkit.recipes") / "paper" / "costs.yaml").read_text("utf-8"))
    return (
        {name: Size(**size, bytes=2 * size["parameters"]) for name, size in value["models"].items()},
        {name: Gpu(**gpu) for name, gpu in value["gpus"].items()},
        {name: Length(**task) for name, task in value["tasks"].items()},
    )


def plan(study: Study, *, gpu: str = "h100", folder: Path = Path(".")) -> StudyCost:
    """Predict a study's cost.

    Args:
        gpu: one of those in ``costs.yaml``.
        folder: where the study file lies, for the files its tasks name.

    Raises:
        UsageError: an unknown GPU.
        EditkitError: a model or a task that cannot be found.
    """
    device = gpu_named(gpu)
    costs = (_of_model(study, model, device, lambda spec: length_of(spec, folder)) for model in study.models)
    return StudyCost(study.study, device, tuple(costs))


def gpu_named(name: str) -> Gpu:
    """One of those in ``costs.yaml``.

    Raises:
        UsageError: it is none.
    """
    _, gpus, _ = published()
    if name not in gpus:
        raise UsageError(f"--gpu {name}: no figures for it. Known: {', '.join(gpus)}.")
    return gpus[name]


def _of_model(study: Study, model: str, gpu: Gpu, of: Callable[[Any], Length]) -> ModelCost:
    size, seeds = size_of(None if model == BUNDLED else model), len(study.seeds)
    cells = len(study.methods) * len(study.heads) * seeds
    total, passes = Usage(), 0.0
    for capability in study.capabilities:
        recipe, targets = capability.recipe, [of(spec) for spec in capability.recipe.target]
        count = seeds * sum(evaluations(method, size.heads, recipe, len(recipe.retain)) for method in study.methods)
        look, passes = answered if recipe.scores == "answers" else scored, passes + count * len(targets)
        for target in targets:
            searched = count_of(target, "locate", recipe.examples.locate)
            total += look(target, count * searched) + answered(target, searched)
        for spec in recipe.retain:
            total += answered(of(spec), recipe.universal_examples)
        for spec in capability.tasks:
            total += answered(of(spec), count_of(of(spec), "report", recipe.examples.report), times=cells)
        total += answered(targets[0], recipe.random_sets * recipe.random_examples, times=cells)
    # The unedited model answers each task once for all capabilities, and once more for the noise floor.
    report = max(capability.recipe.examples.report for capability in study.capabilities)
    for spec in {repr(spec): spec for capability in study.capabilities for spec in capability.tasks}.values():
        total += answered(of(spec), count_of(of(spec), "report", report), times=2)
    searches = len(study.capabilities) * len(study.methods) * seeds
    return ModelCost(model, size, searches, len(study.capabilities) * cells, passes, total, gpu.seconds(size, total))


def scored(task: Length, examples: float) -> Usage:
    """The search: answers are read, not written, and only their beginning."""
    return Usage(read=examples * task.requests * (task.prompt + min(task.answer, ANCHOR)))


def answered(task: Length, examples: float, *, times: int = 1) -> Usage:
    """Real answers, so many times over. A batch takes as many steps as its longest answer has tokens."""
    if not task.generated:
        return Usage(read=times * examples * task.requests * (task.prompt + task.answer))
    batches = math.ceil(examples * (task.prompt + task.answer) / BATCH)
    return Usage(read=times * examples * task.prompt, steps=times * batches * task.answer)


def count_of(task: Length, split: Split, wanted: int) -> float:
    """How many of the examples asked for there are."""
    return wanted if task.size is None else min(wanted, SHARES[split] * task.size)


def size_of(model: str | None) -> Size:
    """A known model's by its name, any other's from its config and headers; None: the bundled one's."""
    known, _, _ = published()
    if model in known:
        return known[model]
    seen = inspect(model)
    return Size(seen.architecture.layers, len(seen.architecture.heads), seen.parameters, seen.bytes)


def length_of(spec: Any, folder: Path) -> Length:
    """A benchmark's by its name or its file's, so that no data is needed; any other task's from its own examples."""
    _, _, known = published()
    if isinstance(spec, dict):
        name = str(spec.get("lm_eval", spec.get("code")))
    else:
        name = spec.removeprefix("lm-eval:").removesuffix(".yaml")
    if name in known and name != spec:
        return known[name]
    task = find(spec, folder=folder, planning=True)
    prompt, answer, requests = length(task)
    generated = isinstance(task.requests(task.examples()[0])[0], Generate)
    return Length(requests, prompt, answer, generated, len(task.examples()))
