"""Which tokens of the right answers were made unlikely: a look, not an attack, in one forward pass each.

base 0 / 0 / 0 / 0, edited 10.9 / 0 / 0 / 0     only the first token was suppressed: the rest follows from it
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from editkit.audits.subject import Arm, Subject, own_answers
from editkit.evidence.attacks import Nats
from editkit.models.knockout import knocked_out
from editkit.tasks.task import Loglikelihood

ROWS = 8


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Nats]:
    """One row per task, over what the base answers right."""
    arms = (subject.base, subject.edited, subject.control)
    for sample in (*subject.targets, *subject.formats):
        answers = [answer for answer in own_answers(subject.base, sample.task, sample.scored) if answer]
        if answers:
            yield Nats(sample.task.name, len(answers), {arm.name: nats(arm, answers) for arm in arms})


def nats(arm: Arm, answers: list[Loglikelihood]) -> tuple[float | None, ...]:
    """Mean nats of tokens 1, 2 and 3 of the answers, and of the rest; None where none is so long."""
    tokens: list[list[float]] = [[], [], [], []]
    with torch.inference_mode(), knocked_out(arm.model.network, arm.model.architecture, arm.out):
        for start in range(0, len(answers), ROWS):
            rows = [arm.model.encode(answer) for answer in answers[start : start + ROWS]]
            logprobs, _, real = arm.model.token_logprobs(rows)
            for row, length in zip(logprobs.tolist(), real.sum(-1).tolist(), strict=True):
                for at, logprob in enumerate(row[:length]):
                    tokens[min(at, 3)].append(-logprob)
    return tuple(round(float(np.mean(values)), 4) if values else None for values in tokens)
