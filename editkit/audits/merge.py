"""Merged with the base: the zeroed slices come back at a share of what they were. How little is enough?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from editkit.audits.subject import Subject
from editkit.audits.weights import Change, WeightAttack, rows
from editkit.evidence.attacks import Attack
from editkit.models.language_model import LanguageModel
from editkit.models.training import Parts

SHARES = (0.1, 0.3, 0.5)


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    return rows(subject, "merge", [_merged(share) for share in SHARES])


def _merged(share: float) -> WeightAttack:
    def back(model: LanguageModel, zero: Parts) -> Change:
        def change(name: str, weight: torch.Tensor) -> torch.Tensor | None:
            return torch.where(zero[name], share * weight, weight) if name in zero else None

        return change

    return WeightAttack(f"{share:.0%} of the base", back, held=False)
