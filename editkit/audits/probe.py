"""A linear probe on hidden states: can the answer still be read where the model no longer says it?

Logistic regression from the hidden state at a prompt's last token to the answer, after the block that cross-validation
on the lessons chooses; scored in other clusters (1610.01644). The control learns shuffled answers (1909.03368).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from editkit.audits.hidden_states import hidden_states
from editkit.audits.subject import Arm, Dose, Sample, Scores, Subject, mean
from editkit.evidence.attacks import Attack, Control
from editkit.measuring.right_answers import right_answer
from editkit.models.encoding import Encoded
from editkit.models.shared_layers import blocks_of
from editkit.tasks.task import Example, Task

BLOCKS = 8
"""At most so many, evenly spaced, the last one among them."""
FOLDS = 3
FEWEST = 10
"""Scored examples that a row needs."""


@dataclass(frozen=True)
class _Reading:
    """Prompts and their answers: what is learned from, and what is scored."""

    taught: tuple[Encoded, ...]
    answers: np.ndarray
    scored: tuple[Encoded, ...]
    right: np.ndarray

    def states(self, arm: Arm) -> np.ndarray:
        """float32[blocks, prompts, width], those of ``taught`` first."""
        return hidden_states(arm, [context for context, _ in (*self.taught, *self.scored)]).numpy()

    def scores(self, states: np.ndarray, answers: np.ndarray) -> list[float]:
        """Whether each scored answer can be read, by a probe that learned ``answers``."""
        from sklearn.model_selection import cross_val_score

        blocks = np.unique(np.linspace(0, len(states) - 1, BLOCKS).round().astype(int))
        taught, scored = np.split(states, [len(self.taught)], axis=1)
        best = max(blocks, key=lambda block: float(cross_val_score(_probe(), taught[block], answers, cv=FOLDS).mean()))
        found = _probe().fit(taught[best], answers).predict(scored[best])
        return [float(each) for each in found == self.right]


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target whose scored answers are those of some lessons, as of sums and not of capitals."""
    model = subject.edited.model
    for sample in subject.targets if blocks_of(model.network, model.architecture) else ():
        reading, scored = _reading(subject, sample)
        if reading is None:
            continue
        base, edited = (reading.states(arm) for arm in (subject.base, subject.edited))
        attacked = reading.scores(edited, reading.answers)
        guessed = reading.scores(edited, rng.permutation(reading.answers))
        scores = Scores(attacked, reading.scores(base, reading.answers), guessed)
        lessons = len(reading.taught)
        dose = Dose(f"{lessons} answers, {len(set(reading.answers))} different", lessons=lessons)
        control = Control("edited, answers shuffled", mean(guessed), lacks=True)
        yield subject.row("probe", dose, replace(sample, scored=scored), scores, control)


def _reading(subject: Subject, sample: Sample) -> tuple[_Reading | None, tuple[Example, ...]]:
    """Of answers that are there often enough for each fold, and the scored examples with such an answer."""
    named = [(lesson.answer, lesson.answer.continuation.strip()) for lesson in sample.lessons]
    often = {text for text, count in Counter(text for _, text in named).items() if count >= FOLDS}
    scored = tuple(example for example in sample.scored if _right(sample.task, example) in often)
    lessons = [(answer, text) for answer, text in named if text in often]
    if len(scored) < FEWEST or len(often) < 2:
        return None, ()
    encode = subject.edited.model.encode
    asked = [answer for example in scored if (answer := right_answer(sample.task, example)) is not None]
    reading = _Reading(
        *(tuple(encode(answer) for answer, _ in lessons), np.array([text for _, text in lessons])),
        *(tuple(encode(answer) for answer in asked), np.array([_right(sample.task, example) for example in scored])),
    )
    return reading, scored


def _right(task: Task, example: Example) -> str | None:
    answer = right_answer(task, example)
    return None if answer is None else answer.continuation.strip()


def _probe() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
