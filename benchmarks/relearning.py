"""Which comes back sooner after fine-tuning: a capability without a few heads, without some neurons, or hardened?

    make real DTYPE=float32
    editkit remove-capability addition --units neurons --also next-number --harden --model FILE.gguf --dtype float32 \
        --work build/real-work --out build/hardened
    python -m benchmarks.relearning --edit heads=cards/addition --edit neurons=build/real --edit hardened=build/hardened
    python -m benchmarks.relearning --dtype bfloat16 --result relearning-capitals.md --edit heads=cards/capitals \
        --edit "neurons, two formats=cards/capitals-two-formats" \
        --edit "neurons, three formats=cards/capitals-whole-answers"

The edits are attacked as `editkit audit --only relearning --only token-nats` does: all weights, the zeroed slices held,
lessons and scored examples in other clusters, beside the same course with each answer another's, all on the first
target of each recipe. One rate, 3e-5, so that the edits are compared at equal strength. Measurements are kept in
build/relearning; what is there is not measured again. Writes benchmarks/results/relearning.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.real_model import MODEL
from editkit.api import load
from editkit.audits import AUDITS
from editkit.audits.run import audited
from editkit.audits.subject import Budget, subject_of
from editkit.cli.stages import on_stderr
from editkit.edit import Edit
from editkit.evidence.attacks import Attack, Attacks, steps_to_half
from editkit.evidence.provenance import Provenance
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability

WORK, RESULTS = Path("build/relearning"), Path("benchmarks/results")
BUDGET = Budget("benchmark", scored=60, others=12, lessons=(60,), steps=(2, 5, 10, 25), rates=(3e-5,))


def attacked(ledger: Ledger, folder: Path) -> tuple[Edit, Attacks]:
    """The edit of a removal, and its relearning."""
    edit = Edit.from_json((folder / "editkit" / "edit.json").read_text("utf-8"))
    text = Provenance.from_json((folder / "editkit" / "provenance.json").read_text("utf-8")).recipe_text
    recipe = recipes.parse(text, where=str(folder))
    first = recipes.changed(recipe, {"target": recipe.target[:1]})
    subject = subject_of(ledger, edit.units, capability(first), BUDGET)
    return edit, audited(subject, {name: AUDITS[name] for name in ("token-nats", "relearning")}, edit)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--result", default="relearning.md", help="The page's name.")
    parser.add_argument("--edit", action="append", required=True, metavar="NAME=FOLDER", help="A removal's output.")
    options = parser.parse_args()
    folders = {name: Path(folder) for name, _, folder in (edit.partition("=") for edit in options.edit)}
    with opened(WORK / "measurements.sqlite") as store:
        ledger = Ledger(load(str(options.model), device="cpu", dtype=options.dtype), store, on_stderr())
        found = {name: attacked(ledger, folder) for name, folder in folders.items()}
    (RESULTS / options.result).write_text(page(found, options.dtype), encoding="utf-8")


def page(found: dict[str, tuple[Edit, Attacks]], dtype: str) -> str:
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
    [task] = {row.task for _, attacks in found.values() for row in attacks.of("relearning")}
    text = [line.format(task=task, dtype=dtype) for line in _TEXT]
    return "\n".join([*text, "", *lines, "", "Nats of the tokens of the base's own right answers:", "", *nats, ""])


_TEXT = (
    "# Relearning after a removal",
    "",
    "`{task}` in SmolLM2-135M-Instruct, {dtype}, AdamW 3e-5, batches of 8, 60 answers in other clusters than the 60",
    "scored examples, zeroed slices held (`python -m benchmarks.relearning`). Scores in %. One seed.",
    "",
    "- To half: steps until half of what was removed is back.",
    "- Each answer another's: the same course on a mapping that no model knows, scored by that mapping.",
    "- Others: the worst change of another task after the last step, in points, of 12 examples each.",
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
