"""How near cheap attributions of neurons come to the paper's: integrated gradients layer by layer, 19 steps.

    python -m benchmarks.attribution_paths                                          # the organism, a minute
    python -m benchmarks.attribution_paths --model MODEL --task capitals --rows 2   # another model; two rows take long

Prints a Markdown table: rank correlation over all neurons, and how many of the strongest 50 are the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from scipy.stats import spearmanr

from editkit.api import load
from editkit.localizers.commonality import PAPER_STEPS, strongest
from editkit.measuring.attribution import attributions
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import examples_of

WAYS = {"all layers, 19 steps": PAPER_STEPS, "all layers, 5 steps": 5, "all layers, first order": 1}
TOP = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--task", action="append", choices=list(TASKS))
    parser.add_argument("--rows", type=int, default=20)
    asked = parser.parse_args()
    model = load(asked.model, dtype=asked.dtype)
    print(f"| task | rows | way | rank correlation | of the strongest {TOP} | seconds |\n|---|--:|---|--:|--:|--:|")
    for name in asked.task or ("facts", "arithmetic", "sort", "recall"):
        for line in compared(model, name, asked.rows):
            print(line, flush=True)


def compared(model: LanguageModel, name: str, limit: int) -> Iterator[str]:
    """A row of the table for each way."""
    sites = model.architecture.neuron_sites
    with opened(None) as store:
        measure = likelihood_measure(Ledger(model, store), TASKS[name], examples_of(TASKS[name], "locate", limit=40))
    rows = [model.encode(anchor.requests[anchor.pick]) for anchor in measure.anchors[:limit]]

    def effect(parts: list[list], steps: int) -> np.ndarray:
        found = [attributions(model, rows, part, steps=steps, probability=True) for part in parts]
        return np.concatenate([scores.mean(0) for part in found for scores in part])

    start = time.monotonic()
    exact = effect([[site] for site in sites], PAPER_STEPS)
    yield f"| {name} | {len(rows)} | layer by layer, 19 steps | 1 | {TOP} | {time.monotonic() - start:.0f} |"
    for way, steps in WAYS.items():
        start = time.monotonic()
        cheap = effect([list(sites)], steps)
        both = int((strongest(exact, TOP) & strongest(cheap, TOP)).sum())
        rank = float(np.asarray(spearmanr(exact, cheap))[0])
        yield f"| {name} | {len(rows)} | {way} | {rank:.2f} | {both} | {time.monotonic() - start:.0f} |"


if __name__ == "__main__":
    main()
