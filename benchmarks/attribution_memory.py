"""How much memory attribution takes beside the weights, measured on a random 1B-shaped Llama, by arithmetic for an 8B.

    python -m benchmarks.attribution_memory      # benchmarks/results/attribution-memory.md; Linux, 3 GB, a few minutes

Peaks are of the process's resident memory, with an allocator that gives back what is freed.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.initialization import no_init_weights

from editkit.api import load
from editkit.checkpoints.architecture import from_model
from editkit.measuring import attribution
from editkit.measuring.attribution import attributions
from editkit.models.batch_budget import Budget
from editkit.models.language_model import LanguageModel

OUT = Path(__file__).parent / "results" / "attribution-memory.md"
RETURNING = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""What makes glibc give back every larger piece at once."""
ROWS, TOKENS = 4, 64
VOCABULARY = 8192
"""Not Llama's 128,256: only the answer's places have logits, in either case."""
ONE = LlamaConfig(
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=VOCABULARY,
    tie_word_embeddings=True,
)
EIGHT = LlamaConfig(
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
)


def main() -> None:
    if not RETURNING.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.attribution_memory"], {**os.environ, **RETURNING})
    OUT.write_text(page(shaped(ONE)))


def page(model: LanguageModel) -> str:
    rows = [([7] * (TOKENS - 2), [8, 9, 10])] * ROWS
    sites = model.architecture.neuron_sites
    ways: dict[str, tuple[Callable[[], object], int | None]] = {
        "plain forward pass": (lambda: model.likelihoods(rows), None),
        "attribution, one layer's neurons (the first)": (lambda: attributions(model, rows, sites[:1]), recomputed(ONE)),
        "attribution, all neurons": (lambda: attributions(model, rows, sites), recomputed(ONE)),
        "the same, if every layer's activations were kept": (lambda: keeping(model, rows), kept(ONE)),
    }
    model.likelihoods(rows)  # what a first pass allocates for good is not counted
    lines = [
        f"| {way} | {megabytes(size)} | {seconds:.0f} | {megabytes(ROWS * TOKENS * each) if each else ''} |"
        for way, (run, each) in ways.items()
        for size, seconds in [peak(run)]
    ]
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    long = 1000
    return PAGE.format(
        parameters=f"{parameters / 1e9:.2f}",
        neurons=f"{model.architecture.neurons:,}",
        batch=f"{ROWS} x {TOKENS}",
        lines="\n".join(lines),
        token=f"{kept(EIGHT) / 1e6:.1f} MB",
        block=f"{block(EIGHT) / 1e6:.2f} MB",
        bounded=f"{recomputed(EIGHT) / 1e6:.2f} MB",
        row=f"{recomputed(EIGHT) * long / 1e9:.1f} GB instead of {kept(EIGHT) * long / 1e9:.1f} GB",
    )


def shaped(config: LlamaConfig) -> LanguageModel:
    """A random model of this shape in bfloat16, in the place of the bundled one."""
    torch.set_default_dtype(torch.bfloat16)
    with no_init_weights():
        network = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    for parameter in network.parameters():
        parameter.requires_grad_(False).normal_(0, 0.02)
    budget = Budget(ROWS * (TOKENS + 1))  # a row's last token is predicted, not read
    return replace(load(), network=network, architecture=from_model(network), budget=budget, blocks=None)


def keeping(model: LanguageModel, rows: list) -> None:
    with patch.object(attribution, "recomputed", lambda blocks: nullcontext()):
        attributions(model, rows, model.architecture.neuron_sites)


def block(config: LlamaConfig) -> int:
    """Bytes that one layer keeps of one token, in bfloat16: both norms' inputs in float32; queries, keys, values and
    what attention gives; gate, its activation, up, and their product."""
    width, inner = int(config.hidden_size or 0), int(config.intermediate_size or 0)
    keys = int(config.num_key_value_heads or 0) * width // int(config.num_attention_heads or 1)
    return 2 * 4 * width + 2 * (2 * width + 2 * keys) + 2 * 4 * inner


def kept(config: LlamaConfig) -> int:
    """Bytes a token, with every layer's activations."""
    return config.num_hidden_layers * block(config)


def recomputed(config: LlamaConfig) -> int:
    """Bytes a token, with every layer's input, and the activations of the one layer that is due."""
    return config.num_hidden_layers * 2 * config.hidden_size + block(config)


def peak(run: Callable[[], object]) -> tuple[int, float]:
    """Bytes of resident memory beyond those before, at most; and seconds."""
    Path("/proc/self/clear_refs").write_text("5")
    before, start = resident("VmRSS"), time.monotonic()
    run()
    return resident("VmHWM") - before, time.monotonic() - start


def resident(name: str) -> int:
    [kilobytes] = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f}"


PAGE = """# Attributions of neurons: memory

A random Llama of {parameters} billion parameters in bfloat16 ({neurons} neurons, 16 layers of width 2,048), a batch of
{batch} tokens, one CPU core. `python -m benchmarks.attribution_memory`. Memory is beyond the weights, which need no
gradients.

| way | MB at most | seconds | by arithmetic |
|---|--:|--:|--:|
{lines}

Attribution keeps what enters each layer, and runs the layer again when its gradients are due. By arithmetic: layers x
width x 2 bytes a token, and what one layer computes; temporary tensors come on top, as in the forward pass.

## 8B by the same arithmetic

Llama-3.1-8B: 32 layers of width 4,096 with 14,336 neurons each. One layer computes {block} a token, all of them
{token}. Kept are {bounded}: a row of 1,000 tokens takes {row}. Batches are cut to what fits.
"""

if __name__ == "__main__":
    main()
