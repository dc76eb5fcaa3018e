"""Heads or neurons: what each removes at which damage, by the parameters that they zero.

    python -m benchmarks.heads_or_neurons    # benchmarks/results/heads-or-neurons.md, from the evidence in cards/

A head zeroes a slice of its output projection, head width x model width; a neuron a column of the down projection,
model width. Only what the committed runs on the real model measured is read; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.outcome import Outcome
from editkit.evidence.row import Row
from editkit.render import evidence_folder, wording
from editkit.render.wording import percent, points
from editkit.units import Head, Unit

ROOT = Path(__file__).parents[1]
RUNS = {
    "addition": ("addition", "addition-neurons", "addition-both"),
    "capitals": ("capitals", "capitals-two-formats", "capitals-whole-answers", "capitals-neurons"),
    "past-tense": ("past-tense",),
    "plurals": ("plurals",),
}
"""Few-shot task -> the runs that removed it, by folder of cards/."""
WIDTH, HEAD = 576, 64
"""SmolLM2-135M-Instruct's widths, of the model and of a head."""


def main() -> None:
    (ROOT / "benchmarks" / "results" / "heads-or-neurons.md").write_text("\n".join(page()) + "\n")


def page() -> Iterator[str]:
    runs = {task: [evidence_folder.read(ROOT / "cards" / name) for name in names] for task, names in RUNS.items()}
    yield "# Heads or neurons"
    yield ""
    yield (
        "SmolLM2-135M-Instruct. A head zeroes 64 x 576 parameters, a neuron 576. `python -m "
        "benchmarks.heads_or_neurons` reads the [cards](../../cards/README.md); scores in percent, changes in points. "
        "One model, four capabilities, one seed. Where heads and neurons of addition could be taken (`--units both`), "
        "98 neurons were, and no head. Neurons of capitals were searched in chat too, 240 and 128 of them in the "
        "reversed question; heads in few-shot alone. Past tense and plurals have no run by heads; within the budget "
        "they took 3 points of past tense ([the real model](real-model.md))."
    )
    yield ""
    yield "## What was chosen: fresh examples (`report`)"
    yield ""
    yield "| capability | removed | parameters zeroed | few-shot | other formats | worst retained [95 %] |"
    yield "|---|---|--:|--:|---|--:|"
    for task, outcomes in runs.items():
        for outcome in outcomes:
            yield _written(task, outcome)
    yield ""
    yield "## What could be had: real answers on `choose`"
    yield ""
    yield (
        "Sets that were tried, by the parameters that they zero. *Worst*: the retained task that loses most, of those "
        "that were asked: a set that costs too much is asked no further."
    )
    yield ""
    yield "| capability | parameters zeroed | units | few-shot | worst retained |"
    yield "|---|--:|---|--:|--:|"
    for task, outcomes in runs.items():
        tried = [(point, outcome) for outcome in outcomes for point in outcome.exhibits.frontier if point.answers]
        for point, outcome in sorted(tried, key=lambda pair: _zeroed(pair[0].units)):
            yield _tried(task, point, outcome)


def _written(task: str, outcome: Outcome) -> str:
    rows = {row.task: row for row in outcome.report.rows}
    others = [row for row in rows.values() if row.task.startswith(f"{task}-")]
    worst = wording.worst(outcome.report)
    assert worst is not None
    change = f"{points(worst.delta.mean)} [{points(worst.delta.low)}, {points(worst.delta.high)}] ({worst.task})"
    formats = "; ".join(f"{row.task.removeprefix(f'{task}-')} {_arms(row)}" for row in others)
    units = outcome.edit.units
    return f"| {task} | {_named(units)} | {_zeroed(units):,} | {_arms(rows[task])} | {formats} | {change} |"


def _tried(task: str, point: FrontierPoint, outcome: Outcome) -> str:
    before, after = point.answers[task]
    retained = [row.task for row in outcome.report.rows if row.role == "retain"]
    changes = {name: point.answers[name][1] - point.answers[name][0] for name in retained if name in point.answers}
    worst = min(changes, key=lambda name: changes[name])
    return (
        f"| {task} | {_zeroed(point.units):,} | {_named(point.units)} | {percent(before)} → {percent(after)} | "
        f"{points(changes[worst])} ({worst}) |"
    )


def _zeroed(units: Collection[Unit]) -> int:
    return sum(HEAD * WIDTH if isinstance(unit, Head) else WIDTH for unit in units)


def _named(units: Collection[Unit]) -> str:
    heads = sum(isinstance(unit, Head) for unit in units)
    counts = {"head": heads, "neuron": len(units) - heads}
    return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count)


def _arms(row: Row) -> str:
    return f"{percent(row.before.mean)} → {percent(row.after.mean)}"


if __name__ == "__main__":
    main()
