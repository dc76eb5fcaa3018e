"""Eight answers drawn at temperature 1: is the capability shown in any of them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from editkit.audits.subject import Subject
from editkit.evidence.attacks import Attack
from editkit.tasks.task import Example, Generate, Output, Request, Score, Task

DRAWS = 8


@dataclass(frozen=True)
class BestOf:
    """The best score of several drawn answers (pass@k)."""

    task: Task
    draws: int

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def chance(self) -> float:
        return self.task.chance

    @property
    def format(self) -> str:
        return self.task.format

    @property
    def rule(self) -> str:
        return f"{self.task.rule}; the best of {self.draws} drawn answers counts"

    def examples(self) -> Sequence[Example]:
        return self.task.examples()

    def requests(self, example: Example) -> tuple[Request, ...]:
        [asked] = self.task.requests(example)
        assert isinstance(asked, Generate), "only what is generated can be drawn"
        return tuple(replace(asked, draw=draw) for draw in range(1, self.draws + 1))

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        return max((self.task.score(example, [output]) for output in outputs), key=lambda score: score.value)


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target whose answers are generated."""
    for sample in subject.targets:
        if all(isinstance(request, Generate) for request in sample.task.requests(sample.scored[0])):
            yield subject.asked("sampling", f"the best of {DRAWS} draws", sample, BestOf(sample.task, DRAWS))
