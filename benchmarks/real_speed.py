"""Where the time of a removal on the real model goes: matrix products, the rest of the network, and everything else.

    make real                        # fetches the model
    python -m benchmarks.real_speed  # writes benchmarks/results/real-speed.md

All in one run: the machine's own matrix product, the plain network on the same tokens, and editkit's two ways to ask it
(likelihoods under masks, as the search does; answers, as the report does), each under torch's profiler. Masks are of
layer 0, so that no layer can be shared: what sharing saves comes on top.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.real_model import MODEL
from editkit.api import load
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import examples_of
from editkit.units import Head

RESULTS = Path(__file__).parent / "results" / "real-speed.md"
PRODUCTS = ("aten::linear", "aten::addmm", "aten::mm", "aten::bmm", "aten::matmul", "mkldnn", "scaled_dot_product")
EXAMPLES, REPEATS = 40, 3


def peak(model: LanguageModel) -> float:
    """Operations a second of the network's largest product, on a batch of 2,048 tokens."""
    weight = torch.randn(1536, 576, dtype=model.network.dtype)
    states = torch.randn(2048, 576, dtype=model.network.dtype)
    seconds = timed(lambda: [torch.nn.functional.linear(states, weight) for _ in range(50)])
    return 50 * 2 * states.numel() * len(weight) / seconds


def timed(run: Callable[[], object]) -> float:
    """The median of several runs after one to warm up, in seconds of wall clock."""
    run()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def in_products(run: Callable[[], object]) -> float:
    """The share of the operators' time that is in matrix products and attention."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    own = {row.key: row.self_cpu_time_total for row in profile.key_averages()}
    return sum(value for key, value in own.items() if any(part in key for part in PRODUCTS)) / sum(own.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    model = load(str(options.model), device="cpu", dtype=options.dtype)
    masks = model.architecture.masks([[Head(0, 1)], [Head(0, 5)]])
    operations = 2 * sum(part.numel() for name, part in model.network.named_parameters() if "embed" not in name)
    task = TASKS["addition"]
    with opened(None) as store:
        measure = likelihood_measure(Ledger(model, store), task, examples_of(task, "locate", limit=EXAMPLES))
    rows = [model.encode(anchor.requests[0]) for anchor in measure.anchors]
    tokens = len(masks) * sum(len(context) + len(more) - 1 for context, more in rows)
    width = max(len(context) + len(more) for context, more in rows)
    ids = torch.randint(40_000, (len(rows), width - 1))

    def plainly() -> None:
        with torch.inference_mode():
            size = max(1, model.budget.tokens // width)
            for _ in masks:
                for start in range(0, len(ids), size):
                    model.network(input_ids=ids[start : start + size], use_cache=False, logits_to_keep=8)

    def masked() -> np.ndarray:
        with opened(None) as store:
            return type(measure)(Ledger(model, store), task, measure.anchors)(masks)

    def answers() -> object:
        with opened(None) as store:
            asked = [anchor.example for anchor in measure.anchors]
            return task_scores(Ledger(model, store), task, asked, masks)

    best, plain = peak(model), timed(plainly)
    padded = len(masks) * ids.numel()
    lines = [
        "# Where the time goes on a real model",
        "",
        f"SmolLM2-135M-Instruct, {options.dtype}, {torch.get_num_threads()} threads, {platform.machine()}; few-shot "
        f"addition, {len(rows)} prompts of {width} tokens under {len(masks)} masks. The machine's own product of 2,048 "
        f"x 576 by 576 x 1,536: {best / 1e9:,.0f} GFLOP/s. `python -m benchmarks.real_speed` writes this file.",
        "",
        "| what | tokens a second | of the plain network | of the product's speed | time in products and attention |",
        "|---|--:|--:|--:|--:|",
    ]
    contests = [("the plain network", plain, plainly, padded)]
    contests += [("likelihoods under masks", timed(masked), masked, tokens)]
    contests += [("answers under masks", timed(answers), answers, tokens)]
    for name, seconds, run, count in contests:
        speed = count / seconds
        lines.append(
            f"| {name} | {speed:,.0f} | {speed / (padded / plain):.2f} | {operations * speed / best:.2f} | "
            f"{in_products(run):.0%} |"
        )
    lines += ["", "Answers also write up to 8 tokens each, one at a time, which their row does not count as tokens."]
    RESULTS.write_text("\n".join(lines) + "\n")
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
