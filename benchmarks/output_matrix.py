"""What it costs to slice hidden states before the output matrix, and to lay them side by side first as editkit does.

    python -m benchmarks.output_matrix > benchmarks/results/output-matrix.md

transformers computes logits only where they are wanted, from a slice of the hidden states. A random Llama with the
vocabulary of Llama 3 scores and generates under masks, with and without ``loading._gather_before_logits``, in turn.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from editkit.api import load
from editkit.checkpoints.source import Source
from editkit.edit import Base
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source
from editkit.models.placement import Placement
from editkit.tasks.task import Generate, Loglikelihood, Request

VOCABULARY = 128_256
ROWS = 32
REPEATS = 3


def write_model(folder: Path) -> None:
    """Four layers of the width of a small Llama, and its whole vocabulary."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=8,
        vocab_size=VOCABULARY, tie_word_embeddings=True, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(load().source.directory).save_pretrained(folder)


def timed(model: LanguageModel, requests: list[Request], masks: np.ndarray) -> float:
    start = time.perf_counter()
    model.answer(requests, masks)
    return time.perf_counter() - start


def rows(model: LanguageModel) -> list[str]:
    """Four medians: scoring and generating, of a slice and side by side."""
    output: Any = model.network.get_output_embeddings()
    hooks = dict(output._forward_pre_hooks)
    masks = np.zeros((ROWS, len(model.architecture.heads)), dtype=bool)
    masks[np.arange(ROWS), np.arange(ROWS)] = True
    texts = [f"There were {place} birds in the tree, and all of them sang. " * 2 for place in range(ROWS)]
    jobs: dict[str, Callable[[str], Request]] = {
        "score": lambda text: Loglikelihood(text, " Then they flew away.", chat=False),
        "generate 8 tokens": lambda text: Generate(text, 8, chat=False),
    }
    lines = []
    for name, request in jobs.items():
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for repeat in range(REPEATS + 1):
            for gathered in (False, True):
                output._forward_pre_hooks.clear()
                output._forward_pre_hooks.update(hooks if gathered else {})
                taken = timed(model, [request(text) for text in texts], masks)
                if repeat:
                    seconds[gathered].append(taken)
        sliced, gathered = statistics.median(seconds[False]), statistics.median(seconds[True])
        lines.append(f"| {model.dtype} | {name} | {sliced:.2f} | {gathered:.2f} | {sliced / gathered:.1f} |")
    return lines


def main() -> None:
    print("# The output matrix\n")
    print(
        f"Written by `python -m benchmarks.output_matrix` on {platform.machine()}, {torch.get_num_threads()} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}: medians of {REPEATS}, in turn.\n"
    )
    print(
        f"A random Llama of 4 layers, width 1,024, vocabulary {VOCABULARY:,}; {ROWS} rows, each under its own mask. "
        "*Slice*: as transformers\ncomputes logits. *Side by side*: the same slice made contiguous first, as "
        "`editkit.load` sees to. On a CPU; a GPU was\nnot at hand.\n"
    )
    print("| dtype | job | slice, s | side by side, s | ratio |\n|---|---|---:|---:|---:|")
    with TemporaryDirectory() as folder:
        write_model(Path(folder))
        for dtype in ("float32", "bfloat16"):
            source = Source(Path(folder), Base("random", "random"))
            for line in rows(load_source(source, Placement("cpu", dtype))):
                print(line)
                print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
