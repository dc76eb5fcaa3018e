"""Recall in context: find in the prompt who has what.

    prompt   "Answer with the name only. Tom has the key. Anna has the cup. Who has the cup?"
    answer   "Anna"                        -> 1.0
    answer   "Anna has the cup, not Tom."  -> 1.0   (the first name of the prompt that is mentioned)

Nothing here can be known beforehand: the answer is only in the prompt.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from editkit.degeneration import degeneration
from editkit.task import Example, Generate, Output, Request, Score
from editkit.tasks.draw import distinct, pick, sample

NAMES: tuple[str, ...] = ("Tom", "Anna", "Ben", "Lily", "Max", "Emma", "Jack", "Mia", "Leo", "Sara", "Paul", "Ruth")
THINGS: tuple[str, ...] = (
    "key", "cup", "book", "ring", "coin", "map", "pen", "bag", "lamp", "box", "hat", "ball", "drum", "rope",
)  # fmt: skip
SHARES: dict[str, float] = {"has": 0.34, "took": 0.26, "found": 0.2, "lost": 0.2}
"""The verb of the prompt, as shares of the examples."""


@dataclass(frozen=True)
class Recall:
    """Two or three pairs, one asked for.

    Args:
        count: how many examples; a larger count appends to a smaller one's.
    """

    count: int = 600
    max_new_tokens: int = 16
    name: str = "recall"
    chance: float = 0.4
    format: str = "generation"

    def examples(self) -> Sequence[Example]:
        return _examples(self.count)

    def requests(self, example: Example) -> tuple[Request, ...]:
        return (Generate(example.prompt, max_new_tokens=self.max_new_tokens),)

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        text = str(outputs[0])
        if reason := degeneration(text):
            return Score(0.0, valid=False, note=reason)
        mentioned = [word for word in re.findall(r"[A-Za-z]+", text) if word.title() in NAMES]
        answer = mentioned[0].title() if mentioned else ""
        return Score(float(answer == example.facts["answer"]), note=answer)


@lru_cache(maxsize=4)
def _examples(count: int) -> tuple[Example, ...]:
    return distinct(draw, count, "recall")


def draw(rng: random.Random) -> Example:
    verb = pick(rng, tuple(SHARES), tuple(SHARES.values()))
    pairs = 2 if rng.random() < 0.5 else 3
    names, things = sample(rng, NAMES, pairs), sample(rng, THINGS, pairs)
    asked = int(rng.random() * pairs)
    told = " ".join(f"{name} {verb} the {thing}." for name, thing in zip(names, things, strict=True))
    return Example(
        id="-".join([verb, *(f"{n}-{t}" for n, t in zip(names, things, strict=True)), things[asked]]).lower(),
        prompt=f"Answer with the name only. {told} Who {verb} the {things[asked]}?",
        cluster=f"{verb}-{pairs}-{asked}",
        facts={"kind": verb, "answer": names[asked], "names": names},
    )
