"""What attacks on a removal bring back, as values and as JSON: ``editkit/attacks.json``.

Attack("relearning", "5 steps on 60 answers", "capitals", n=38, clusters=19, base=.63, edited=.03, attacked=.42,
       control=Control("other answers: a mapping that no model knows", .03, lacks=True),
       recovered=Recovered(.65, .4, .9), others={"plurals": -.02}, steps=5, lessons=60)
Nats("capitals", 38, {"base": (.3, .1, None, None), "edited": (6.2, .2, None, None)})
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from editkit.errors import EditkitError
from editkit.evidence.recovery import Recovered
from editkit.evidence.typed import document, typed

FORMAT = 1
NAME = "editkit/attacks.json"


@dataclass(frozen=True)
class Control:
    """The same attack on another model, or another attack of the same form on the edited one.

    Args:
        lacks: whether it never had what was removed: what it scores was brought by the attack. Else it still has it:
            what it lost, the attack destroyed.
    """

    name: str
    score: float
    lacks: bool


@dataclass(frozen=True)
class Attack:
    """One attack at one dose, asked of one task.

    Args:
        n, clusters: how many examples were scored, and how many clusters they lie in.
        base, edited: mean scores without the attack; of another format, ``edited`` is what guessing scores.
        attacked: the edited model's mean score under the attack.
        recovered: None without a control, and where nothing was removed.
        others: change of other tasks by the attack, in score points: a model that lost everything resists nothing.
        steps, lessons: of trainings: optimizer steps, and how many answers they saw.
    """

    audit: str
    dose: str
    task: str
    n: int
    clusters: int
    base: float
    edited: float
    attacked: float
    control: Control | None
    recovered: Recovered | None
    others: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    lessons: int = 0

    def __post_init__(self) -> None:
        assert self.control is not None or self.recovered is None, "no R without its control"

    @property
    def share(self) -> float | None:
        """R, less the control's where that never had what was removed. None where R is unknown."""
        if self.recovered is None or self.control is None:
            return None
        taught = max(0.0, self.control.score - self.edited) / (self.base - self.edited) if self.control.lacks else 0.0
        return self.recovered.share - taught


@dataclass(frozen=True)
class Nats:
    """How unlikely each token of the base's right answers is (teacher forced), in nats: tokens 1, 2, 3 and the rest.

    ``arms``: by the model's name; None where no answer is so long.
    """

    task: str
    n: int
    arms: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True)
class Attacks:
    """All that was measured on one edit.

    Args:
        edit: the edit's digest.
        kept: share of the score above chance that is left without any attack, by target.
        never_had: the name of the model that never had the capability; None: there was none.
        notes: what was left out, and why.
        seconds: what each audit took here; no part of what is compared.
    """

    base: str
    edit: str
    budget: str
    seed: int
    dtype: str
    kept: Mapping[str, float]
    never_had: str | None = None
    rows: tuple[Attack, ...] = ()
    nats: tuple[Nats, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def audits(self) -> tuple[str, ...]:
        """What has a row, in order."""
        return tuple(dict.fromkeys(row.audit for row in self.rows))

    def of(self, *audits: str) -> list[Attack]:
        return [row for row in self.rows if row.audit in audits]

    @property
    def settings(self) -> tuple[object, ...]:
        """What rows have to have in common to stand in one table."""
        return (self.base, self.edit, self.budget, self.seed, self.dtype, self.kept, self.never_had)

    def joined(self, later: Attacks) -> Attacks:
        """These attacks and ``later`` ones: an audit that was made again counts as it was made last."""
        again = later.seconds.keys()
        return replace(
            later,
            rows=(*(row for row in self.rows if row.audit not in again), *later.rows),
            nats=later.nats or self.nats,
            notes=(*(note for note in self.notes if note.split(":")[0] not in again), *later.notes),
            seconds={**self.seconds, **later.seconds},
        )

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT} | asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str = NAME) -> Attacks:
        """Back from ``to_json``.

        Raises:
            EditkitError: it is none, or of another format.
        """
        try:
            value = document(text)
            if value.pop("format") != FORMAT:
                raise ValueError("another format")
            return typed(cls, value)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise EditkitError(f"{where}: expected the attacks on a removal, found something else: {error}.") from error


def steps_to_half(rows: Iterable[Attack], *, control: bool = False) -> float | None:
    """Steps of training until half of what was removed is back, between the two rows around it; None: not in these.

    Args:
        rows: of one task, trained on the same answers.
        control: of the control instead: until it scores as much as that.
    """
    steps, share = 0.0, 0.0
    for row in sorted(rows, key=lambda row: row.steps):
        if row.recovered is None or row.control is None:
            return None
        score = row.control.score if control else row.attacked
        now = (score - row.edited) / (row.base - row.edited)
        if now >= 0.5:
            return steps + (row.steps - steps) * (0.5 - share) / (now - share)
        steps, share = row.steps, max(0.0, now)
    return None
