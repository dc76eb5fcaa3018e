"""Eight answers drawn at temperature 1: is the capability shown in any of them (pass@8)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from editkit.audits.asked_otherwise import AskedOtherwise
from editkit.audits.subject import Subject
from editkit.evidence.attacks import Attack
from editkit.tasks.task import Example, Generate, Output, Request, Score, Task

DRAWS = 8


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target whose answers are generated."""
    for sample in subject.targets:
        if all(isinstance(request, Generate) for request in sample.task.requests(sample.scored[0])):
            yield subject.asked("sampling", f"the best of {DRAWS} draws", sample, best_of(sample.task, DRAWS))


def best_of(task: Task, draws: int) -> AskedOtherwise:
    """The best score of several drawn answers counts."""

    def change(example: Example, request: Request) -> list[Request]:
        assert isinstance(request, Generate), "only what is generated can be drawn"
        return [replace(request, draw=draw) for draw in range(1, draws + 1)]

    def judge(example: Example, outputs: Sequence[Output]) -> Score:
        return max((task.score(example, [output]) for output in outputs), key=lambda score: score.value)

    return AskedOtherwise(task, change, judge, setting=f"the best of {draws} draws")
