"""Fine-tuning on some of the capability's answers: how soon is the rest back?

All weights are trained, the zeroed slices stay zero. The attacker takes the rate that soonest brings back what it holds
back itself; what is scored lies in other clusters. The control: the same course in the model that never had it, else
the same questions with each answer another's, which no model knows, in the edited one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from editkit.audits.course import Course, outcomes
from editkit.audits.subject import Arm, Dose, Sample, Scores, Subject, mean, permuted
from editkit.evidence.attacks import Attack, Control
from editkit.measuring.answers import answers
from editkit.measuring.ledger import Question
from editkit.measuring.store import Cell

TRIED = 10
"""Steps after which the rates are compared ..."""
HELD_BACK = 20
"""... on so many answers."""


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per task, number of answers and steps."""
    seed = int(rng.integers(2**31))
    for sample in subject.targets:
        for size in sorted({min(size, len(sample.lessons)) for size in subject.budget.lessons} - {0}):
            yield from _course(subject, sample, size, seed)


def _course(subject: Subject, sample: Sample, size: int, seed: int) -> Iterator[Attack]:
    rate = _best_rate(subject, sample, size, seed)
    attacked = _scores(subject, subject.edited, sample, size, Course((), rate, seed), others=True)
    name, lacks, control = "", True, None
    if subject.control.lacks:
        name, control = subject.control.name, _scores(subject, subject.control, sample, size, Course((), rate, seed))
    elif sample.named:
        other = permuted(sample, np.random.default_rng(seed))
        name = "edited, each answer another's"
        control = _scores(subject, subject.edited, other, size, Course((), rate, seed))
    for steps, (scores, others) in attacked.items():
        dose = Dose(f"{steps} step{'s' * (steps > 1)} on {size} answers", steps, size)
        beside = Control(name, mean(control[steps][0]), lacks) if control else None
        yield subject.row("relearning", dose, sample, Scores(scores), beside, others=others)


def _scores(
    subject: Subject, arm: Arm, sample: Sample, size: int, course: Course, *, others: bool = False
) -> dict[int, tuple[list[float], dict[str, float]]]:
    """After each number of steps: the sample's scores, and at 10 and at the end the change of other tasks."""
    steps = subject.budget.steps
    course = replace(course, answers=tuple(lesson.answer for lesson in sample.lessons[:size]))
    asked: dict[int, list[Question]] = {step: [answers(sample.task, sample.scored)] for step in steps}
    for step in {TRIED, max(steps)} & set(steps) if others else ():
        asked[step] += [answers(other.task, other.scored) for other in subject.others]
    cells = outcomes(arm, course, asked, title=f"Relearning {sample.task.name} from {size} answers, {arm.name}")
    scores = {step: [_values(row) for row in cells[step]] for step in steps}
    return {step: (own, subject.lost(rest) if rest else {}) for step, (own, *rest) in scores.items()}


def _best_rate(subject: Subject, sample: Sample, size: int, seed: int) -> float:
    """The one that soonest teaches what the attacker holds back; the given answers where there are no more."""
    if len(subject.budget.rates) == 1:
        return subject.budget.rates[0]
    given, rest = sample.lessons[:size], sample.lessons[size:]
    question = answers(sample.task, [lesson.example for lesson in (rest or given)[:HELD_BACK]])
    steps = [step for step in subject.budget.steps if step <= TRIED]

    def taught(rate: float) -> float:
        course = Course(tuple(lesson.answer for lesson in given), rate, seed)
        title = f"Trying the rate {rate:g} on {size} answers"
        cells = outcomes(subject.edited, course, dict.fromkeys(steps, [question]), title=title)
        return mean([mean(_values(cells[step][0])) for step in steps])

    return max(subject.budget.rates, key=taught)


def _values(cells: list[Cell]) -> list[float]:
    return [cell.value for cell in cells]
