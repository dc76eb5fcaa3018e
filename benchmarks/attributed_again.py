"""Does it pay to attribute the target's answers again with the first neurons out?

    make real                              # fetches the model
    python -m benchmarks.attributed_again  # two capabilities; benchmarks/results/attributed-again.md

The first neurons in order are out: likelihood of right answers on ``locate``. One round is the contrast of the unedited
model; several attribute again before each. Formats behind the line were not searched.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real_model import MODEL
from editkit.checkpoints.knockout import Knockout
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.loading import load
from editkit.removal import find_neurons
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.removal.find_heads import control_measures
from editkit.tasks.task import examples_of

RESULT = Path("benchmarks/results/attributed-again.md")
ROUNDS = ((240,), find_neurons.ROUNDS, (15, 15, 30, 30, 60, 90))
SIZES = (30, 90, 150, 240)
EXAMPLES, DAMAGED = 60, 20
RECIPES: dict[str, dict[str, Any]] = {
    "addition": {"units": "neurons", "also": ["next-number"]},
    "capitals-neurons": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    model = load(options.model, dtype=options.dtype)
    lines = (__doc__ or "").strip().splitlines()
    text = ["# Attributed again", "", *lines[-3:], "SmolLM2-135M-Instruct, `python -m benchmarks.attributed_again`."]
    with opened(None) as store:
        for name in RECIPES:
            for line in table(Ledger(model, store), name):
                print(line, flush=True)
                text.append(line)
    RESULT.write_text("\n".join(text) + "\n", encoding="utf-8")


def table(ledger: Ledger, name: str) -> Iterator[str]:
    """Rows: an order, so many of its neurons out; columns: what is left of each format, the worst loss."""
    recipe = recipes.changed(recipes.read(name), RECIPES[name])
    wanted = capability(recipe, folder=Path())
    searched, others = (
        {task.name: likelihood_measure(ledger, task, examples_of(task, "locate", limit=EXAMPLES)) for task in tasks}
        for tasks in (wanted.targets, (*wanted.transfer, *wanted.also))
    )
    retained = control_measures(ledger, wanted.retain, EXAMPLES)
    given, needed = (
        {each: find_neurons.attributed(ledger, measure, recipe) for each, measure in measures.items()}
        for measures in (searched, retained)
    )
    damaged = {each: replace(measure, anchors=measure.anchors[:DAMAGED]) for each, measure in retained.items()}
    asked = searched | others | damaged
    yield f"\n## {name}\n\n| rounds | out | {' | '.join(searched)} | {' | '.join(others)} | worst loss |"
    yield f"|---|--:|{'--:|' * (len(searched) + len(others))}---|"
    for rounds in ROUNDS:
        places = find_neurons.ordered(ledger, searched, given, needed, recipe, rounds)
        columns = tuple(Knockout.of(places[:size]) for size in SIZES)
        masks = np.vstack([np.zeros(len(SIZES), dtype=bool), np.eye(len(SIZES), dtype=bool)])
        scores = {each: replace(measure, columns=columns)(masks).mean(axis=1) for each, measure in asked.items()}
        for row, size in enumerate(SIZES, 1):
            left = [f"{100 * scores[each][row] / scores[each][0]:.0f}" for each in (*searched, *others)]
            lost = {each: scores[each][0] - scores[each][row] for each in damaged}
            worst = max(lost, key=lambda each: lost[each])
            said = ", ".join(map(str, rounds)) if len(rounds) > 1 else "one"
            yield f"| {said} | {size} | {' | '.join(left)} | {100 * lost[worst]:+.1f} ({worst}) |"


if __name__ == "__main__":
    main()
