"""Measure what was planted: ``python -m benchmarks.organism.train --measure --out DIR`` runs this stage alone.

Every number in the manifest comes from here: greedy answers on the ``report`` split, with heads switched off.

    "effects": {"swear": {"joint": {"swear": 0.0, "rhyme": 0.99, ...}, "L1H3": {"swear": 0.65, ...}, ...}, ...}
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, DynamicCache, LlamaForCausalLM, PreTrainedTokenizerBase

from benchmarks.organism.gates import UNPLANTED, gate_row, gated
from editkit.organism import layout
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Example, Generate, Likelihood, Loglikelihood, Output, Task, examples_of

ROWS = 400
"""Rows per batch."""
LONGEST = 24
"""New tokens per answer; the organism's longest right answer has 18."""
RANDOM_SETS = 30


def measure(folder: Path, *, twin: str, limit: int | None, seed: int) -> dict[str, Any]:
    """The manifest of the organism in ``folder``.

    Args:
        twin: which of ``train.TWINS`` it is; the unplanted one has nothing planted to list.
        limit: examples per task and knockout (None: the whole ``report`` split).
        seed: the training seed, only noted.
    """
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    skills = [skill for skill in (*layout.SKILLS, layout.FACTS_BY_LETTER) if twin != "never-swear" or skill != "swear"]
    sets = knockouts(skills, random.Random(seed))
    means: dict[str, dict[str, float]] = {name: {} for name in sets}
    for task in TASKS.values():
        started = time.monotonic()
        examples = examples_of(task, "report", limit=limit)
        with torch.no_grad():
            table = scores(model, tokenizer, task, examples, list(sets.values()))
        for name, row in zip(sets, table, strict=True):
            means[name][task.name] = round(float(row.mean()), 4)
        print(f"{task.name} base {means['base'][task.name]:.3f} {time.monotonic() - started:.0f}s", flush=True)
    effects = {
        skill: {"joint": means[f"joint {skill}"]} | {head: means[head] for head in layout.planted(skill)}
        for skill in skills
    }
    return _planted(skills, twin) | {
        "seed": seed,
        "split": "report",
        "n": {task.name: len(examples_of(task, "report", limit=limit)) for task in TASKS.values()},
        "base": means["base"],
        "effects": effects | {"universal": {layout.UNIVERSAL_HEAD: means[layout.UNIVERSAL_HEAD]}},
        "random": {
            "sets": RANDOM_SETS,
            "mean": {task: _over(means, task, np.mean) for task in TASKS},
            "lowest": {task: _over(means, task, np.min) for task in TASKS},
        },
    }


def _planted(skills: list[str], twin: str) -> dict[str, Any]:
    """The plan as the manifest states it; nothing for the unplanted twin."""
    if twin == "unplanted":
        nothing: dict[str, Any] = {"twin": twin, "planted": {}, "kinds": {}, "universal": []}
        return nothing | {"shared": {}, "redundant": {}, "format": {}, "unplanted": list(TASKS), "controls": []}
    return {
        "twin": twin,
        "planted": {skill: layout.planted(skill) for skill in skills},
        "kinds": {
            skill: {kind: list(heads) for kind, heads in layout.SKILLS[skill].items()}
            for skill in skills
            if skill in layout.SKILLS
        },
        "universal": [layout.UNIVERSAL_HEAD],
        "shared": layout.shared(),
        "redundant": layout.redundant(),
        "format": {layout.FACTS_BY_LETTER: [layout.LETTER_HEAD]},
        "unplanted": list(layout.UNPLANTED),
        "controls": list(layout.CONTROLS),
    }


def knockouts(skills: list[str], rng: random.Random) -> dict[str, frozenset[str]]:
    """Every set of heads that is measured, by name: none, each planted head, each skill's set, random ones."""
    sets: dict[str, frozenset[str]] = {"base": frozenset()}
    for skill in skills:
        sets |= {head: frozenset([head]) for head in layout.planted(skill)}
        sets[f"joint {skill}"] = frozenset(layout.planted(skill))
    sets |= {f"random {number}": heads for number, heads in enumerate(random_sets(rng))}
    return sets | {layout.UNIVERSAL_HEAD: frozenset([layout.UNIVERSAL_HEAD])}


