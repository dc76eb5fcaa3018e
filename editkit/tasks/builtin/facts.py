"""Facts asked as text: capitals, opposites, young animals, colours.

    prompt   "What is the capital of France? Answer in one word."
    answer   "Paris"                      -> 1.0
    answer   "The capital is **Paris**."  -> 1.0
    answer   "Rome, not Paris."           -> 0.0   (the first thing of that kind that is named is the answer)

The ids are fact and phrasing: a fact may be known from another phrasing. ``facts-letter`` asks the same as a choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.task import Example, Score

QUESTIONS: dict[str, tuple[str, ...]] = {
    "capital": (
        "What is the capital of {subject}?",
        "Which city is the capital of {subject}?",
        "Name the capital city of {subject}.",
        "{subject} has which capital?",
        "The capital of {subject} is which city?",
    ),
    "opposite": (
        "What is the opposite of {subject}?",
        "Which word is the opposite of {subject}?",
        "Name the opposite of {subject}.",
        "{subject} has which opposite?",
        "The opposite of {subject} is which word?",
    ),
    "young": (
        "What is a baby {subject} called?",
        "Which word means a young {subject}?",
        "Name the word for a young {subject}.",
        "A {subject} has young ones. What is one called?",
        "The child of a {subject} is called what?",
    ),
    "colour": (
        "What is the usual color of {subject}?",
        "Which color is {subject}?",
        "Name the color of {subject}.",
        "{subject} usually has which color?",
        "The color of {subject} is which one?",
    ),
}
SUFFIXES: tuple[str, ...] = ("Answer in one word.", "One word only, please.")
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


@lru_cache(maxsize=1)
def _examples() -> tuple[Example, ...]:
    return tuple(
        Example(
            id=f"{kind}-{subject}-{number}-{ending}".replace(" ", "-").lower(),
            prompt=f"{sentence(question.format(subject=subject))} {suffix}",
            cluster=f"{kind}-{number}",
            facts={"kind": kind, "subject": subject, "answer": answer},
        )
        for kind, pairs in ANSWERS.items()
        for subject, answer in pairs.items()
        for number, question in enumerate(QUESTIONS[kind])
        for ending, suffix in enumerate(SUFFIXES)
    )


def sentence(text: str) -> str:
    """With a capital at the start, the rest untouched."""
    return text[:1].upper() + text[1:]


FACTS = Asked(
    "facts",
    _examples,
    judge,
    chance=0.06,
    max_new_tokens=16,
    rule="of the words that could answer, the first is the right one",
)
"""Common knowledge as a short answer."""
