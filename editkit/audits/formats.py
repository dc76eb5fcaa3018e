"""Other formats of the capability, which the edit was not searched in: the sharpest audit on real models.

France ->            What is the capital of France?            Paris is the capital of which country?
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from editkit.audits.subject import Dose, Scores, Subject
from editkit.evidence.attacks import Attack


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per format: ``base`` as asked so; ``edited`` is what guessing scores, as if nothing were left in it."""
    for sample in subject.formats:
        attacked, beside = (arm.scores(sample.task, sample.scored) for arm in (subject.edited, subject.control))
        scores = Scores(attacked, edited=[sample.task.chance] * len(attacked))
        dose = Dose(f"asked as {sample.task.name}")
        yield subject.row("formats", dose, sample, scores, subject.beside(beside))
