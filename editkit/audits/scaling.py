"""What is left of the edited projections, times 1.5 and 3: other heads or neurons of the same layers speak louder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from editkit.audits.subject import Subject
from editkit.audits.weights import Change, WeightAttack, rows
from editkit.evidence.attacks import Attack
from editkit.models.language_model import LanguageModel
from editkit.models.training import Parts

FACTORS = (1.5, 3.0)


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    return rows(subject, "scaling", [_scaled(factor) for factor in FACTORS])


def _scaled(factor: float) -> WeightAttack:
    def louder(model: LanguageModel, zero: Parts) -> Change:
        return lambda name, weight: factor * weight if name in zero else None

    return WeightAttack(f"times {factor:g}", louder)
