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

from benchmarks.organism import layout
from benchmarks.organism.dropout import UNPLANTED
from editkit.api import load
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.tasks.builtin import TAUGHT
from editkit.tasks.task import examples_of
from editkit.units import parse

RANDOM_SETS = 30


def measure(folder: Path, *, twin: str, limit: int | None, seed: int) -> dict[str, Any]:
    """The manifest of the organism in ``folder``.

    Args:
        twin: which of ``train.TWINS`` it is; the unplanted one has nothing planted to list.
        limit: examples per task and knockout (None: the whole ``report`` split).
        seed: the training seed, only noted.
    """
    model = load(folder, device="cpu", dtype="float32")
    skills = [skill for skill in (*layout.SKILLS, layout.FACTS_BY_LETTER) if twin != "never-swear" or skill != "swear"]
    sets = knockouts(skills, random.Random(seed))
    masks = model.architecture.masks([map(parse, heads) for heads in sets.values()])
    means: dict[str, dict[str, float]] = {name: {} for name in sets}
    for task in TAUGHT.values():
        started = time.monotonic()
        examples = examples_of(task, "report", limit=limit)
        with opened(None) as store:
            table = task_scores(Ledger(model, store), task, examples, masks)
        for name, cells in zip(sets, table, strict=True):
            means[name][task.name] = round(float(np.mean([cell.value for cell in cells])), 4)
        print(f"{task.name} base {means['base'][task.name]:.3f} {time.monotonic() - started:.0f}s", flush=True)
    effects = {
        skill: {"joint": means[f"joint {skill}"]} | {head: means[head] for head in layout.planted(skill)}
        for skill in skills
    }
    return _planted(skills, twin) | {
        "seed": seed,
        "split": "report",
        "n": {task.name: len(examples_of(task, "report", limit=limit)) for task in TAUGHT.values()},
        "base": means["base"],
        "effects": effects | {"universal": {layout.UNIVERSAL_HEAD: means[layout.UNIVERSAL_HEAD]}},
        "random": {
            "sets": RANDOM_SETS,
            "mean": {task: _over(means, task, np.mean) for task in TAUGHT},
            "lowest": {task: _over(means, task, np.min) for task in TAUGHT},
        },
    }


def _planted(skills: list[str], twin: str) -> dict[str, Any]:
    """The plan as the manifest states it; nothing for the unplanted twin."""
    if twin == "unplanted":
        nothing: dict[str, Any] = {"twin": twin, "planted": {}, "kinds": {}, "universal": []}
        return nothing | {"shared": {}, "redundant": {}, "format": {}, "unplanted": list(TAUGHT), "controls": []}
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
