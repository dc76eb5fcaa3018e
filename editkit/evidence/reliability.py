"""What a reliability run found, as values and as JSON: located sets, how far they agree, what erasing and training do.

Reliability(capability="capitals", units="neurons", data=(DataSet("capitals", "capability", 22, .55), ...), ...)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from editkit.evidence.overlap import Overlap

PUBLISHED = {
    "overlap": 96.42,
    "iou": 95.95,
    "note": (
        "Published for GSM8K (arXiv 2502.20992), in percent. Not both can be plain overlaps of one pair of sets: with "
        "equal sizes an overlap of .9642 forces an IoU of .931. So they are shown, and no reproduction is claimed."
    ),
}

RELATIONS: Mapping[str, str] = {
    "other half": "same data set, other content",
    "other format, same content": "same capability, other data set, same content",
    "other format, other content": "same capability, other data set, other content",
    "content": "same content, other capability",
    "neither": "neither",
}
"""How two halves of data sets are related."""
SAME = ("other half", "other format, same content", "other format, other content")
"""The relations of two halves that show the same capability."""


@dataclass(frozen=True)
class DataSet:
    """One data set. ``examples`` were asked, of which the model got ``right`` right: only those locate.

    Args:
        located: how many units it locates by itself.
        reported: examples that were erased and scored; ``fresh``: of these, about things not located on.
    """

    task: str
    role: str
    examples: int
    right: int
    located: int
    reported: int
    fresh: int


@dataclass(frozen=True)
class Pair:
    """Two halves, each the name of a data set and 0 or 1, and what their located sets share."""

    first: tuple[str, int]
    second: tuple[str, int]
    relation: str
    overlap: Overlap


@dataclass(frozen=True)
class Agreement:
    """The pairs of one relation, at one way to choose a set: means over pairs with two sets that are not empty."""

    chosen: str
    relation: str
    pairs: int
    empty: int
    size: float
    """Mean size of the located sets, empty ones too."""
    values: Mapping[str, float]
    expected: Mapping[str, float]


@dataclass(frozen=True)
class Erased:
    """One data set without one located set, and without each random set of the same sizes in the same layers.

    Before and after. Likelihoods are of the model's own right answers, from 0 to 1, empty where it has too few; scores
    are of its answers as the task judges them; those of random sets and ``few_score`` on the first ``few`` examples of
    a data set of the capability.
    ``p``: the rank of the located set's drop among the random ones.
    """

    located: str
    task: str
    role: str
    examples: int
    likelihood: tuple[float, ...]
    random_likelihood: tuple[float, ...]
    p_likelihood: float | None
    score: tuple[float, float]
    collapse: float
    few: int
    few_score: tuple[float, ...]
    random_score: tuple[float, ...]
    p_score: float | None


@dataclass(frozen=True)
class Enhanced:
    """One data set after training one set of numbers on the right answers of another, or of the same.

    ``rate`` is the learning rate; ``nats`` the mean log-probability per token of the right answer, None where the task
    names none.
    """

    trained_on: str
    arm: str
    seed: int
    rate: float
    numbers: int
    task: str
    role: str
    examples: int
    nats: float | None
    score: float


@dataclass(frozen=True)
class Reliability:
    """All of one run. ``located``: name of a located set -> its units."""

    capability: str
    model: str
    units: str
    total: int
    chosen: str
    settings: Mapping[str, Any]
    data: tuple[DataSet, ...]
    left_out: Mapping[str, str]
    pairs: tuple[Pair, ...]
    agreement: tuple[Agreement, ...]
    located: Mapping[str, tuple[str, ...]]
    seed: int = 0
    erased: tuple[Erased, ...] = ()
    enhanced: tuple[Enhanced, ...] = ()
    notes: tuple[str, ...] = ()
    published: Mapping[str, Any] = field(default_factory=lambda: dict(PUBLISHED))

    @property
    def separation(self) -> float | None:
        """How often a pair of one capability has a larger IoU than a pair of two, ties by half; None: no pairs."""
        same = [pair.overlap.values.get("iou", 0.0) for pair in self.pairs if pair.relation in SAME]
        others = [pair.overlap.values.get("iou", 0.0) for pair in self.pairs if pair.relation not in SAME]
        if not same or not others:
            return None
        wins = sum((a > b) + (a == b) / 2 for a in same for b in others)
        return wins / (len(same) * len(others))

    def to_json(self) -> str:
        value = {"format": 1, **asdict(self), "separation": self.separation}
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
