"""What a run will cost, before anything is loaded: evaluations, tokens, memory, disk, time.

    plan("swear", model="meta-llama/Llama-3.2-1B-Instruct").facts()
    {"search": "about 158 evaluations of 100 examples", "weights in memory": "2.5 GB", ...}

From the config, the safetensors headers and the recipe; the time from one matrix product on this machine's processor.
An estimate of the order of magnitude: it says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from editkit.errors import EditkitError
from editkit.localizers.adaptive import usual_budget
from editkit.localizers.compressed import USUAL
from editkit.planning.inspection import Inspection, inspect
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.removal.recipe import Recipe
from editkit.tasks.task import Generate, Loglikelihood, Task, divides_clusters, examples_of

TEMPLATE_TOKENS = 12
"""What a chat template adds to a prompt, about."""
CHARACTERS_PER_TOKEN = 3.5
USUAL_ANSWER = 24
"""Tokens of a generated answer that is allowed more, about."""
BATCH = 131_072
"""Tokens in a full batch on a GPU (``language_model.TOKENS_PER_BATCH``)."""
EFFICIENCY = 0.35
"""The share of a plain matrix product's speed that forward passes reach."""


@dataclass(frozen=True)
class Plan:
    """Counts are exact where they follow from the recipe; bytes and seconds are estimates.

    Args:
        evaluations: forward passes over the full search set, universal heads included.
        search_tokens: tokens of the search: teacher-forced, or generated where the recipe scores answers; and of
            hardening, where the recipe asks for it.
        answer_tokens: prompt and generated tokens of choosing, reporting and both nulls: random and strong heads.
        steps: of generation, one after the other: each writes a token for every row of a batch.
        seconds: on this machine's processor; a GPU is one to three orders of magnitude faster.
        divided: tasks of too few clusters to keep each in one split.
        audits: which follow; nothing here counts them.
    """

    recipe: str
    model: str
    method: str
    heads: int
    parameters: int
    evaluations: float
    search_tokens: int
    answer_tokens: int
    steps: int
    memory: int
    disk: int
    seconds: float
    divided: tuple[str, ...] = ()
    audits: str = "none"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def facts(self) -> dict[str, str]:
        """Name and sentence, for the terminal."""
        return {
            "recipe": f"{self.recipe}, method {self.method}",
            "model": f"{self.model}: {self.heads} heads, {self.parameters / 1e6:,.1f} million parameters",
            **(
                {"examples": f"new fillings of templates already used: {', '.join(self.divided)}"}
                if self.divided
                else {}
            ),
            "search": f"about {self.evaluations:,.0f} evaluations, {self.search_tokens:,} tokens",
            "answers": f"about {self.answer_tokens:,} tokens, to choose heads, report and compare with random heads",
            "memory": f"about {_size(self.memory)}",
            "disk": f"{_size(self.disk)} for the checkpoint",
            "time": f"about {duration(self.seconds)} on this machine's processor (an estimate; less on a GPU)",
            **({} if self.audits == "none" else {"audits": f"{self.audits}, not counted here; --audits none: without"}),
        }


ORDERED = 30
"""Sets of neurons that are looked at, in their order: at most 9 blocks on three levels, and without one."""
SETS = 110
"""Sets of heads that a set search looks at, single ones included: 100 to 120 on a real model of 270 heads."""


