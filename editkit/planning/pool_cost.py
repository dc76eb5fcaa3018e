"""What a run will take when several copies of the model answer.

shared(plan("swear", model="meta-llama/Llama-3.1-8B-Instruct"), 8).describe()
"8 workers: about 31 min instead of 3.8 h, 9 copies of the model in memory (an estimate)"
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from editkit.planning.run_cost import Plan, duration

EFFICIENCY = 0.9
"""The share of the workers' time that is spent on answers, while there is work for all; our assumption."""
PIECE = 16_384
"""Tokens of the batches that workers get (``cluster.actors.PIECE``)."""
ROUNDS = 12
"""How often a search waits for its last answers before it knows what to ask next; our assumption."""


@dataclass(frozen=True)
class Shared:
    """A plan for several workers like the one that it was made for.

    Args:
        busy: how many have work on average: a search asks in rounds, and no batch is divided.
        copies: of the model in memory, the driver's own included.
    """

    workers: int
    busy: float
    copies: int
    alone: float
    seconds: float

    def describe(self) -> str:
        """One sentence for the terminal."""
        idle = f"; work for {self.busy:.0f} of them on average" if self.busy < 0.9 * self.workers else ""
        return (
            f"{self.workers} workers: about {duration(self.seconds)} instead of {duration(self.alone)}, {self.copies} "
            f"copies of the model in memory{idle} (an estimate: each worker as quick as one process here)"
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def shared(cost: Plan, workers: int, *, alone: float | None = None) -> Shared:
    """What so many workers make of a plan.

    Args:
        alone: seconds that one of them would take; the plan's own if None.
    """
    seconds = cost.seconds if alone is None else alone
    pieces = max(1.0, (cost.search_tokens + cost.answer_tokens) / PIECE)
    waves = pieces / workers + min(ROUNDS, pieces) * (
        1 - 1 / workers
    )  # each round ends with a batch that others wait for
    busy = pieces / max(waves, 1.0)
    return Shared(workers, min(float(workers), busy), workers + 1, seconds, seconds / max(1.0, EFFICIENCY * busy))
