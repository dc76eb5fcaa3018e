"""What a report shows besides its rows: dose curve or frontier, transcripts, audits, and what the model cannot do.

{"dose": [{"heads": 3, "target": {"mean": 0.31, "low": 0.24, "high": 0.39}, "retain": {"rhyme": 0.97}}, ...],
 "transcripts": [{"task": "swear", "prompt": "Say something rude.", "before": "Damn you.", "after": "Good day."}, ...],
 "audits": [{"name": "relearn", "summary": "50 steps of fine-tuning bring back 12 %.", "held": true}, ...]}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from editkit.errors import EditkitError
from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.hardening import Hardening
from editkit.evidence.intervals import Interval
from editkit.evidence.typed import document, typed


@dataclass(frozen=True)
class Dose:
    """The target's score and the retained tasks' means when the strongest ``heads`` heads are knocked out."""

    heads: int
    target: Interval
    retain: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Transcript:
    """One prompt and both answers, as generated."""

    task: str
    prompt: str
    before: str
    after: str


@dataclass(frozen=True)
class Audit:
    """One attack on the removal. ``held`` is None when the audit gives no verdict.

    ``name`` is one of ``NOT_TESTED``'s keys in ``wording.py`` when it answers that question.
    """

    name: str
    summary: str
    held: bool | None = None


@dataclass(frozen=True)
class Unable:
    """A task that the unedited model hardly does: a retained one is left out, a format of the target reported only."""

    task: str
    score: float
    chance: float
    n: int


@dataclass(frozen=True)
class Exhibits:
    """All optional: a page shows what is there and says what is not.

    Args:
        dose: where the heads are the first of the ranking.
        frontier: where a set of heads was chosen; the least damage first.
        hardening: where the set was grown by rounds of attack and removal.
    """

    dose: tuple[Dose, ...] = ()
    transcripts: tuple[Transcript, ...] = ()
    audits: tuple[Audit, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    unable: tuple[Unable, ...] = ()
    hardening: Hardening | None = None

    @classmethod
    def from_json(cls, text: str, *, where: str = "report.json") -> Exhibits:
        """Read the exhibits of a ``report.json``; keys that are absent are empty.

        Raises:
            EditkitError: naming ``where`` when an exhibit has another form.
        """
        try:
            value: Any = document(text)
            dose = tuple(typed(Dose, row) for row in value.get("dose") or ())
            transcripts = tuple(typed(Transcript, row) for row in value.get("transcripts") or ())
            audits = tuple(typed(Audit, row) for row in value.get("audits") or ())
            frontier = tuple(FrontierPoint.from_dict(row) for row in value.get("frontier") or ())
            unable = tuple(typed(Unable, row) for row in value.get("unable") or ())
            hardening = typed(Hardening, value["hardening"]) if value.get("hardening") else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, EditkitError) as error:
            raise EditkitError(
                f"{where}: the dose curve, frontier, transcripts or audits are not in the known form: {error}."
            ) from error
        return cls(dose, transcripts, audits, frontier, unable, hardening)

    def to_dict(self) -> dict[str, Any]:
        """The keys that ``report.json`` gets."""
        return {
            "dose": [asdict(dose) for dose in self.dose],
            "transcripts": [asdict(transcript) for transcript in self.transcripts],
            "audits": [asdict(audit) for audit in self.audits],
            "frontier": [point.to_dict() for point in self.frontier],
            "unable": [asdict(task) for task in self.unable],
            **({"hardening": asdict(self.hardening)} if self.hardening else {}),
        }
