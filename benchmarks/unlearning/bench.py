"""What all methods are compared on: a model, what it is to forget and to retain, and what is compared beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.unlearning.lessons import Lessons
from editkit.audits.subject import Budget
from editkit.edit import Edit
from editkit.measuring.ledger import Ledger
from editkit.removal.capability import Capability

REACHED = 0.05
"""A method has to leave at most this share of the base's score: what editkit calls *suppressed*."""


@dataclass(frozen=True)
class Bench:
    """One model.

    Args:
        ledger: of the base.
        edits: plain removals, as editkit found them, by name.
        audits: the attacks, by name.
        never_had: a model of the same shape that never had the capability; None: there is none.
        folder: where models and tuning are kept, so that a run that was stopped goes on.
        budget: of the attacks.
        choose: examples of each task that settings are compared on.
    """

    name: str
    ledger: Ledger
    wanted: Capability
    lessons: Lessons
    edits: Mapping[str, Edit]
    never_had: Ledger | None
    folder: Path
    budget: Budget
    audits: tuple[str, ...]
    choose: int = 60
    seed: int = 0
