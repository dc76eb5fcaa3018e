"""Training as an attack: one run, asked at several steps on the way. What was asked once is not trained again.

outcomes(subject.edited, Course(answers, rate=2e-4), {5: [question], 25: [question, other]}, title="Relearning")
{5: [cells], 25: [cells, cells]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from editkit.audits.subject import Arm
from editkit.measuring.ledger import Question
from editkit.measuring.store import Cell
from editkit.models.knockout import knocked_out
from editkit.models.training import Training, all_weights, trained
from editkit.tasks.task import Loglikelihood


@dataclass(frozen=True)
class Course:
    """All weights are trained on these answers; the units that are out stay out."""

    answers: tuple[Loglikelihood, ...]
    rate: float
    seed: int = 0


def outcomes(
    arm: Arm, course: Course, asked: Mapping[int, Sequence[Question]], *, title: str
) -> dict[int, list[list[Cell]]]:
    """The cells of each question after so many steps."""
    after = {steps: replace(arm.ledger, attack=_name(arm, course, steps)) for steps in asked}

    def answered(steps: int) -> list[list[Cell]]:
        return [after[steps].cells(question, [arm.out])[0] for question in asked[steps]]

    if all(after[steps].holds(question, [arm.out]) for steps in asked for question in asked[steps]):
        return {steps: answered(steps) for steps in asked}
    cells: dict[int, list[list[Cell]]] = {}
    model, last = arm.model, max(asked)
    with arm.ledger.stages(title, last) as advance:

        def watch(steps: int) -> None:
            advance(1)
            if steps in asked:
                cells[steps] = answered(steps)

        rows = [model.encode(answer) for answer in course.answers]
        training, rng = Training(last, course.rate), np.random.default_rng(course.seed)
        with (
            knocked_out(model.network, model.architecture, arm.out),
            trained(model, all_weights(model.network), rows, training, rng, watch=watch),
        ):
            pass
    return cells


def _name(arm: Arm, course: Course, steps: int) -> str:
    """All that the weights depend on: the number of steps to come does not change those that were made."""
    answers = hashlib.sha256(repr(course.answers).encode()).hexdigest()
    return f"{steps} steps at {course.rate} on {answers}, seed {course.seed}, without {arm.out.key.hex()}"
