"""Fine-tuning on other tasks: does what has nothing to do with the capability bring it back?

Right answers of the retained tasks, all weights, the zeroed slices held at zero, the middle one of relearning's rates.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from editkit.audits.course import Course, Run, outcomes
from editkit.audits.subject import Dose, Scores, Subject
from editkit.evidence.attacks import Attack
from editkit.measuring.answers import answers


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target, after the last number of steps."""
    given, rates = subject.benign, sorted(subject.budget.rates)
    if not given:
        return
    course, steps = Course(given, rates[len(rates) // 2], int(rng.integers(2**31))), max(subject.budget.steps)

    asked = [answers(sample.task, sample.scored) for sample in (*subject.targets, *subject.others)]
    arms = (subject.edited, subject.control)
    cells = outcomes([Run(arm, course, {steps: asked}, f"Fine-tuning on other tasks, {arm.name}") for arm in arms])
    attacked, beside = ([[cell.value for cell in row] for row in after[steps]] for after in cells)
    lost = subject.lost(attacked[len(subject.targets) :])
    dose = Dose(f"{steps} steps on {len(given)} answers of other tasks", steps, len(given))
    for sample, scores, control in zip(subject.targets, attacked, beside, strict=False):
        yield subject.row("fine-tuning", dose, sample, Scores(scores), subject.beside(control), others=lost)
