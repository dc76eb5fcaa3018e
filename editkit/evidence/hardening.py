"""Rounds of attack and removal: how much a little fine-tuning brought back before each, and after the last.

Hardening(steps=25, rate=3e-5, lessons=60, held=80, base=.41, rounds=(Round(74, .01, .29), Round(154, .0, .04)))
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """So many units out.

    Args:
        before, after: mean scores on the held-back examples without training, and after it; of the format that scores
            best after it.
    """

    units: int
    before: float
    after: float


@dataclass(frozen=True)
class Hardening:
    """The same attack on one set after another, each with the units of the one before.

    Args:
        steps, rate, lessons: of the attack: optimizer steps, learning rate, answers it sees.
        held: how many examples of other clusters are scored.
        base: what the unedited model scores on them, in its best format.
        rounds: the first is of the set that was chosen without hardening.
    """

    steps: int
    rate: float
    lessons: int
    held: int
    base: float
    rounds: tuple[Round, ...]
