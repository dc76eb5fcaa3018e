"""Other ways to knock heads out and score the same rows, one mask per batch; runs without editkit, in any venv.

    python benchmarks/peers.py nnsight job.json      # then one line "go" for every timed run of all masks

``job.json`` holds the model's folder, the rows as token ids, and the masks as lists of [layer, head]. Every answer is
one JSON line: seconds (``clock``), and the score of each mask on each row (geometric mean probability of the answer's
tokens).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Mask = Sequence[tuple[int, int]]
Score = Callable[[Mask], list[float]]


@dataclass(frozen=True)
class Job:
    """Token ids of contexts and answers, right-padded into one batch; heads of ``width`` inputs of the projection."""

    folder: str
    rows: list[tuple[list[int], list[int]]]
    masks: list[list[tuple[int, int]]]
    width: int
    dtype: str
    device: str = "cpu"

    @property
    def ids(self) -> torch.Tensor:
        longest = max(len(context) + len(answer) for context, answer in self.rows)
        padded = [context + answer + [0] * (longest - len(context) - len(answer)) for context, answer in self.rows]
        return torch.tensor(padded, device=self.device)

    def scores(self, logits: torch.Tensor) -> list[float]:
        found = []
        for row, (context, answer) in zip(logits, self.rows, strict=True):
            place = len(context) - 1
            logprobs = row[place : place + len(answer)].float().log_softmax(-1)
            wanted = torch.tensor(answer, device=logits.device)[:, None]
            found.append(float(logprobs.gather(1, wanted).mean().exp()))
        return found


def hooks(job: Job, network: Any = None) -> Score:
    """Plain transformers with forward hooks."""
    network, ids = network or load(job), job.ids

    def score(mask: Mask) -> list[float]:
        with switched_off(network, mask, job.width):
            return job.scores(network(input_ids=ids, use_cache=False).logits)

    return score


def transformer_lens(job: Job) -> Score:
    from transformer_lens.model_bridge import TransformerBridge  # pyright: ignore[reportMissingImports]

    bridge = TransformerBridge.boot_transformers(job.folder, device=job.device, dtype=getattr(torch, job.dtype))
    ids = job.ids

    def score(mask: Mask) -> list[float]:
        layers = sorted({layer for layer, _ in mask})

        def switch(heads: list[int]) -> Callable[..., torch.Tensor]:
            def hook(values: torch.Tensor, hook: Any) -> torch.Tensor:
                values = values.clone()
                values[:, :, heads] = 0
                return values

            return hook

        named = [(f"blocks.{layer}.attn.hook_z", switch([h for at, h in mask if at == layer])) for layer in layers]
        return job.scores(bridge.run_with_hooks(ids, fwd_hooks=named, return_type="logits"))

    return score


def nnsight(job: Job) -> Score:
    from nnsight import LanguageModel  # pyright: ignore[reportMissingImports]

    model = LanguageModel(job.folder, device_map=job.device, dispatch=True, dtype=getattr(torch, job.dtype))
    ids = job.ids
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def score(mask: Mask) -> list[float]:
        with model.trace(inputs):
            for layer, head in sorted(mask):
                at = slice(head * job.width, (head + 1) * job.width)
                model.model.layers[layer].self_attn.o_proj.input[..., at] = 0
            logits = model.output.logits.save()
        return job.scores(logits)

    return score


def switched_off(network: Any, mask: Mask, width: int) -> ExitStack:
    """Zero the heads' inputs of the output projection, in every row, while the stack is open."""
    stack = ExitStack()
    for layer in {layer for layer, _ in mask}:
        width_in = network.model.layers[layer].self_attn.o_proj.in_features
        keep = torch.ones(width_in, dtype=network.dtype, device=network.device)
        for at, head in mask:
            if at == layer:
                keep[head * width : (head + 1) * width] = 0
        hook = network.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(
            lambda module, args, keep=keep: (args[0] * keep,)
        )
        stack.callback(hook.remove)
    return stack


def clock(device: str) -> float:
    """CPU seconds on a CPU, where other work matters little then; else those that passed: every run fetches scores."""
    return time.process_time() if device == "cpu" else time.perf_counter()


def load(job: Job) -> Any:
    from transformers import AutoModelForCausalLM

    network: Any = AutoModelForCausalLM.from_pretrained(job.folder, dtype=getattr(torch, job.dtype))
    return network.to(job.device).eval()


LIBRARIES = {"hooks": hooks, "transformer_lens": transformer_lens, "nnsight": nnsight}


def main() -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    name, job = sys.argv[1], Job(**json.loads(Path(sys.argv[2]).read_text("utf-8")))
    out, sys.stdout = sys.stdout, sys.stderr  # libraries that print must not break the protocol
    score = LIBRARIES[name](job)
    with torch.inference_mode() if name != "nnsight" else torch.no_grad():
        score(job.masks[0])
        print(json.dumps({"ready": name}), file=out, flush=True)
        for _ in sys.stdin:
            start = clock(job.device)
            scores = [score(mask) for mask in job.masks]
            print(json.dumps({"seconds": clock(job.device) - start, "scores": scores}), file=out, flush=True)


if __name__ == "__main__":
    main()
