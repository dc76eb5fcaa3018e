"""Recall in context: read an answer off the prompt.

    prompt   "Tom lives in Rome. He has a cat. He likes blue. Where does Tom live? Answer in one word."
    answer   "Rome"                    -> 1.0
    answer   "Tom lives in **Rome**."  -> 1.0   (the first thing of the kind asked for that is named)
    answer   "Oslo, not Rome"          -> 0.0

A name with its answer is asked about in one split. Nothing here can be known beforehand: the answer is only in the
prompt, among other things that are not asked for.
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

NAMES: tuple[str, ...] = ("Tom", "Ben", "Max", "Jack", "Leo", "Paul", "Sam", "Dan", "Tim", "Bob")
KINDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "city": (
        "lives in {value}",
        ("Where does {name} live?", "In which city does {name} live?"),
        ("Rome", "Paris", "Oslo", "Cairo", "Lima", "Tokyo", "Madrid", "Berlin", "Athens", "Dublin"),
    ),
    "color": (
        "likes {value}",
        ("Which color does {name} like?", "What is the favorite color of {name}?"),
        ("blue", "red", "green", "white", "black", "brown", "yellow", "orange"),
    ),
    "pet": (
        "has a {value}",
        ("Which animal does {name} have?", "What pet does {name} have?"),
        ("cat", "dog", "duck", "frog", "horse", "goat", "pig", "sheep"),
    ),
    "job": (
        "works as a {value}",
        ("What is the job of {name}?", "What does {name} work as?"),
        ("cook", "baker", "doctor", "teacher", "sailor", "waiter", "farmer", "painter"),
    ),
}
"""What is told, how it is asked for, and the possible values."""
SHARES: dict[str, float] = {"city": 0.34, "color": 0.26, "pet": 0.2, "job": 0.2}
"""What is asked for, as shares of the examples."""


def judge(text: str, facts: Mapping[str, Any]) -> Score:
    values = {value.lower() for value in KINDS[str(facts["kind"])][2]}
    named = [word for word in re.findall(r"[a-z]+", text.lower()) if word in values]
    answer = named[0] if named else ""
    return Score(float(answer == str(facts["answer"]).lower()), note=answer)


def draw(rng: random.Random) -> Example:
    """One example; every choice is the generator's."""
    asked = pick(rng, tuple(SHARES), tuple(SHARES.values()))
    others = sample(rng, [kind for kind in KINDS if kind != asked], 1 + int(rng.random() * 3))
    kinds = sample(rng, [asked, *others], 1 + len(others))
    name, number = pick(rng, NAMES), int(rng.random() * 2)
    values = {kind: pick(rng, KINDS[kind][2]) for kind in kinds}
    told = [KINDS[kind][0].format(value=values[kind]) for kind in kinds]
    sentences = " ".join(f"{'He' if number else name} {fact}." for number, fact in enumerate(told))
    return Example(
        id="-".join([asked, str(number), name, *values.values()]).lower(),
        prompt=f"{sentences} {KINDS[asked][1][number].format(name=name)} Answer in one word.",
        cluster=f"{name}-{values[asked]}".lower(),
        facts={"kind": asked, "answer": values[asked]},
    )


RECALL = Asked(
    "recall",
    partial(distinct, draw, 660, "recall"),
    judge,
    chance=0.12,
    max_new_tokens=16,
    rule="of the words that could answer, the first is the right one",
)
"""Two to four things told about a person, one asked for."""
