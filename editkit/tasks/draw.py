"""Tasks whose examples are drawn: the same on every machine and Python version, from seeded ``random()`` alone.

RECALL = Drawn("recall", draw, judge, chance=0.12)     one text answer to each of 600 drawn prompts
distinct(draw, 600, "recall")                          600 examples with different ids; a larger count only appends
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from editkit.degeneration import degeneration
from editkit.task import Example, Generate, Output, Request, Score

T = TypeVar("T")


@dataclass(frozen=True)
class Drawn:
    """A task of drawn prompts, each answered with a text.

    Args:
        draw: makes one example; every choice is the generator's.
        judge: scores an answer that is no collapse, by the example's facts.
        max_new_tokens: the longest answer, in tokens.
        count: how many examples; a larger count appends to a smaller one's.
    """

    name: str
    draw: Callable[[random.Random], Example] = field(repr=False)
    judge: Callable[[str, Mapping[str, Any]], Score] = field(repr=False)
    chance: float = 0.0
    max_new_tokens: int = 24
    count: int = 600
    format: str = "generation"

    def examples(self) -> Sequence[Example]:
        return distinct(self.draw, self.count, self.name)

    def requests(self, example: Example) -> tuple[Request, ...]:
        return (Generate(example.prompt, max_new_tokens=self.max_new_tokens),)

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        text = str(outputs[0])
        if reason := degeneration(text):
            return Score(0.0, valid=False, note=reason)
        return self.judge(text, example.facts)


@lru_cache(maxsize=16)
def distinct(make: Callable[[random.Random], Example], count: int, seed: str) -> tuple[Example, ...]:
    """Up to ``count`` examples from ``make``, one generator per try, the first of each id kept."""
    found: dict[str, Example] = {}
    for attempt in range(20 * count):
        example = make(random.Random(f"{seed}-{attempt}"))
        found.setdefault(example.id, example)
        if len(found) == count:
            break
    return tuple(found.values())


def pick(rng: random.Random, items: Sequence[T], shares: Sequence[float] = ()) -> T:
    """One item; with ``shares`` (summing to 1), in those proportions."""
    place = rng.random()
    if not shares:
        return items[int(place * len(items))]
    for item, share in zip(items, shares, strict=True):
        place -= share
        if place < 0:
            return item
    return items[-1]


def sample(rng: random.Random, items: Sequence[T], count: int) -> list[T]:
    """``count`` different items in random order."""
    pool = list(items)
    return [pool.pop(int(rng.random() * len(pool))) for _ in range(count)]
