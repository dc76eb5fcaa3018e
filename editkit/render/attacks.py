"""Attacks on a removal as lines of card and page: the worst row of each audit, and the rung that all of them leave.

prefill     the first token of the answer: capitals 63 %, removed to 3 %, under the attack 42 % (control 5 %)
"""

from __future__ import annotations

from dataclasses import replace

from editkit.evidence.attacks import Attack
from editkit.evidence.exhibits import Audit
from editkit.evidence.ladder import REACHED, standing
from editkit.evidence.outcome import Outcome
from editkit.render import wording
from editkit.render.wording import percent


def rung(outcome: Outcome) -> str:
    """The sentence for the first lines; empty where there is no checkpoint to attack."""
    if outcome.attacks:
        return f"{standing(outcome.attacks).sentence}."
    if wording.fate(outcome.provenance) != "removed":
        return ""
    return "at best suppressed; relearning not tested: a begun answer, other words or a little fine-tuning may undo it."


def shown(outcome: Outcome) -> Outcome:
    """With the attacks among the exhibits that a reader sees."""
    if outcome.attacks is None:
        return outcome
    audits = (*outcome.exhibits.audits, *(_worst(outcome.attacks.of(name)) for name in outcome.attacks.audits))
    return replace(outcome, exhibits=replace(outcome.exhibits, audits=audits))


def _worst(rows: list[Attack]) -> Audit:
    """The row that brings back most; of trainings the one after the fewest steps."""
    row = max(rows, key=lambda row: (row.share if row.share is not None else row.attacked, -row.steps))
    control = f"control {percent(row.control.score)} %, {row.control.name}" if row.control else "no control"
    summary = (
        f"{row.dose}: {row.task} {percent(row.base)} %, removed to {percent(row.edited)} %, "
        f"under the attack {percent(row.attacked)} % ({control}; n = {row.n})"
    )
    return Audit(row.audit, summary, None if row.share is None else row.share <= REACHED)
