"""Fine-tuning on some of the capability's answers: how soon is the rest back?

    relearning            all weights are trained, the zeroed slices stay zero
    relearning-slices     the zeroed slices are trained too
    relearning-adapter    low-rank adapters beside every linear map that the edit leaves whole

The attacker takes the rate that soonest makes the right answers likely that it holds back itself; what is scored lies
in other clusters. Not the rate that soonest scores: where nothing comes back, one lucky answer would choose a rate that
ruins the model.
The control: the same course in the model that never had it, else the same questions with each answer another's, which
no model knows, in the edited one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from editkit.audits.course import Course, Run, Trained, outcomes
from editkit.audits.subject import Arm, Dose, Sample, Scores, Subject, mean, permuted
from editkit.evidence.attacks import Attack, Control
from editkit.measuring.answers import answers
from editkit.measuring.ledger import Question
from editkit.measuring.likelihood import answer_probability
from editkit.measuring.store import Cell
from editkit.tasks.task import Example, Output

TRIED = 10
"""Steps after which the rates are compared ..."""
HELD_BACK = 20
"""... on so many answers ..."""
LEAST = 1e-100
"""... none of which is taken for less likely, per token."""


WAYS: Mapping[str, Trained] = {
    "relearning": "weights",
    "relearning-slices": "weights and slices",
    "relearning-adapter": "adapter",
}


@dataclass(frozen=True)
class _Training:
    """What all courses of one attacker have in common."""

    name: str
    subject: Subject
    sample: Sample
    trained: Trained
    size: int
    seed: int

    def course(self, rate: float, sample: Sample | None = None) -> Course:
        lessons = (sample or self.sample).lessons[: self.size]
        return Course(tuple(lesson.answer for lesson in lessons), rate, self.seed, self.trained)


def audit(subject: Subject, rng: np.random.Generator, *, name: str = "relearning") -> Iterator[Attack]:
    """One row per task, number of answers and steps."""
    seed = int(rng.integers(2**31))
    for sample in subject.targets:
        yield from relearned(name, subject, sample, seed, trained=WAYS[name])


def relearned(
    name: str, subject: Subject, sample: Sample, seed: int, *, trained: Trained, asked: Sample | None = None
) -> Iterator[Attack]:
    """One row per number of answers and steps.

    Args:
        asked: the sample as the attacker asks it.
    """
    for size in sorted({min(size, len(sample.lessons)) for size in subject.budget.lessons} - {0}):
        yield from _rows(_Training(name, subject, asked or sample, trained, size, seed), sample)


def _rows(training: _Training, shown: Sample) -> Iterator[Attack]:
    subject, sample, size = training.subject, training.sample, training.size
    rate = _best_rate(training)
    runs = [_run(training, subject.edited, sample, rate, others=not isinstance(training.trained, tuple))]
    name, lacks = "", True
    if subject.control.lacks:
        name = subject.control.name
        runs.append(_run(training, subject.control, sample, rate))
    elif sample.named:
        name = "edited, each answer another's"
        runs.append(_run(training, subject.edited, permuted(sample, np.random.default_rng(training.seed)), rate))
    attacked, *beside_it = (_scores(subject, cells) for cells in outcomes(runs))
    control = beside_it[0] if beside_it else None
    for steps, (scores, others) in attacked.items():
        dose = Dose(f"{steps} step{'s' * (steps > 1)} on {size} answers", steps, size)
        beside = Control(name, mean(control[steps][0]), lacks) if control else None
        yield subject.row(training.name, dose, shown, Scores(scores), beside, others=others)


def _run(training: _Training, arm: Arm, sample: Sample, rate: float, *, others: bool = False) -> Run:
    """Asks after each number of steps for the sample, and at 10 and at the end for other tasks."""
    subject, steps = training.subject, training.subject.budget.steps
    asked: dict[int, list[Question]] = {step: [answers(sample.task, sample.scored)] for step in steps}
    for step in {TRIED, max(steps)} & set(steps) if others else ():
        asked[step] += [answers(other.task, other.scored) for other in subject.others]
    title = f"Relearning {sample.task.name} from {training.size} answers, {arm.name}"
    return Run(arm, training.course(rate, sample), asked, title)


def _scores(subject: Subject, cells: Mapping[int, list[list[Cell]]]) -> dict[int, tuple[list[float], dict[str, float]]]:
    """After each number of steps: the sample's scores, and the change of other tasks where they were asked."""
    scores = {steps: [_values(row) for row in rows] for steps, rows in cells.items()}
    return {steps: (own, subject.lost(rest) if rest else {}) for steps, (own, *rest) in scores.items()}


def _best_rate(training: _Training) -> float:
    """After it the answers that the attacker holds back are likeliest, by nats per token, the mean over the steps.

    The given answers where there are no more.
    """
    subject, sample, size = training.subject, training.sample, training.size
    if len(subject.budget.rates) == 1:
        return subject.budget.rates[0]
    lessons = (sample.lessons[size:] or sample.lessons[:size])[:HELD_BACK]
    question = Question(sample.task, "likelihood", [(lesson.example, (lesson.answer,)) for lesson in lessons], _likely)
    steps = [step for step in subject.budget.steps if step <= TRIED]

    asked = dict.fromkeys(steps, [question])
    runs = [
        Run(subject.edited, training.course(rate), asked, f"Trying the rate {rate:g} on {size} answers")
        for rate in subject.budget.rates
    ]
    taught = [
        mean([math.log(max(value, LEAST)) for step in steps for value in _values(cells[step][0])])
        for cells in outcomes(runs)
    ]
    return subject.budget.rates[taught.index(max(taught))]


def _likely(example: Example, outputs: Sequence[Output]) -> Cell:
    return answer_probability(outputs, 0)


def _values(cells: list[Cell]) -> list[float]:
    return [cell.value for cell in cells]
