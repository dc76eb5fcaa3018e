"""Format heads: heads that carry how an answer is given, not what is known.

The same questions are asked twice, by letter and as text (``same_questions``). Without a format head the letters
fail, and the text and all tasks of other formats do not: neither a universal head nor one of the capability.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from editkit.localizers.protocol import Measure
from editkit.localizers.selectivity import Needed, added_drops

LEAST_DROP = 0.1
"""Without a format head, tasks asked by letter lose more than this,"""
SPARED = 0.05
"""the tasks of other formats no more than this,"""
TIMES = 5.0
"""and the letters at least so many times what the same questions lose as text."""
RATE = 0.05
FEW = 16

Pairs = list[tuple[int, int]]
"""Numbers of a letter task and of its text, among the tasks."""


def same_questions(names: Iterable[str]) -> dict[str, str]:
    """Which task asks as text what another asks by letter, by their names.

    ``facts-letter`` asks what ``facts`` asks; ``wmdp_bio`` (letters) what ``wmdp_bio-text`` asks.
    """
    known = list(names)
    suffixed = {name: name.removesuffix("-letter") for name in known if name.endswith("-letter")}
    as_text = {name.removesuffix("-text"): name for name in known if name.endswith("-text")}
    return {letter: text for letter, text in (suffixed | as_text).items() if letter in known and text in known}


def only_letters(drops: np.ndarray, pairs: Pairs) -> np.ndarray:
    """float[heads]: how much more the letters lose than the text, in the pair where that is least."""
    return np.min([drops[:, letter] - drops[:, text] for letter, text in pairs], axis=0)


def carry_format(drops: np.ndarray, p: np.ndarray, pairs: Pairs, by_letter: Sequence[bool]) -> np.ndarray:
    """bool[heads], among candidates of a universal search: all letter tasks whose questions are asked as text too drop,
    and no task that is not asked by letter does. ``drops`` and ``p`` are float[heads, tasks].
    """
    if not pairs:
        return np.zeros(len(drops), dtype=bool)
    letters = [letter for letter, _ in pairs]
    breaks = (drops[:, letters] > LEAST_DROP).all(1) & (p[:, letters].max(1) < RATE / len(drops))
    return breaks & (drops[:, ~np.array(by_letter)] <= SPARED).all(1)


def format_heads(heads: Sequence[Needed], as_text: Measure, *, per: int) -> tuple[list[int], float]:
    """Among the heads of a target asked by letter: the columns of those that the same questions as text do not need;
    and the cost in passes over ``per`` examples.
    """
    cost, left = 0.0, list(heads)
    for examples in (FEW, as_text.examples):  # most heads need no second look
        drops, passes = added_drops(left, as_text, examples, per=per)
        cost += passes
        left = [
            head
            for head, lost in zip(left, drops, strict=True)
            if lost <= SPARED and head.drop >= max(LEAST_DROP, TIMES * lost)
        ]
    return [head.column for head in left], cost
