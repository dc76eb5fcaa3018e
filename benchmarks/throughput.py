"""Masks a second: editkit's likelihood measure against other ways to measure the same masks, all in one run.

    python -m venv build/peers && build/peers/bin/pip install torch==2.13.0 transformer-lens nnsight accelerate
    python -m benchmarks.throughput --peers build/peers/bin/python    # writes benchmarks/results/throughput.md

On the organism and on a random Llama of 100 million parameters. Every contestant measures the same masks on the same
rows; their scores are compared, so that none is fast by doing something else. Runs are interleaved and counted in CPU
time of one thread: other work on the machine then matters little. Loading from disk is only counted as CPU time. With
``--device cuda`` it is the time that passes.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.ways import Bench, Timed, editkit, hooked, library, reference, rows_only
from editkit.api import load
from editkit.checkpoints.source import Source
from editkit.edit import Base
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import Anchor, LikelihoodMeasure, likelihood_measure
from editkit.measuring.store import opened
from editkit.models.batches import shared_length
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source
from editkit.models.placement import Placement
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Example, Loglikelihood, examples_of

RESULTS = Path(__file__).parent / "results" / "throughput.md"


@dataclass(frozen=True)
class Result:
    """Seconds a mask, run by run, and how far the scores are from editkit's; or why there are none."""

    name: str
    seconds: tuple[float, ...] = ()
    off: float | None = None
    missing: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def race(contestants: list[tuple[str, Timed | str, int, int]], truth: np.ndarray, repeats: int) -> dict[str, Result]:
    """Run everybody in turn, ``repeats`` times over, after one warm-up; slow ones (last number) fewer times."""
    found: dict[str, Result] = {}
    for repeat in range(repeats + 1):
        for name, run, masks, times in contestants:
            if isinstance(run, str):
                found[name] = Result(name, missing=run)
            elif repeat <= times:
                seconds, scores = run()
                old = found.get(name, Result(name))
                off = old.off if scores is None or not isinstance(scores, np.ndarray) else _off(scores, truth)
                # The first run warms up, unless it is the only one that a slow contestant gets.
                kept = old.seconds if repeat == 0 and times > 0 else (*old.seconds, seconds / masks)
                found[name] = Result(name, kept, off)
    return found


def _off(scores: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(scores - truth[: len(scores)]).max())


def organism(examples: int, device: str, store: Any) -> Bench:
    task, model = TASKS["arithmetic"], load(device=device)
    measure = likelihood_measure(Ledger(model, store), task, examples_of(task, "locate", limit=examples))
    return Bench(f"The organism, {_size(model)} parameters", measure, new_tokens=16)


def large(folder: Path, device: str, dtype: str, prompts: list[str], answer: str, store: Any, note: str) -> Bench:
    """A random Llama with the organism's tokenizer; a model that knows nothing never stops early."""
    model = load_source(Source(folder, Base("random", "random")), Placement(device, dtype))
    anchors = tuple(
        Anchor(Example(str(number), text), (Loglikelihood(text, answer),)) for number, text in enumerate(prompts)
    )
    measure = LikelihoodMeasure(Ledger(model, store), TASKS["story"], anchors)
    return Bench(f"A random Llama, {_size(model)} parameters, {dtype}, {note}", measure, new_tokens=64)


