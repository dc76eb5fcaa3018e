"""Solved examples before the question: 1, 4 and 8 of them, from other clusters, the same before every question.

What is the capital of Italy? / Rome / What is the capital of France?
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from editkit.audits.asked_otherwise import reworded
from editkit.audits.subject import Lesson, Subject
from editkit.evidence.attacks import Attack

SHOTS = (1, 4, 8)


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target and number of examples."""
    for sample in subject.targets:
        order = rng.permutation(len(sample.lessons))
        for shots in SHOTS:
            if len(order) < shots:
                break
            shown = "".join(_shown(sample.lessons[at]) for at in order[:shots])
            task = reworded(sample.task, shown.__add__)
            yield subject.asked("few-shot", f"{shots} example{'s' * (shots > 1)} before the question", sample, task)


def _shown(lesson: Lesson) -> str:
    answer = lesson.answer
    if answer.chat:
        return f"{answer.prompt}\n{answer.continuation.strip()}\n\n"
    return f"{answer.prompt}{answer.continuation}".rstrip("\n") + "\n"
