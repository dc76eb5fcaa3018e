"""Masks a second: editkit's likelihood measure against other ways to measure the same masks, all in one run.

    python -m benchmarks.throughput                      # the organism; writes benchmarks/results/throughput.md
    python -m benchmarks.throughput --large              # a random Llama of 100 million parameters as well

Contestants: the reference code's manner (the model reloaded for every mask, one example at a time, answers
generated); one mask per batch with hooks; masks mixed in one batch; single-head masks with shared lower layers; and
the plain model on the same rows, which is the floor.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from editkit.edit import Base
from editkit.knockout import knocked_out
from editkit.loading import load, load_source
from editkit.measure import LikelihoodMeasure, likelihood_measure
from editkit.model import LanguageModel
from editkit.source import Source
from editkit.store import opened
from editkit.task import Generate, Loglikelihood, examples_of
from editkit.tasks import TASKS

RESULTS = Path(__file__).parent / "results" / "throughput.md"
Run = Callable[[np.ndarray], None]


@dataclass(frozen=True)
class Bench:
    """One model, the rows (context, answer) that every mask is measured on, and the prompts they came from."""

    name: str
    model: LanguageModel
    requests: tuple[Loglikelihood, ...]

    def masks(self, count: int, heads: int, seed: int = 0) -> np.ndarray:
        rng = np.random.default_rng(seed)
        masks = np.zeros((count, len(self.model.architecture.heads)), dtype=bool)
        for row in masks:
            row[rng.choice(len(row), size=heads, replace=False)] = True
        return masks


def mixed(bench: Bench) -> Run:
    """editkit: rows of one batch under different masks."""

    def run(masks: np.ndarray) -> None:
        rows = [request for _ in masks for request in bench.requests]
        bench.model.answer(rows, np.repeat(masks, len(bench.requests), axis=0))

    return run


def one_per_batch(bench: Bench) -> Run:
    """Hooks, one mask at a time."""

    def run(masks: np.ndarray) -> None:
        for mask in masks:
            bench.model.answer(bench.requests, np.repeat(mask[None], len(bench.requests), axis=0))

    return run


def plain(bench: Bench) -> Run:
    """The floor: as many rows through the model without any mask."""

    def run(masks: np.ndarray) -> None:
        bench.model.answer([request for _ in masks for request in bench.requests], None)

    return run


def unshared(bench: Bench) -> Run:
    """editkit without sharing the layers below the first knockout."""
    return mixed(replace(bench, model=replace(bench.model, blocks=None)))


def reference(bench: Bench) -> Run:
    """Reload for every mask, batch 1, answers generated."""

    def run(masks: np.ndarray) -> None:
        for mask in masks:
            fresh = load_source(bench.model.source, check=False)
            with knocked_out(fresh.network, fresh.architecture, mask):
                for request in bench.requests:
                    fresh.answer([Generate(request.prompt, 16, request.chat)], None)

    return run


def reference_scored(bench: Bench) -> Run:
    """The same manner at equal scoring: reload, batch 1, teacher forced."""

    def run(masks: np.ndarray) -> None:
        for mask in masks:
            fresh = load_source(bench.model.source, check=False)
            with knocked_out(fresh.network, fresh.architecture, mask):
                for request in bench.requests:
                    fresh.answer([request], None)

    return run


def seconds(run: Run, masks: np.ndarray, *, repeats: int) -> float:
    """Median seconds a mask, after one warm-up."""
    run(masks[:1])
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(masks)
        times.append((time.perf_counter() - start) / len(masks))
    return statistics.median(times)


def organism(examples: int) -> Bench:
    model = load()
    with opened(None) as store:
        chosen = examples_of(TASKS["arithmetic"], "locate", limit=examples)
        measure: LikelihoodMeasure = likelihood_measure(model, TASKS["arithmetic"], chosen, store)
    return Bench("organism, 1.5 million parameters", model, tuple(rows[pick] for _, rows, pick in measure.anchors))


def large(folder: Path, examples: int) -> Bench:
    """A random Llama with the organism's tokenizer."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(load().source.directory)
    config = LlamaConfig(
        hidden_size=768, intermediate_size=2304, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4,
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = load_source(Source(folder, Base("random", "random")))
    prompts = [example.prompt for example in examples_of(TASKS["story"], "locate", limit=examples)]
    requests = tuple(Loglikelihood(prompt, " and then they all went home for the evening.") for prompt in prompts)
    return Bench(f"random Llama, {model.network.num_parameters() / 1e6:.0f} million parameters", model, requests)


def table(bench: Bench, *, count: int, few: int, repeats: int) -> str:
    """Rows of the report: milliseconds a mask, and ratios to the first row and to the floor."""
    random = bench.masks(count, max(1, len(bench.model.architecture.heads) // 20))
    singles = np.eye(len(bench.model.architecture.heads), dtype=bool)[:: max(1, random.shape[1] // count)]
    contestants = [
        ("reference manner: reload, batch 1, generate", reference, random[:few]),
        ("the same, teacher forced", reference_scored, random[:few]),
        ("hooks, one mask per batch", one_per_batch, random),
        ("editkit, masks mixed in a batch", mixed, random),
        ("plain model, the same rows (floor)", plain, random),
        ("editkit, single heads, nothing shared", unshared, singles),
        ("editkit, single heads, lower layers shared", mixed, singles),
    ]
    found = [(name, seconds(make(bench), masks, repeats=repeats)) for name, make, masks in contestants]
    slowest, floor = found[0][1], dict(found)["plain model, the same rows (floor)"]
    lines = [f"## {bench.name}, {len(bench.requests)} examples a mask", ""]
    lines += ["| way | ms a mask | times the reference | against the floor |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {1000 * each:.1f} | {slowest / each:.1f} | {100 * (each / floor - 1):+.1f} % |"
        for name, each in found
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    parts = [
        f"# Throughput\n\nWritten by `python -m benchmarks.throughput` on {machine}, float32, medians of 5 runs.\n"
    ]
    parts.append(table(organism(50), count=48, few=2, repeats=5))
    if arguments.large:
        with tempfile.TemporaryDirectory() as folder:
            parts.append(table(large(Path(folder), 8), count=8, few=1, repeats=5))
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text("\n".join(parts), "utf-8")
    print("\n".join(parts))


if __name__ == "__main__":
    main()