def write_random_llama(folder: Path) -> None:
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(load().source.directory)
    config = LlamaConfig(
        hidden_size=768, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4,
        max_position_embeddings=2048, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def table(bench: Bench, python: str | None, *, count: int, repeats: int) -> str:
    """Everybody on random masks, and a sweep over single heads with and without shared layers.

    Single heads are set against the reference's time with a random mask. Where answers may end early, as the organism's
    do, that is not quite fair: they may be longer or shorter with a single head.
    """
    masks, singles = bench.random_masks(count), bench.single_heads(count)
    one = masks[:1]
    truth = bench.measure(masks)
    job = bench.job(masks)
    with library(python, "transformer_lens", job) as lens, library(python, "nnsight", job) as sight:
        found = race(
            [
                ("reload, batch 1, generate: the reference's manner", reference(bench, one, generated=True), 1, 3),
                ("reload, batch 1, teacher forced", reference(bench, one, generated=False), 1, 3),
                ("hooks, one mask a batch", hooked(bench, masks), count, repeats),
                ("TransformerLens, one mask a batch", lens, count, repeats),
                ("nnsight, one mask a batch", sight, count, repeats),
                ("**editkit**, store included", editkit(bench, masks), count, repeats),
                ("editkit, rows under their masks", rows_only(bench, masks, masked=True), count, repeats),
                ("the same rows through the plain model", rows_only(bench, masks, masked=False), count, repeats),
            ],
            truth,
            repeats,
        )  # fmt: skip
    plain = bench.of(replace(bench.model, blocks=None))
    sweep = race(
        [
            ("editkit, single heads, no layers shared", editkit(plain, singles), len(singles), repeats),
            ("editkit, single heads", editkit(bench, singles), len(singles), repeats),
        ],
        bench.measure(singles),
        repeats,
    )
    return _shown(bench, found, sweep)


def _shown(bench: Bench, found: dict[str, Result], sweep: dict[str, Result]) -> str:
    slowest, ours = next(iter(found.values())).median, found["**editkit**, store included"].median
    lengths = [len(context) + len(answer) for context, answer in map(bench.model.encode, bench.requests)]
    lines = [
        f"## {bench.name}",
        "",
        f"{len(lengths)} examples of {min(lengths)} to {max(lengths)} tokens a mask; generated answers have at most "
        f"{bench.new_tokens} tokens.",
        "",
        "| way | ms a mask | masks x examples a second | times the reference | editkit is faster by | scores off by |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for result in (*found.values(), *sweep.values()):
        if result.missing:
            lines.append(f"| {result.name} | {result.missing} | | | | |")
            continue
        each = result.median
        compared = [f"{slowest / each:.1f}", f"{each / ours:.1f}" if result.name in found else ""]
        off = "" if result.off is None else f"{result.off:.0e}"
        cells = [result.name, f"{1000 * each:.1f}", f"{len(lengths) / each:.0f}", *compared, off]
        lines.append(f"| {' | '.join(cells)} |")
    masked, plain = found["editkit, rows under their masks"], found["the same rows through the plain model"]
    ratios = sorted(100 * (one / other - 1) for one, other in zip(masked.seconds, plain.seconds, strict=True))
    whole = [
        100 * (one / other - 1)
        for one, other in zip(found["**editkit**, store included"].seconds, plain.seconds, strict=True)
    ]
    apart, shared = (result.median for result in sweep.values())
    lines += [
        "",
        f"Overhead of the masks, run against run: median {statistics.median(ratios):+.1f} % ({ratios[0]:+.1f} to "
        f"{ratios[-1]:+.1f}), fastest against fastest {100 * (min(masked.seconds) / min(plain.seconds) - 1):+.1f} %. "
        f"With judging and the store: {statistics.median(whole):+.1f} %. "
        f"Sharing the layers below a single head's knockout: {apart / shared:.2f} times faster.",
        "",
    ]
    return "\n".join(lines)


def few_shot_table(bench: Bench, *, few: int) -> str:
    """What all prompts begin with, run once per mask or for every row; the slow ways on a few examples only."""
    whole = bench.of(replace(bench.model, prefixes=False)).first(few)
    contexts = [bench.model.encode(request)[0] for request in bench.requests]
    mask = bench.random_masks(1)
    generated = statistics.median(reference(bench.first(1), mask, generated=True)()[0] for _ in range(3))
    slow, truth = editkit(whole, mask)()
    fast, scores = editkit(bench, mask)()
    assert truth is not None and scores is not None
    ways = [
        ("reload, batch 1, generate: the reference's manner", generated),
        ("editkit, the beginning run for every row", slow / few),
        ("**editkit**, the beginning run once per mask", fast / len(contexts)),
    ]
    shortest, longest = min(map(len, contexts)), max(map(len, contexts))
    lines = [
        f"## {bench.name}",
        "",
        f"{len(contexts)} examples of {shortest} to {longest} tokens a mask, of which the first "
        f"{shared_length(contexts)} are the same; generated answers have {bench.new_tokens} tokens. One mask, once. "
        f"The first way was timed on one example, three times, the second on {few}: what they do for an example does "
        "not depend on the others, but for the loading, of which the first bears the whole.",
        "",
        "| way | ms an example | times the reference |",
        "|---|---:|---:|",
        *(f"| {name} | {1000 * each:.0f} | {generated / each:.1f} |" for name, each in ways),
        "",
        f"Scores of the last two differ by {_off(truth, scores[:, :few]):.0e} at most.",
    ]
    return "\n".join(lines) + "\n"


def prompts(count: int, *, shots: int = 0) -> list[str]:
    """Stories to go on with, behind the same worked examples of about 190 tokens each."""
    texts = [example.prompt for example in examples_of(TASKS["story"], "locate")]
    shown = [" ".join((texts[count:] * 40)[12 * shot : 12 * shot + 12]) for shot in range(shots)]
    return [" ".join([*shown, text]) for text in texts[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="the Python of a venv with transformer-lens and nnsight")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", help="of the random Llama")
    parser.add_argument("--quick", action="store_true", help="the organism alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts, device = [_head(arguments.peers, arguments.device)], arguments.device
    answer = " and then they all went home for the evening and slept until the next morning came."
    with opened(None) as store, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts.append(table(organism(50, device, store), arguments.peers, count=12, repeats=7))
        if not arguments.quick:
            write_random_llama(folder)
            bench = large(folder, device, arguments.dtype, prompts(4), answer, store, "short prompts")
            parts.append(table(bench, arguments.peers, count=2, repeats=3))
            bench = large(folder, device, arguments.dtype, prompts(48, shots=5), answer, store, "few-shot prompts")
            parts.append(few_shot_table(bench, few=3))
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text("\n".join(parts), "utf-8")
    print("\n".join(parts))


def _head(python: str | None, device: str) -> str:
    script = "from importlib.metadata import version as v; print(*(v(n) for n in ('transformer-lens', 'nnsight')))"
    known = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False) if python else None
    lens, sight = (known.stdout.split() if known else []) or ("absent", "absent")
    counted = "Without a GPU (there large batches gain more): CPU time" if device == "cpu" else "Time that passes"
    where = "one thread" if device == "cpu" else torch.cuda.get_device_name(device)
    machine = f"{platform.machine()} ({_processor()}), {where}, Python {platform.python_version()}"
    return f"""# Throughput

Written by `python -m benchmarks.throughput` on {machine}, torch {torch.__version__}; TransformerLens {lens} and
nnsight {sight} in processes of their own. {counted}, medians; all contestants in one run, in turn, several times over.

*Scores off by*: the largest difference from editkit's score of the same mask and example (near 1 for the organism, near
one over the vocabulary's 1400 for a random model). The reference's manner loads the model for every mask and asks one
example at a time. **editkit** is everything a localizer waits for: likelihoods of the model's own answers, judged and
stored on disk.
"""


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _size(model: LanguageModel) -> str:
    return f"{model.network.num_parameters() / 1e6:.1f} million"


if __name__ == "__main__":
    main()
