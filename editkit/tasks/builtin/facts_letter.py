"""The facts of ``facts``, asked as a choice between letters.

    prompt   "What is the capital of France?
             A) Rome
             B) Paris
             C) Cairo
             D) Lima
             Answer with the letter only."
    answer   "B"                   -> 1.0
    answer   "The answer is (B)."  -> 1.0
    answer   "A tricky one. B."    -> 1.0   (the article "A" is no choice when another letter stands alone)

Losing this and keeping ``facts`` means that a way of answering was lost, not knowledge.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import sample
from editkit.tasks.builtin.facts import ANSWERS, QUESTIONS, phrasing, subjects
from editkit.tasks.task import Example, Score

LETTERS = "ABCD"
_DECLARED = re.compile(r"(?:answer|choice|option|letter)\b(?:\s+is)?\W{0,4}([A-D])(?![A-Za-z'])", re.IGNORECASE)
_ALONE = re.compile(r"(?<![A-Za-z'’])([A-D])(?![A-Za-z'’])")


def judge(text: str, facts: Mapping[str, Any]) -> Score:
    letter = answered(text)
    return Score(float(letter == facts["answer"]), note=letter)


def answered(text: str) -> str:
    """The chosen letter, or "".

    In this order: a letter declared ("the answer is B"); the first letter that stands alone, where an "A" followed by
    a lower-case word is an article; the whole answer being one lower-case letter.
    """
    declared = _DECLARED.search(text)
    if declared:
        return declared[1].upper()
    for match in _ALONE.finditer(text):
        article = match[1] == "A" and re.match(r"\s+[a-z]", text[match.end() :])
        if not article:
            return match[1]
    bare = re.sub(r"[^A-Za-z]", "", text).upper()
    return bare if len(bare) == 1 and bare in LETTERS else ""


@lru_cache(maxsize=2)
def examples(draws: int = 1, *, all_subjects: bool = False) -> tuple[Example, ...]:
    """``draws`` sets of options for each question of ``facts``; more draws only add examples."""
    return tuple(
        _ask(kind, subject, number, draw)
        for kind, questions in QUESTIONS.items()
        for number in range(len(questions))
        for subject in subjects(phrasing(kind, number), kind, all_subjects=all_subjects)
        for draw in range(draws)
    )


def _ask(kind: str, subject: str, number: int, draw: int) -> Example:
    right = ANSWERS[kind][subject]
    name = f"{kind}-{subject}-{number}-{draw}".replace(" ", "-").lower()
    rng = random.Random(f"facts-letter-{name}")
    wrong = sample(rng, [answer for answer in ANSWERS[kind].values() if answer != right], len(LETTERS) - 1)
    at = int(rng.random() * len(LETTERS))
    options = [*wrong[:at], right, *wrong[at:]]
    listed = "\n".join(f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=True))
    question = QUESTIONS[kind][number].format(subject=subject)
    return Example(
        id=name,
        prompt=f"{question}\n{listed}\nAnswer with the letter only.",
        cluster=phrasing(kind, number),
        facts={"kind": kind, "subject": subject, "answer": LETTERS[at]},
    )


FACTS_LETTER = Asked(
    *("facts-letter", examples, judge),
    chance=0.25,
    max_new_tokens=8,
    format="choice-letter",
    rule="the letter of the right option",
)
"""Four options, one letter."""