def plan(
    name: str | Recipe,
    *,
    model: str | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Plan:
    """Estimate what ``remove-capability`` will cost.

    Args:
        dtype: what it would compute in; ``auto`` is the checkpoint's own.
        changes: keys of the recipe with other values, such as ``{"method": "halving", "units": "neurons"}``.

    Raises:
        EditkitError: as the run itself would: an unknown recipe, task or model, weights that cannot be patched.
    """
    recipe = recipes.changed(name if isinstance(name, Recipe) else recipes.read(name), changes)
    folder = Path(".") if isinstance(name, Recipe) else Path(name).parent
    wanted = capability(recipe, folder=folder, planning=True)
    inspection = inspect(model, revision=revision)
    if inspection.refusal:
        raise EditkitError(f"{inspection.name}: {inspection.refusal}")
    chosen, heads = recipe.method if recipe.units == "heads" else "contrast", len(inspection.architecture.heads)
    reported = (*wanted.transfer, *wanted.also)
    targets, retain, only_reported = (
        [_tokens(task) for task in tasks] for tasks in (wanted.targets, wanted.retain, reported)
    )
    count = 0.0 if recipe.units == "neurons" else evaluations(recipe.method, heads, recipe, len(retain)) * len(targets)
    once = recipe.examples.locate * sum(targets) / len(targets)
    if recipe.units != "heads":
        count += _ordered(recipe, inspection.architecture.layers, targets, retain) / once
    search = int(count * once)
    if recipe.units == "neurons":
        search += int(ORDERED * recipe.universal_examples * sum(targets + retain))
    elif recipe.choose == "set" or recipe.units == "both":
        search += int(SETS * recipe.universal_examples * sum(targets + retain))
    search += _hardened(recipe, inspection.architecture.layers, targets, retain) if recipe.harden else 0
    tried = min(recipe.max_heads, 6)
    answered = sum(targets) * recipe.examples.choose * tried
    drawn = 1 if recipe.units == "neurons" else 2  # an edit of heads is compared with strong heads too
    answered += targets[0] * drawn * recipe.random_sets * recipe.random_examples
    answered += sum(targets + retain) * (recipe.examples.locate + 2 * recipe.examples.choose)
    most, first = recipe.examples.report, recipe.examples.first or recipe.examples.report
    answered += 4 * (most * sum(targets) + first * sum(retain + only_reported))
    rounds = tried * len(targets) + 4 * len((*targets, *retain, *only_reported)) + math.ceil(answered / BATCH)
    return Plan(
        recipe=recipe.capability,
        model=inspection.name,
        method=chosen,
        heads=heads,
        parameters=inspection.parameters,
        evaluations=count,
        search_tokens=search,
        answer_tokens=int(answered),
        steps=USUAL_ANSWER * rounds,
        memory=_memory(inspection) + (16 * inspection.parameters if recipe.harden else 0),
        disk=inspection.bytes + (16 << 20),
        seconds=2.0 * inspection.parameters * (search + answered) / (_speed(inspection, dtype) * EFFICIENCY),
        audits=recipe.audits,
        divided=tuple(task.name for task in (*wanted.targets, *wanted.retain, *reported) if divides_clusters(task)),
    )


def _ordered(recipe: Recipe, layers: int, targets: Sequence[float], retain: Sequence[float]) -> float:
    """Tokens until the neurons are in order: attributions, one by one, all at once, and without what is related.

    Args:
        targets, retain: tokens of an example of each task.
    """
    from editkit.measuring.attribution import BACKWARD
    from editkit.removal.find_neurons import ALONE, ASKED, ATTRIBUTED, ROUNDS

    passes = BACKWARD * recipe.steps * (layers if recipe.path == "layers" else 1)
    own, others = (max(ATTRIBUTED, count) for count in (recipe.examples.locate, recipe.universal_examples))
    ordered = len(ROUNDS) * (passes + 2) * own * sum(targets) + ALONE * ASKED * targets[0]
    return ordered + (passes * others + 2 * ASKED) * sum(retain)


def _hardened(recipe: Recipe, layers: int, targets: Sequence[float], retain: Sequence[float]) -> int:
    """Tokens of all rounds of hardening: the attacks, what they are scored by, attributions, and what can be afforded.

    Args:
        targets, retain: tokens of an example of each task.
    """
    from editkit.measuring.attribution import BACKWARD
    from editkit.models.training import Training
    from editkit.removal import harden
    from editkit.removal.find_neurons import ATTRIBUTED

    attacks, rounds = len(harden.RATES) + harden.ROUNDS, harden.ROUNDS + 1
    passes = BACKWARD * recipe.steps * (layers if recipe.path == "layers" else 1)
    example, half = sum(targets) / len(targets), harden.EXAMPLES // 2
    steps = 3.0 * attacks * harden.STEPS * Training(harden.STEPS, harden.RATES[0]).batch * example  # there and back
    scored = (attacks + rounds + 1) * half * sum(targets)
    given = passes * (attacks * half * sum(targets) + ATTRIBUTED * sum(retain))
    return int(steps + scored + given + 2 * rounds * recipe.universal_examples * sum(retain))


def evaluations(method: str, heads: int, recipe: Recipe, retained: int) -> float:
    """Forward passes over the full search set that a method needs, universal heads and selectivity included."""
    if method == "auto":
        return usual_budget(heads)
    controls = retained * recipe.universal_examples / recipe.examples.locate
    aside = controls * (12 + heads / 32)
    search = {
        "halving": 0.25 * heads + 16,
        "one-shot": heads,
        "greedy": 5.0 * heads - 10,
    }.get(method, float(USUAL.masks[0]))
    return 1 + search + aside


def length(task: Task) -> tuple[float, float, float]:
    """Tokens of a request's prompt, of its answer, and requests per example, by the length of their texts."""
    prompt = answer = count = 0.0
    examples = examples_of(task, "locate", limit=20)
    for example in examples:
        for request in task.requests(example):
            count += 1
            prompt += len(request.prompt) / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS
            if isinstance(request, Generate):
                answer += min(request.max_new_tokens, USUAL_ANSWER)
            elif isinstance(request, Loglikelihood):
                answer += len(request.continuation) / CHARACTERS_PER_TOKEN
    return prompt / max(1, count), answer / max(1, count), count / max(1, len(examples))


def _tokens(task: Task) -> float:
    """Tokens of one example, prompts and answers."""
    prompt, answer, requests = length(task)
    return requests * (prompt + answer)


def _memory(inspection: Inspection) -> int:
    """Weights, and a quarter on top for activations and the key/value cache; the libraries themselves take 0.6 GB."""
    return int(inspection.bytes * 1.25) + (600 << 20)


def _speed(inspection: Inspection, dtype: str) -> float:
    """Floating point operations a second: the best of five small matrix products. Some processors have bfloat16's."""
    import torch

    most = max(inspection.dtypes, key=lambda name: inspection.dtypes[name])
    own = {"BF16": "bfloat16", "F16": "float16"}.get(most, "float32")
    matrix = torch.ones((1024, 1024), dtype=getattr(torch, own if dtype == "auto" else dtype))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(matrix, matrix)
        best = min(best, time.perf_counter() - start)
    return 2 * 1024**3 / best


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
