"""Which comes back sooner after fine-tuning: a capability without a few heads, or without some hundred neurons?

    make real                             # fetches the model
    python -m benchmarks.relearning       # four edits of SmolLM2-135M-Instruct; benchmarks/results/relearning.md

The committed edits of addition and capitals (cards/), attacked as `editkit audit --only relearning --only token-nats`
does: all weights, the zeroed slices held, lessons and scored examples in other clusters, beside the same course with
each answer another's. One rate, 3e-5, so that the edits are compared at equal strength; the weights in bfloat16 with
copies in float32. Measurements are kept in build/relearning; what is there is not measured again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.real_model import MODEL
from editkit.audits import AUDITS
from editkit.audits.run import audited
from editkit.audits.subject import Budget, subject_of
from editkit.cli.stages import on_stderr
from editkit.edit import Edit
from editkit.evidence.attacks import Attack, Attacks, steps_to_half
from editkit.evidence.provenance import Provenance
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.loading import load
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability

WORK, RESULT = Path("build/relearning"), Path("benchmarks/results/relearning.md")
CARDS = ("capitals", "capitals-neurons", "addition", "addition-neurons")
BUDGET = Budget("benchmark", scored=30, others=6, lessons=(60,), steps=(2, 5, 10, 25), rates=(3e-5,))


def attacked(ledger: Ledger, card: str) -> tuple[Edit, Attacks]:
    """The edit of a card, and its relearning."""
    folder = Path("cards") / card / "editkit"
    edit = Edit.from_json((folder / "edit.json").read_text("utf-8"))
    text = Provenance.from_json((folder / "provenance.json").read_text("utf-8")).recipe_text
    subject = subject_of(ledger, edit.units, capability(recipes.parse(text, where=card)), BUDGET)
    return edit, audited(subject, {name: AUDITS[name] for name in ("token-nats", "relearning")}, edit)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--card", choices=CARDS, help="Only this one, and no table.")
    options = parser.parse_args()
    with opened(WORK / "measurements.sqlite") as store:
        ledger = Ledger(load(str(options.model), device="cpu", dtype="bfloat16"), store, on_stderr())
        found = {card: attacked(ledger, card) for card in CARDS if options.card in (None, card)}
    if options.card is None:
        RESULT.write_text(page(found), encoding="utf-8")


def page(found: dict[str, tuple[Edit, Attacks]]) -> str:
    """The tables."""
    [steps] = {tuple(row.steps for row in attacks.of("relearning")) for _, attacks in found.values()}
    head = ["edit", "units", "base", "edited", *(f"{step} steps" for step in steps), "to half", "others"]
    lines = [_line(head), _line(["---", *["--:"] * (len(head) - 1)])]
    nats = [_line(["edit", "1st", "2nd", "3rd", "rest"]), _line(["---", *["--:"] * 4])]
    for card, (edit, attacks) in found.items():
        rows = attacks.of("relearning")
        lines.append(_line([card, f"{len(edit.units)} {edit.kind}s", *_scores(rows), _half(rows), _worst(rows)]))
        beside = [_percent(row.control.score) if row.control else "" for row in rows]
        lines.append(_line(["each answer another's", "", "", "", *beside, _half(rows, control=True), ""]))
        for line in attacks.nats[:1]:
            for arm in ("base", "edited"):
                values = ("" if value is None else f"{value:.2f}" for value in line.arms[arm])
                nats.append(_line([f"{card}, {arm}", *values]))
    return "\n".join([*_TEXT, "", *lines, "", "Nats of the tokens of the base's own right answers:", "", *nats, ""])


_TEXT = (
    "# Relearning: heads against neurons",
    "",
    "SmolLM2-135M-Instruct, bfloat16 weights with float32 copies, AdamW 3e-5, batches of 8, 60 answers in other",
    "clusters than the 30 scored examples, zeroed slices held (`python -m benchmarks.relearning`). Scores in %.",
    "",
    "- To half: steps until half of what was removed is back.",
    "- Each answer another's: the same course on a mapping that no model knows, scored by that mapping.",
    "- Others: the worst change of another task after the last step, in points, of 6 examples each.",
)


def _scores(rows: list[Attack]) -> list[str]:
    return [_percent(score) for score in (rows[0].base, rows[0].edited, *(row.attacked for row in rows))]


def _half(rows: list[Attack], *, control: bool = False) -> str:
    steps = steps_to_half(rows, control=control)
    return f"over {max(row.steps for row in rows)}" if steps is None else f"{steps:.1f}"


def _worst(rows: list[Attack]) -> str:
    last = rows[-1].others
    return f"{100 * min(last.values()):+.0f}" if last else ""


def _percent(score: float) -> str:
    return f"{100 * score:.0f}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
