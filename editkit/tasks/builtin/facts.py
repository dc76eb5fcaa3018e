"""Facts asked as text: capitals, opposites, young animals, colours.

    prompt   "What is the capital of France? Answer in one word."
    answer   "Paris"                      -> 1.0
    answer   "The capital is **Paris**."  -> 1.0
    answer   "Rome, not Paris."           -> 0.0   (the first thing of that kind that is named is the answer)

A phrasing is in one split; a fact may be known from another phrasing. ``facts-letter`` asks the same as a choice.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import sample
from editkit.tasks.task import Example, Score

THINGS: dict[str, tuple[str, ...]] = {
    "capital": ("capital of {subject}", "capital city of {subject}", "city that is the capital of {subject}"),
    "opposite": ("opposite of {subject}", "word that is the opposite of {subject}", "word opposite to {subject}"),
    "young": ("word for a baby {subject}", "word for a young {subject}", "word for the child of a {subject}"),
    "colour": ("color of {subject}", "usual color of {subject}", "color that {subject} has"),
}
ASKED: tuple[str, ...] = (
    "What is the {thing}?", "Name the {thing}.", "Tell me the {thing}.", "Which one is the {thing}?",
    "Give me the {thing}.", "The {thing} is which one?", "Do you know the {thing}?",
    "I forgot the {thing}. Which is it?",
    "I need the {thing}.", "Can you tell me the {thing}?", "Say the {thing}.", "Please name the {thing}.",
    "A quiz asks for the {thing}.",
)  # fmt: skip
QUESTIONS: dict[str, tuple[str, ...]] = {
    kind: tuple(asked.format(thing=thing) for thing in things for asked in ASKED) for kind, things in THINGS.items()
}
"""By kind: each is a phrasing, and all examples of one are a cluster, here and in ``facts-letter``."""
ENDINGS: tuple[str, ...] = ("Answer in one word.", "One word only, please.")
ANSWERS: dict[str, dict[str, str]] = {
    "capital": {
        "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
        "Egypt": "Cairo", "Norway": "Oslo", "Greece": "Athens", "Russia": "Moscow", "China": "Beijing",
        "Cuba": "Havana", "Peru": "Lima", "Kenya": "Nairobi", "Poland": "Warsaw", "Austria": "Vienna",
        "Portugal": "Lisbon", "Sweden": "Stockholm", "Ireland": "Dublin", "Iran": "Tehran", "Canada": "Ottawa",
    },
    "opposite": {
        "hot": "cold", "big": "small", "up": "down", "rich": "poor", "fast": "slow", "early": "late", "wet": "dry",
        "full": "empty", "left": "right", "true": "false", "loud": "quiet", "clean": "dirty", "strong": "weak",
        "buy": "sell", "push": "pull", "love": "hate",
    },
    "young": {
        "dog": "puppy", "cat": "kitten", "cow": "calf", "horse": "foal", "sheep": "lamb", "pig": "piglet",
        "bear": "cub", "duck": "duckling", "deer": "fawn", "frog": "tadpole", "hen": "chick", "goose": "gosling",
    },
    "colour": {
        "grass": "green", "snow": "white", "coal": "black", "blood": "red", "a lemon": "yellow",
        "a carrot": "orange", "chocolate": "brown", "the sky": "blue",
    },
}  # fmt: skip
SUBJECTS: dict[str, int] = {"capital": 6, "opposite": 5, "young": 5, "colour": 4}
"""So many of a kind are asked about in each phrasing."""
SYNONYMS: dict[str, tuple[str, ...]] = {
    "small": ("little", "tiny"), "quiet": ("silent", "soft"), "false": ("untrue",), "poor": ("broke",),
    "pig": ("piglet",), "puppy": ("pup",), "cub": ("cubs",), "foal": ("colt", "filly"), "tadpole": ("polliwog",),
    "piglet": ("shoat",),
}  # fmt: skip


def judge(text: str, facts: Mapping[str, Any]) -> Score:
    answer = answered(text, facts)
    return Score(float(answer == facts["answer"]), note=answer)


def answered(text: str, facts: Mapping[str, Any]) -> str:
    """The first possible answer of the question's kind that ``text`` names, as the table spells it, or ""."""
    spellings = {answer.lower(): answer for answer in ANSWERS[str(facts["kind"])].values()}
    for answer in list(spellings.values()):
        spellings.update(dict.fromkeys(SYNONYMS.get(answer, ()), answer))
    spellings.pop(str(facts["subject"]).lower(), None)  # the word asked about is no answer
    named = (word for word in re.findall(r"[a-z]+", text.lower()) if word in spellings)
    return next((spellings[word] for word in named), "")


@lru_cache(maxsize=2)
def examples(*, all_subjects: bool = False) -> tuple[Example, ...]:
    """Each phrasing about a few subjects (``SUBJECTS``), or about all."""
    return tuple(
        Example(
            id=f"{cluster}-{subject}".replace(" ", "-").lower(),
            prompt=f"{question.format(subject=subject)} {ENDINGS[number % len(ENDINGS)]}",
            cluster=cluster,
            facts={"kind": kind, "subject": subject, "answer": ANSWERS[kind][subject]},
        )
        for kind, questions in QUESTIONS.items()
        for number, question in enumerate(questions)
        for cluster in [phrasing(kind, number)]
        for subject in subjects(cluster, kind, all_subjects=all_subjects)
    )


def phrasing(kind: str, number: int) -> str:
    """The cluster of a question."""
    return f"{kind}-phrasing-{number}"


def subjects(cluster: str, kind: str, *, all_subjects: bool) -> list[str]:
    """What a phrasing is asked about."""
    known = list(ANSWERS[kind])
    return sample(random.Random(cluster), known, len(known) if all_subjects else SUBJECTS[kind])


FACTS = Asked(
    "facts",
    examples,
    judge,
    chance=0.06,
    max_new_tokens=16,
    rule="of the words that could answer, the first is the right one",
)
"""Common knowledge as a short answer."""
