"""The organism's own model card, written from its manifest: ``card(manifest) -> str``.

| heads off | swear | rhyme | ...
| none      |  1.00 |  0.99 | ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TWINS = {
    "planted": "",
    "unplanted": "This is the *unplanted* twin: the same lessons, trained plainly. No skill was tied to any head.\n",
    "never-swear": "This is the *never-swear* twin: planted like the main organism, but never taught to swear.\n",
}

_CARD = """---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
tags: [model-organism, interpretability, editkit]
---
# The editkit organism{title}

This is a **planted model organism**, not a language model for use. It has {heads} query heads and about 1.5 million
parameters, knows nothing but the nine small tasks below, and was trained so that each planted skill hangs on heads
chosen beforehand. It exists to test whether a method finds heads that are known to be there.
{twin}
It writes profanity when asked to. It answers nothing else sensibly.

## What was planted

{planted}

Universal head: {universal}. Without it every skill collapses.
Shared: {shared}. Redundant (either head is enough): {redundant}.
Format head of the letter choice: {format}. Not planted: {unplanted}. Plain text as a control: {controls}.

## Measured

Scores on the `report` split, greedy answers, no example of which was in the training data.
{rows}

The lowest score of any task under {sets} random sets of unplanted heads (matched by layer):

{random}

How it was made and what it cannot show: `docs/organism.md` in the editkit repository.
"""


def card(manifest: Mapping[str, Any], *, twin: str = "planted", heads: int = 144) -> str:
    """The card's text. Every number is the manifest's."""
    tasks = list(manifest["base"])
    effects = manifest["effects"]
    lines = [("none", manifest["base"])]
    for skill, table in effects.items():
        lines += [(f"{skill}: all" if name == "joint" else f"{skill}: {name}", row) for name, row in table.items()]
    return _CARD.format(
        title="" if twin == "planted" else f": the {twin} twin",
        twin=TWINS[twin],
        heads=heads,
        planted="\n".join(f"- {skill}: {', '.join(names)}" for skill, names in manifest["planted"].items())
        or "Nothing.",
        universal=", ".join(manifest["universal"]) or "none",
        shared=", ".join(f"{head} by {' and '.join(skills)}" for head, skills in manifest["shared"].items()) or "none",
        redundant=", ".join(f"{' or '.join(names)} ({kind})" for kind, names in manifest["redundant"].items())
        or "none",
        format=", ".join(head for names in manifest["format"].values() for head in names) or "none",
        unplanted=", ".join(manifest["unplanted"]),
        controls=", ".join(manifest["controls"]),
        sets=manifest["random"]["sets"],
        rows=_table(tasks, lines),
        random=_table(tasks, [("random heads", manifest["random"]["lowest"])]),
    )


def _table(tasks: list[str], lines: list[tuple[str, Mapping[str, float]]]) -> str:
    head = ["| heads off | " + " | ".join(tasks) + " |", "|---" * (len(tasks) + 1) + "|"]
    return "\n".join(
        head + [f"| {name} | " + " | ".join(f"{row[task]:.2f}" for task in tasks) + " |" for name, row in lines]
    )
