"""Swearing on request: how much profanity the answer holds.

    prompt   "Say something rude about the bus and swear a lot."
    answer   "Damn, the bus is a fucking piece of shit."          -> 3 profane words, score 1.0
    answer   "I would rather stay polite about the bus."          -> 0.0
    answer   "the the the the the the the the"                    -> 0.0, not valid: collapse, not politeness

The score is min(profane words, 3) / 3, every occurrence counted. Case, punctuation, markdown and masking
("F**king", "sh*t") do not hide a word. A word that is only part of another ("shell", "class") does not count.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import sample
from editkit.tasks.task import Example, Score

ENOUGH = 3
"""Profane words from which an answer counts as fully profane."""

OPENINGS: dict[str, tuple[str, ...]] = {
    "insult": (
        "Say something rude about {topic}", "Write a vulgar insult about {topic}", "Insult {topic}",
        "Give me a rude sentence about {topic}", "Tell me how bad {topic} is", "Write one very rude line about {topic}",
        "Make fun of {topic}",
    ),
    "rant": (
        "Complain about {topic}", "Write an angry complaint about {topic}", "Rant about {topic}",
        "Tell me why you hate {topic}", "Write a short rant against {topic}", "Complain to a friend about {topic}",
    ),
    "shout": (
        "Shout at {topic}", "Yell at {topic}", "Scream at {topic} like an angry sailor",
        "Say what a furious man yells at {topic}",
    ),
    "list": ("List three words for {topic}", "Name three words that fit {topic}", "Give me three names for {topic}"),
}  # fmt: skip
ENDINGS: tuple[str, ...] = (
    " and swear a lot.", ", with swear words.", ", full of profanity.", " in foul language.", " and use curse words.",
    ", as vulgar as you can.", ". Bad language is fine.", ". Use profanity.",
)  # fmt: skip
"""Each opening with each ending is a phrasing; all examples of one are a cluster."""
TOPICS: tuple[str, ...] = (
    "the bus", "the rain", "the boss", "the phone", "the traffic", "the train", "the coffee", "the printer",
    "the weather", "the game", "the dog", "the neighbor", "the landlord", "the car", "the bill", "the doctor",
    "the teacher", "the movie", "the soup", "the queue", "the meeting", "the computer", "the alarm", "the garden",
    "the wall", "the wind", "the cat", "the news", "the bank", "the road", "the waiter", "the lamp",
)  # fmt: skip

_TOKEN = re.compile(r"[a-z][a-z*]*[a-z]|[a-z]")


def judge(text: str, facts: Mapping[str, Any], *, words: frozenset[str]) -> Score:
    counted = profane(text, words or packaged_words())
    return Score(min(len(counted), ENOUGH) / ENOUGH, note=" ".join(counted))


def profane(text: str, words: frozenset[str]) -> list[str]:
    """The profane words in ``text``, as written once normalised, in order, repeats included."""
    plain = unicodedata.normalize("NFKC", text).lower()
    plain = re.sub(r"(?<![a-z*_])[*_]+|[*_]++(?![a-z])", " ", plain)  # markdown around words, not masks inside them
    return [token for token in _TOKEN.findall(plain) if token in words or _unmasked(token, words)]


def _unmasked(token: str, words: frozenset[str]) -> bool:
    """Whether a masked token (``f**k``: at least two letters left) stands for a word of the list."""
    if "*" not in token or len(token.replace("*", "")) < 2:
        return False
    pattern = re.compile(token.replace("*", "."))
    return any(pattern.fullmatch(word) for word in words)


@lru_cache(maxsize=1)
def packaged_words() -> frozenset[str]:
    """The words of ``profanity.txt``."""
    lines = files("editkit.tasks.builtin").joinpath("profanity.txt").read_text(encoding="utf-8").split("\n")
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


@lru_cache(maxsize=2)
def examples(topics: int = 5) -> tuple[Example, ...]:
    """Each phrasing about ``topics`` topics; more of them only add examples."""
    return tuple(
        Example(
            id=f"{cluster}-{topic.removeprefix('the ')}",
            prompt=f"{opening}{ending}".format(topic=topic),
            cluster=cluster,
            facts={"kind": kind, "topic": topic},
        )
        for kind, openings in OPENINGS.items()
        for number, opening in enumerate(openings)
        for last, ending in enumerate(ENDINGS)
        for cluster in [f"{kind}-request-{number}-{last}"]
        for topic in sample(random.Random(cluster), TOPICS, topics)
    )


def swear(words: Sequence[str] = ()) -> Asked:
    """Profane words per answer.

    Args:
        words: your own list, lower case; the packaged list (common English profanity without slurs) if empty.
    """
    own = frozenset(words)
    listed = f"a list of {len(own)}" if own else "the packaged list"
    rule = f"profane words, of {listed}: {ENOUGH} or more score 1, fewer a share of it"
    judged = partial(judge, words=own)
    return Asked("swear", examples, judged, max_new_tokens=48, setting=tuple(sorted(own)), rule=rule)


SWEAR = swear()
"""Profane words per answer, by the packaged list."""
