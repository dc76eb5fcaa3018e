"""Plain story text: is the fitting continuation the likeliest one?

    prompt    "Continue this story: Lily had a kite. One day the kite was lost."
    choices   "Lily looked for the kite all day."    <- fits
              "Lily looked for the drum all day."    (another thing)
              "Ben looked for the kite all day."     (another name)
    outputs   log-probabilities of the three         -> 1.0 if the first has the highest per token, else 0.0

A control rather than a skill: what breaks it breaks the language model. A name with a thing is in one split.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from editkit.tasks.builtin.draw import distinct, sample
from editkit.tasks.task import Example, Likelihood, Loglikelihood, Output, Request, Score

NAMES: tuple[str, ...] = (
    "Lily", "Ben", "Tom", "Anna", "Max", "Emma", "Jack", "Mia", "Leo", "Sara", "Nora", "Finn", "Ella",
)  # fmt: skip
THINGS: tuple[str, ...] = ("kite", "drum", "ball", "hat", "book", "boat", "doll", "cake", "bike", "coat", "lamp", "bag")
PLOTS: tuple[tuple[str, str], ...] = (
    ("{name} had a {thing}. One day the {thing} was lost.", "{name} looked for the {thing} all day."),
    ("{name} saw a {thing} in the shop. It was very nice.", "{name} asked mom to buy the {thing}."),
    ("{name} found an old {thing} under the bed.", "{name} cleaned the {thing} and smiled."),
    ("{name} went to the park with a {thing}. Then it rained.", "{name} ran home with the wet {thing}."),
    ("{name} made a {thing} for a friend.", "The friend thanked {name} for the {thing}."),
    ("{name} broke the {thing}. Dad was not angry.", "Dad and {name} fixed the {thing}."),
)


@dataclass(frozen=True)
class Story:
    """Three continuations, the fitting one must be the likeliest per token.

    Args:
        count: how many examples; a larger count appends to a smaller one's.
    """

    count: int = 720
    name: str = "story"
    chance: float = 1 / 3
    format: str = "likelihood"

    @property
    def rule(self) -> str:
        return "the right continuation is the likeliest of three, per token (nothing is generated)"

    def examples(self) -> Sequence[Example]:
        return distinct(draw, self.count, "story")

    def requests(self, example: Example) -> tuple[Request, ...]:
        return tuple(Loglikelihood(example.prompt, str(choice)) for choice in example.facts["choices"])

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        return likeliest(example, outputs)


def likeliest(example: Example, outputs: Sequence[Output]) -> Score:
    """Whether the first choice is the likeliest per token."""
    likelihoods = [output for output in outputs if isinstance(output, Likelihood)]
    rates = [likelihood.logprob / max(likelihood.tokens, 1) for likelihood in likelihoods]
    if len(rates) != len(example.facts["choices"]) or not all(rate <= 0 for rate in rates):
        return Score(0.0, valid=False, note="no likelihood for every choice")
    return Score(float(rates[0] > max(rates[1:])), note=" ".join(f"{rate:.3f}" for rate in rates))


def draw(rng: random.Random) -> Example:
    number = int(rng.random() * len(PLOTS))
    opening, ending = PLOTS[number]
    name, other = sample(rng, NAMES, 2)
    thing, another = sample(rng, THINGS, 2)
    choices = [ending.format(name=n, thing=t) for n, t in ((name, thing), (name, another), (other, thing))]
    return Example(
        id=f"{number}-{name}-{thing}".lower(),
        prompt=f"Continue this story: {opening.format(name=name, thing=thing)}",
        cluster=f"story-{name}-{thing}".lower(),
        facts={"kind": f"plot-{number}", "answer": choices[0], "choices": choices},
    )
