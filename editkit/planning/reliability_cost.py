"""What a reliability run will cost on a GPU, before anything is loaded or downloaded.

    given, folder = plans.read(["recipes/cnl/hub/math.yaml"])
    plan(given, folder, model="meta-llama/Llama-3.1-8B-Instruct").seconds

By the same assumptions as a study's (``study_cost``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from editkit.measuring.attribution import BACKWARD
from editkit.models.training import Training
from editkit.planning.run_cost import duration
from editkit.planning.study_cost import (
    Gpu,
    Length,
    Size,
    Usage,
    answered,
    count_of,
    gpu_named,
    length_of,
    scored,
    size_of,
)
from editkit.reliability.enhance import ARMS
from editkit.reliability.plan import Plan
from editkit.render.inert import code

SETS = 2
"""Located sets that are erased, at most: common and specific."""
LEARNING = 3.0
"""A step of training costs as much as this many forward passes."""
TRAINED = 16
"""Bytes for each number that is trained: gradient, copy and two moments, in float32."""


@dataclass(frozen=True)
class ReliabilityCost:
    """``parts``: what is done, in its order, and what it takes."""

    reliability: str
    model: str
    size: Size
    gpu: Gpu
    parts: Mapping[str, Usage]
    memory: float

    @property
    def seconds(self) -> float:
        return sum(self.gpu.seconds(self.size, part) for part in self.parts.values())

    def table(self) -> str:
        """A Markdown table, one line per part; then the sum, and what it is based on."""
        lines = [("part", "tokens read", "steps of generation", self.gpu.name), ("---", "--:", "--:", "--:")]
        for name, part in self.parts.items():
            time = duration(self.gpu.seconds(self.size, part))
            lines.append((name, f"{part.read / 1e6:,.1f} M", f"{part.steps:,.0f}", time))
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        text += (
            f"\n\n{self.reliability} on {code(self.model)}: {duration(self.seconds)} on one {self.gpu.name}, "
            f"at least {self.memory / 1e9:.0f} GB of memory. {self.gpu.assumed()}"
        )
        if self.memory > self.gpu.memory:
            text += f"\n\n**Does not fit into {self.gpu.memory / 1e9:.0f} GB.**"
        return text + "\n"


def plan(given: Plan, folder: Path = Path("."), *, model: str | None = None, gpu: str = "h100") -> ReliabilityCost:
    """Predict a run's cost; at most, as if the model had every answer right and two sets were erased.

    Args:
        folder: where the plan lies, for the files that its tasks name.
        model: None: the bundled one.
        gpu: one of those in ``costs.yaml``.

    Raises:
        UsageError: an unknown GPU.
        EditkitError: a model or a task that cannot be found.
    """
    settings, size = given.settings, size_of(model)
    own = [length_of(spec, folder) for spec in given.capability]
    every = own + [length_of(spec, folder) for spec in (*given.content, *given.other)]
    passes = BACKWARD * settings.steps * (size.layers if settings.path == "layers" else 1)
    locate = [count_of(task, "locate", settings.locate) for task in every]
    report = [count_of(task, "report", settings.report) for task in every]
    few = min(settings.draw_examples, settings.report)
    schools = own[: settings.schools] if settings.seeds else []
    lesson = LEARNING * settings.train_steps * Training().batch
    searched = len(settings.rates) if len(settings.rates) > 1 else 0
    lessons = len(ARMS) * (settings.seeds * lesson + searched * (lesson + settings.report))
    exam = _sum(answered(task, count) + _right(task, count) for task, count in zip(every, report, strict=True))
    parts = {
        "answers to locate": _sum(answered(task, count) for task, count in zip(every, locate, strict=True)),
        "attributions": _sum(_right(task, passes * count) for task, count in zip(every, locate, strict=True)),
        "without the located units": exam.times(1 + SETS),
        "without random units": (
            _sum(answered(task, few) for task in own)
            + _sum(_right(task, count) for task, count in zip(every, report, strict=True))
        ).times(SETS * settings.draws),
        "trained": _sum(_right(school, lessons) for school in schools)
        + exam.times(len(ARMS) * settings.seeds * len(schools)),
    }
    parts = {name: usage for name, usage in parts.items() if usage != Usage()}
    memory = size.memory + (TRAINED * size.parameters if schools else 0)
    return ReliabilityCost(given.reliability, model or "the bundled model", size, gpu_named(gpu), parts, memory)


def _right(task: Length, examples: float) -> Usage:
    """The right answer alone is read, whatever the choices are."""
    return scored(Length(1, task.prompt, task.answer), examples)


def _sum(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())
