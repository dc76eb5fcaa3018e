"""Drawing examples: the same on every machine and Python version, from seeded ``random()`` alone.

distinct(draw, 600, "recall")    600 examples with different ids; a larger count only appends
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from editkit.tasks.task import Example

T = TypeVar("T")


@lru_cache(maxsize=16)
def distinct(make: Callable[[random.Random], Example], count: int, seed: str) -> tuple[Example, ...]:
    """Up to ``count`` examples from ``make``, one generator per try, the first of each id kept."""
    examples: dict[str, Example] = {}
    for attempt in range(20 * count):
        example = make(random.Random(f"{seed}-{attempt}"))
        examples.setdefault(example.id, example)
        if len(examples) == count:
            break
    return tuple(examples.values())


def pick(rng: random.Random, items: Sequence[T], shares: Sequence[float] = ()) -> T:
    """One item; with ``shares`` (summing to 1), in those proportions."""
    drawn = rng.random()
    if not shares:
        return items[int(drawn * len(items))]
    for item, share in zip(items, shares, strict=True):
        drawn -= share
        if drawn < 0:
            return item
    return items[-1]


def sample(rng: random.Random, items: Sequence[T], count: int) -> list[T]:
    """``count`` different items in random order."""
    pool = list(items)
    return [pool.pop(int(rng.random() * len(pool))) for _ in range(count)]
