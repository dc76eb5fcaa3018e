"""The organism's own model card, written from its manifest: ``card(manifest) -> str``.

| heads off | swear | rhyme | ...
| none      |  1.00 |  0.99 | ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PLANTED = """It was trained so that each planted skill hangs on heads
chosen beforehand, to test whether a method finds heads that are known to be there."""
TWINS = {
    "planted": f"{_PLANTED} It writes profanity when asked to.",
    "unplanted": """This is the *unplanted* twin: the same
lessons, trained plainly. No skill was tied to any head, so a method that names heads here is wrong. The heads in the
table are those of the planted organism, for comparison. It writes profanity when asked to.""",
    "never-swear": f"{_PLANTED}\nThis is the *never-swear* twin: planted like the main one, but never taught to swear.",
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
parameters and knows nothing but the small tasks below. It answers nothing else sensibly.
{twin}

## What was planted

{planted}

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
        planted=_planted(manifest) if manifest["planted"] else "Nothing.",
        sets=manifest["random"]["sets"],
        rows=_table(tasks, lines),
        random=_table(tasks, [("random heads", manifest["random"]["lowest"])]),
    )


def _planted(manifest: Mapping[str, Any]) -> str:
    skills = [f"- {skill}: {', '.join(names)}" for skill, names in manifest["planted"].items()]
    shared = (f"{head} by {' and '.join(users)}" for head, users in manifest["shared"].items())
    redundant = (f"{' or '.join(names)} ({kind})" for kind, names in manifest["redundant"].items())
    notes = [
        f"Universal head: {', '.join(manifest['universal'])}. Without it every generated answer collapses.",
        f"Shared: {', '.join(shared) or 'none'}. Redundant (either head is enough): {', '.join(redundant) or 'none'}.",
        f"Format head of the letter choice: {', '.join(sum(manifest['format'].values(), []))}.",
        f"Not planted: {', '.join(manifest['unplanted'])}. Plain text as a control: {', '.join(manifest['controls'])}.",
    ]
    return "\n".join([*skills, "", *notes])


def _table(tasks: list[str], lines: list[tuple[str, Mapping[str, float]]]) -> str:
    head = ["| heads off | " + " | ".join(tasks) + " |", "|---" * (len(tasks) + 1) + "|"]
    return "\n".join(
        head + [f"| {name} | " + " | ".join(f"{row[task]:.2f}" for task in tasks) + " |" for name, row in lines]
    )