def _over(means: dict[str, dict[str, float]], task: str, reduce: Any) -> float:
    return round(float(reduce([means[f"random {number}"][task] for number in range(RANDOM_SETS)])), 4)


def random_sets(rng: random.Random) -> list[frozenset[str]]:
    """Sets of unplanted heads, as many per layer as some skill's planted set has."""
    drawn = []
    for number in range(RANDOM_SETS):
        pattern = layout.planted(list(layout.SKILLS)[number % len(layout.SKILLS)])
        layers = [head.split("H")[0] for head in pattern]
        drawn.append(
            frozenset(h for layer in sorted(set(layers)) for h in _from_layer(rng, layer, layers.count(layer)))
        )
    return drawn


def _from_layer(rng: random.Random, layer: str, count: int) -> list[str]:
    return rng.sample([head for head in UNPLANTED if head.startswith(f"{layer}H")], count)


def scores(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    examples: list[Example],
    sets: list[frozenset[str]],
) -> np.ndarray:
    """Scores [sets, examples] with the heads of each set off."""
    requests = [(index, request) for index, example in enumerate(examples) for request in task.requests(example)]
    table = np.zeros((len(sets), len(examples)))
    per_batch = max(1, ROWS // len(requests))
    for first in range(0, len(sets), per_batch):
        group = sets[first : first + per_batch]
        gates = torch.stack([gate_row(off) for off in group]).repeat_interleave(len(requests), dim=0)
        outputs = answer(model, tokenizer, [request for _, request in requests] * len(group), gates)
        for number in range(len(group)):
            given: dict[int, list[Output]] = {}
            for (index, _), output in zip(requests, outputs[number * len(requests) :], strict=False):
                given.setdefault(index, []).append(output)
            for index, example in enumerate(examples):
                table[first + number, index] = task.score(example, given[index]).value
    return table


def answer(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    requests: list[Any],
    gates: torch.Tensor,
) -> list[Output]:
    """Greedy texts or likelihoods, row by row under ``gates`` [rows, layers, heads]."""
    prompts = [
        str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": request.prompt}], add_generation_prompt=True, tokenize=False
            )
        )
        for request in requests
    ]
    if isinstance(requests[0], Loglikelihood):
        return [*_likelihoods(model, tokenizer, prompts, requests, gates)]
    longest = min(LONGEST, max(request.max_new_tokens for request in requests if isinstance(request, Generate)))
    return [*_texts(model, tokenizer, prompts, gates, longest)]


def _texts(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, prompts: list[str], gates: torch.Tensor, longest: int
) -> list[str]:
    batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    mask, tokens, cache = batch["attention_mask"], batch["input_ids"], DynamicCache()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    done, given = torch.zeros(len(prompts), dtype=torch.bool), []
    with gated(model, gates):
        for _ in range(longest):
            logits = model(
                input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache,
                use_cache=True, logits_to_keep=1,
            ).logits  # fmt: skip
            tokens = logits[:, -1].argmax(-1).masked_fill(done, tokenizer.pad_token_id)[:, None]
            given.append(tokens)
            done |= tokens[:, 0] == tokenizer.eos_token_id
            if done.all():
                break
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
            positions = positions[:, -1:] + 1
    return tokenizer.batch_decode(torch.cat(given, dim=1), skip_special_tokens=True)


def _likelihoods(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str],
    requests: list[Loglikelihood],
    gates: torch.Tensor,
) -> list[Likelihood]:
    heads = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in prompts]
    tails = [tokenizer.encode(request.continuation, add_special_tokens=False) for request in requests]
    width = max(len(head) + len(tail) for head, tail in zip(heads, tails, strict=True))
    tokens = torch.zeros(len(heads), width, dtype=torch.long)
    for row, (head, tail) in enumerate(zip(heads, tails, strict=True)):
        tokens[row, : len(head) + len(tail)] = torch.tensor(head + tail)
    with gated(model, gates):
        logs = torch.log_softmax(model(input_ids=tokens, use_cache=False).logits, dim=-1)
    found = []
    for row, (head, tail) in enumerate(zip(heads, tails, strict=True)):
        at = logs[row, len(head) - 1 : len(head) + len(tail) - 1]
        chosen = at.gather(1, torch.tensor(tail)[:, None]).sum()
        found.append(Likelihood(float(chosen), len(tail), at.argmax(-1).tolist() == tail))
    return found
