"""Addition and subtraction of two-digit numbers.

    prompt   "What is 23 plus 45? Answer with the number only."
    answer   "68"                          -> 1.0
    answer   "23 + 45 = 68."               -> 1.0
    answer   "68, which is 1 more than 67" -> 1.0   (an answer that opens with a number means that number)

Id and cluster are the operation and the operands (sorted for a sum), without the phrasing: a held-out pair is held
out in every phrasing and, for sums, in both orders. Sums stay below 100, differences above 9: every number has two
digits.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import distinct, pick
from editkit.tasks.task import Example, Score

TEMPLATES: dict[str, tuple[str, ...]] = {
    "add": (
        "What is {a} plus {b}? Answer with the number only.",
        "Add {a} and {b}. Answer with the number only.",
        "{a} + {b} = ? Give only the number.",
        "What is the sum of {a} and {b}? Only the number.",
        "How much is {a} plus {b}? Just the number.",
    ),
    "sub": (
        "What is {a} minus {b}? Answer with the number only.",
        "Subtract {b} from {a}. Answer with the number only.",
        "{a} - {b} = ? Give only the number.",
        "What is {a} take away {b}? Only the number.",
        "How much is {a} minus {b}? Just the number.",
    ),
}
SHARES: dict[str, float] = {"add": 0.35, "carry": 0.28, "sub": 0.22, "borrow": 0.15}
"""Kinds of sum, as shares of the examples: without and with a carry, without and with a borrow."""

_NUMBER = r"[-−]?\d++(?:,\d{3})*+(?:\.\d++)?+"
_OPENING = re.compile(rf"^\W*?({_NUMBER})(?!\s*(?:[-+*/x×÷−=^]|plus|minus|and|take|times)|\))", re.IGNORECASE)


def judge(text: str, facts: Mapping[str, Any]) -> Score:
    number = answered(text)
    return Score(float(number == float(facts["answer"])), note="" if number is None else f"{number:g}")


def answered(text: str) -> float | None:
    """The number that ``text`` gives as its answer, or None.

    In this order: the number it opens with, unless a calculation follows ("23 + 45 ..."); the number after the last
    equals sign; the last number.
    """
    opening = _OPENING.match(text)
    if opening:
        return _value(opening[1])
    after_equals = re.findall(rf"=\W*?({_NUMBER})", text)
    numbers = after_equals or re.findall(_NUMBER, text)
    return _value(numbers[-1]) if numbers else None


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))


def draw(rng: random.Random) -> Example:
    kind = pick(rng, tuple(SHARES), tuple(SHARES.values()))
    while True:
        small, large = 10 + int(rng.random() * 80), 10 + int(rng.random() * 80)
        total = small + large
        crosses = small % 10 + large % 10 > 9
        if total < 100 and crosses == (kind in ("carry", "borrow")):
            break
    operation = "add" if kind in ("add", "carry") else "sub"
    a, b, answer = (small, large, total) if operation == "add" else (total, small, large)
    number = int(rng.random() * len(TEMPLATES[operation]))
    operands = f"{min(a, b)}-{max(a, b)}" if operation == "add" else f"{a}-{b}"
    return Example(
        id=f"{operation}-{operands}",
        prompt=TEMPLATES[operation][number].format(a=a, b=b),
        cluster=f"{operation}-{operands}",
        facts={"kind": kind, "a": a, "b": b, "answer": answer},
    )


ARITHMETIC = Asked(
    "arithmetic", partial(distinct, draw, 640, "arithmetic"), judge, rule="the number that it gives is the result"
)
"""Exact sums and differences."""
