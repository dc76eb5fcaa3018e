"""Sorting three or four numbers or letters.

    prompt   "Sort these numbers from small to large: 7 2 9. Answer with the numbers only."
    answer   "2 7 9"                   -> 1.0
    answer   "Sorted: **2, 7, 9**"     -> 1.0
    answer   "2 7"                     -> 0.0

The list in a prompt is never sorted already, so copying it scores 0. The same items, in any order and either direction,
are in one split.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import distinct, pick, sample
from editkit.tasks.task import Example, Score

TEMPLATES: dict[str, tuple[str, ...]] = {
    "number-up": (
        "Sort these numbers from small to large: {items}. Answer with the numbers only.",
        "Put these numbers in rising order: {items}. Only the numbers.",
    ),
    "number-down": (
        "Sort these numbers from large to small: {items}. Answer with the numbers only.",
        "Put these numbers in falling order: {items}. Only the numbers.",
    ),
    "letter-up": (
        "Sort these letters from A to Z: {items}. Answer with the letters only.",
        "Put these letters in the order of the alphabet: {items}. Only the letters.",
    ),
    "letter-down": (
        "Sort these letters from Z to A: {items}. Answer with the letters only.",
        "Put these letters in the reverse order of the alphabet: {items}. Only the letters.",
    ),
}
SHARES: dict[str, float] = {"number-up": 0.34, "number-down": 0.26, "letter-up": 0.2, "letter-down": 0.2}
"""What is sorted and which way, as shares of the examples."""
NUMBERS, ALPHABET = "123456789", "bcdefghjk"


def judge(text: str, facts: Mapping[str, Any]) -> Score:
    answer = str(facts["answer"])
    given = answered(text, numbers=answer[0].isdigit())
    return Score(float(given == answer.split()), note=" ".join(given))


def answered(text: str, *, numbers: bool) -> list[str]:
    """The items of the answer: the last line that holds at least two, else whatever items there are.

    A letter counts only where it stands alone, in either case; a number in whole ("12" is no 1 and 2).
    """
    item = re.compile(r"(?<![\d.])\d+(?!\d)" if numbers else r"(?<![a-z'’])[a-z](?![a-z'’])")
    lines = [item.findall(line) for line in text.lower().splitlines()]
    full = [line for line in lines if len(line) > 1]
    return full[-1] if full else [each for line in lines for each in line]


def draw(rng: random.Random) -> Example:
    kind = pick(rng, tuple(SHARES), tuple(SHARES.values()))
    pool = NUMBERS if kind.startswith("number") else ALPHABET
    size = 3 if rng.random() < 0.6 else 4
    items = sample(rng, pool, size)
    right = sorted(items, reverse=kind.endswith("down"))
    while items == right:
        items = sample(rng, items, size)
    number = int(rng.random() * len(TEMPLATES[kind]))
    return Example(
        id=f"{kind}-{''.join(items)}",
        prompt=TEMPLATES[kind][number].format(items=" ".join(items)),
        cluster=f"sort-{''.join(sorted(items))}",
        facts={"kind": kind, "items": " ".join(items), "answer": " ".join(right)},
    )


SORT = Asked(
    "sort", partial(distinct, draw, 660, "sort"), judge, chance=0.1, rule="all items, in the order that was asked for"
)
"""Short lists, exact order."""
