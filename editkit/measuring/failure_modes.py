"""How a model fails without a head: it repeats itself, says nothing readable, or finds every choice unlikely.

failing(ledger, [(facts, [...]), (story, [...])], masks)
-> [{"repetition": .83, "all choices unlikely": .17}, ...]        shares of the answers, one dict per mask
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import Cell
from editkit.tasks.degeneration import degeneration
from editkit.tasks.task import Example, Generate, Task

UNLIKELY = 0.5
"""Nats per token by which even the likeliest choice has become less likely: half a nat on plain text is damage."""


def failing(
    ledger: Ledger, tasks: Sequence[tuple[Task, Sequence[Example]]], masks: np.ndarray
) -> list[Mapping[str, float]]:
    """Let the model answer under each mask, and say how it fails.

    Args:
        tasks: tasks, each with a few examples that the unedited model gets right.
        masks: bool[m, heads].

    Returns:
        Per mask, the share of all answers that fail in each way; the largest first, what does not fail is left out.
    """
    counters: list[Counter[str]] = [Counter() for _ in masks]
    unedited = np.zeros((1, masks.shape[1]), dtype=bool)
    for task, examples in tasks:
        before, *after = task_scores(ledger, task, examples, np.concatenate([unedited, masks]))
        text = isinstance(task.requests(examples[0])[0], Generate)
        for counter, cells in zip(counters, after, strict=True):
            counter.update(_way(old, new, text) for old, new in zip(before, cells, strict=True))
    total = sum(len(examples) for _, examples in tasks)
    return [{way: count / total for way, count in counter.most_common() if way} for counter in counters]


def _way(before: Cell, after: Cell, text: bool) -> str:
    if text and (reason := degeneration(after.output)):
        return "repetition" if "repeated" in reason else "collapse"
    if not text and _likeliest(before) - _likeliest(after) > UNLIKELY:
        return "all choices unlikely"
    return "wrong answers" if after.value < before.value else ""


def _likeliest(cell: Cell) -> float:
    """The highest mean log-probability per token among the choices, as the store keeps them."""
    return max(map(float, cell.output.split()))
