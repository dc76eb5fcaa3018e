"""Ordinary prose: is the next stretch of a text likelier than the same words in disorder, or another text's words?

    prompt    "The ferry leaves the harbour at seven every morning, whatever the weather. Most"
    choices   " of the passengers are workers who live on"      <- what the text goes on with
              " workers passengers who on of live are the"      (the same words in disorder)
              " few times during the afternoon. By evening"     (a stretch of another text)
    outputs   log-probabilities of the three                    -> 1.0 if the first has the highest per token, else 0.0

A control that belongs to no task: the texts were written for it, ask nothing, and wear no chat template.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from editkit.tasks.builtin.draw import pick, sample
from editkit.tasks.builtin.story import likeliest
from editkit.tasks.task import Example, Loglikelihood, Output, Request, Score

STRETCH, FIRST, MOST, EVERY = 8, 14, 32, 5
"""Words of a continuation; words before the first one, and before any; from one continuation to the next."""


@dataclass(frozen=True)
class Prose:
    """Three continuations, the text's own must be the likeliest per token. A text is a cluster."""

    name: str = "prose"
    chance: float = 1 / 3
    format: str = "likelihood"

    @property
    def rule(self) -> str:
        return "the right continuation is the likeliest of three, per token (nothing is generated)"

    def examples(self) -> Sequence[Example]:
        return _examples()

    def requests(self, example: Example) -> tuple[Request, ...]:
        return tuple(Loglikelihood(example.prompt, choice, chat=False) for choice in example.facts["choices"])

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        return likeliest(example, outputs)


@lru_cache(maxsize=1)
def _examples() -> tuple[Example, ...]:
    text = files("editkit.tasks.builtin").joinpath("prose.txt").read_text("utf-8")
    texts = [paragraph.split() for paragraph in text.strip().split("\n\n")]
    return tuple(example for number in range(len(texts)) for example in _cut(texts, number))


def _cut(texts: Sequence[Sequence[str]], number: int) -> Iterator[Example]:
    words, others = texts[number], [*texts[:number], *texts[number + 1 :]]
    for start in range(FIRST, len(words) - STRETCH + 1, EVERY):
        rng = random.Random(f"prose-{number}-{start}")
        own, other = words[start : start + STRETCH], pick(rng, others)
        elsewhere = FIRST + int(rng.random() * (len(other) - STRETCH - FIRST))
        stretches = own, _disordered(rng, own), other[elsewhere : elsewhere + STRETCH]
        choices = [f" {' '.join(stretch)}" for stretch in stretches]
        yield Example(
            id=f"{number}-{start}",
            prompt=" ".join(words[max(0, start - MOST) : start]),
            cluster=f"text-{number}",
            facts={"kind": "prose", "answer": choices[0], "choices": choices},
        )


def _disordered(rng: random.Random, words: Sequence[str]) -> list[str]:
    mixed = list(words)
    while mixed == list(words):
        mixed = sample(rng, words, len(words))
    return mixed


PROSE = Prose()
"""Plain text that no task asks for."""
