"""What could be had at which damage: sets of units, each with what the target keeps and what retained tasks lose.

FrontierPoint(units=(L3H2, L23H4), kept={"capitals": .31}, lost={"plurals": .02, "addition": .00},
              answers={"capitals": (.65, .22), "plurals": (.97, .95), "addition": (.62, .60)})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from editkit.evidence.typed import typed
from editkit.units import Unit, parse, show


@dataclass(frozen=True)
class FrontierPoint:
    """One set that no other set beats: whatever takes more of the target costs more.

    Args:
        kept: per target, the share of its search score that is left, from 0 to 1.
        lost: per retained task, how much of its search score is lost, from -1 to 1.
        answers: task -> score before and after, of real answers on ``choose``; empty where the set was not tried,
            without some retained tasks where one had lost so much that the others were not asked.
    """

    units: tuple[Unit, ...]
    kept: Mapping[str, float]
    lost: Mapping[str, float]
    answers: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """The share left of the target that keeps most."""
        return max(self.kept.values())

    @property
    def worst(self) -> float:
        return max(self.lost.values())

    @property
    def mean(self) -> float:
        return sum(self.lost.values()) / len(self.lost)

    def to_dict(self) -> dict[str, Any]:
        answers = {task: list(scores) for task, scores in self.answers.items()}
        return {"units": show(self.units), "kept": dict(self.kept), "lost": dict(self.lost), "answers": answers}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> FrontierPoint:
        """Raises KeyError, TypeError, ValueError or EditkitError if it is none."""
        kept, lost = (typed(dict[str, float], value[key]) for key in ("kept", "lost"))
        answers = typed(dict[str, tuple[float, float]], value["answers"])
        if not kept or not lost:
            raise ValueError("a point of the frontier without a target or without a retained task")
        return cls(tuple(map(parse, typed(list[str], value["units"]))), kept, lost, answers)
