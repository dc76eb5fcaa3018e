"""Tasks made of facts and frames: a fact is filled into five solved lines and one to solve, or into a question.

    Fact("france", {"x": "France"}, ("Paris",))
    few_shot("capitals", facts, "{x} -> {y}")                 "Italy -> Rome\nJapan -> Tokyo\n...\nFrance ->"
    question("capitals-chat", facts, ["What is the capital of {x}?", ...])

A few-shot answer is right if its first line is the answer; any other, if its first sentence names it.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from editkit.tasks.builtin import arithmetic
from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import sample
from editkit.tasks.task import Example, Score

SHOTS = 5
"""Solved examples before the question."""


class Fact(NamedTuple):
    """Something to know: the words that fill a frame, and what is right. Facts of one cluster give each other away."""

    cluster: str
    given: Mapping[str, str]
    answers: tuple[str, ...]

    @property
    def solved(self) -> Mapping[str, str]:
        return {**self.given, "y": self.answers[0]}


Facts = Callable[[], Sequence[Fact]]


def few_shot(name: str, facts: Facts, shown: str, *, draws: int = 5, tokens: int = 8) -> Asked:
    """Five solved examples, then one to solve: the raw text is continued to the end of its line.

    Args:
        shown: a line of the prompt, as in ``{x} -> {y}``; the question is the line up to ``{y}``.
        draws: how often each fact is asked, with other shots each time.
    """
    question = shown.partition("{y}")[0].rstrip()

    def examples() -> Iterator[Example]:
        known = facts()
        for fact in known:
            others = [other for other in known if other.cluster != fact.cluster]
            for draw in range(draws):
                shots = sample(random.Random(f"{name}-{fact.given['x']}-{draw}"), others, SHOTS)
                lines = [shown.format_map(shot.solved) for shot in shots]
                yield _example(name, fact, draw, "\n".join([*lines, question.format_map(fact.given)]))

    return _asked(name, examples, exact, chat=False, tokens=tokens)


def question(
    name: str, facts: Facts, frames: Sequence[str], *, chat: bool = True, numeric: bool = False, tokens: int = 20
) -> Asked:
    """A question without examples, in every frame.

    Args:
        chat: asked in the model's chat template; else the raw text is continued.
        numeric: the answer is the number that the first line gives.
    """

    def examples() -> Iterator[Example]:
        for fact in facts():
            for number, frame in enumerate(frames):
                yield _example(name, fact, number, frame.format_map(fact.given))

    return _asked(name, examples, counted if numeric else named, chat=chat, tokens=tokens)


def _example(name: str, fact: Fact, number: int, prompt: str) -> Example:
    slug = fact.given["x"].lower().replace(" ", "-")
    facts = {"kind": name, "answer": fact.answers[0], "answers": list(fact.answers)}
    return Example(f"{slug}-{number}", prompt, fact.cluster, facts)


def _asked(
    name: str,
    examples: Callable[[], Iterator[Example]],
    judge: Callable[[str, Mapping[str, Any]], Score],
    *,
    chat: bool,
    tokens: int,
) -> Asked:
    source = lru_cache(maxsize=1)(lambda: tuple(examples()))
    return Asked(name, source, judge, max_new_tokens=tokens, chat=chat, stop=("\n",), rule=RULES[judge])


def exact(text: str, facts: Mapping[str, Any]) -> Score:
    """Whether the first line is an answer; case, accents and punctuation around it do not count."""
    given = plain(text.strip().split("\n")[0])
    return Score(float(given in map(plain, facts["answers"])), note=given)


def named(text: str, facts: Mapping[str, Any]) -> Score:
    """Whether the first sentence names an answer as a whole word."""
    sentence = plain(re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0])
    words = f" {re.sub(r'[^a-z0-9]+', ' ', sentence)} "
    right = [answer for answer in facts["answers"] if f" {re.sub(r'[^a-z0-9]+', ' ', plain(answer))} " in words]
    return Score(float(bool(right)), note=right[0] if right else sentence)


def counted(text: str, facts: Mapping[str, Any]) -> Score:
    """Whether the first line gives the right number, as ``arithmetic`` reads it."""
    return arithmetic.judge(text.strip().split("\n")[0], facts)


RULES: dict[Callable[[str, Mapping[str, Any]], Score], str] = {
    exact: "its first line is the answer; case, accents and punctuation around it do not count",
    named: "its first sentence names the answer as a whole word",
    counted: "its first line gives the right number",
}


def plain(text: str) -> str:
    """Lower case, without accents, and without what is no letter or digit at both ends."""
    letters = unicodedata.normalize("NFKD", text.replace("œ", "oe")).casefold()
    bare = " ".join("".join(sign for sign in letters if not unicodedata.combining(sign)).split())
    return re.sub(r"^[\W_]+|[\W_]+$", "", bare)
