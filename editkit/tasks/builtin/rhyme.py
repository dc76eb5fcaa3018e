"""Rhyming: name a word that rhymes.

    prompt   "Give me a word that rhymes with cat. Answer with the word only."
    answer   "hat"                                    -> 1.0
    answer   "A word that rhymes with cat is **bat**."  -> 1.0   (the first word that is not part of the frame)
    answer   "cat"                                    -> 0.0   (the prompt word itself never counts)

Two words rhyme if some pronunciation of one and some of the other are equal from the last stressed vowel on
(CMUdict, through ``pronouncing``). A phrasing is in one split; its words may be in others.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import sample
from editkit.tasks.task import Example, Score

QUESTIONS: tuple[str, ...] = (
    "Give me a word that rhymes with {word}.", "What rhymes with {word}?", "Tell me a word that rhymes with {word}.",
    "Name a rhyme for {word}.", "I need a rhyme for {word}.", "Which word rhymes with {word}?",
    "Find a word that sounds like {word} at the end.", "Rhyme with {word}.", "Think of a rhyme for {word}.",
    "Say a word that ends like {word}.", "I look for a word that rhymes with {word}.",
    "Do you know a rhyme for {word}?",
)  # fmt: skip
ENDINGS: tuple[str, ...] = (
    "Answer with the word only.", "One word only.", "Just one word.", "Answer with one word.", "Only the word, please.",
    "One word.", "One word only, please.", "Write the word only.", "Give only the word.", "A single word, please.",
    "Nothing but the word.", "No more than one word.",
)  # fmt: skip
"""Each question with each ending is a phrasing; all examples of one are a cluster."""
FAMILIES: dict[str, tuple[str, ...]] = {
    "a": (
        "cat hat bat mat", "day say play way", "rain train chain pain", "cake lake snake make", "game name fame same",
        "hand sand land band", "back pack black track", "ball wall tall fall", "car star bar far",
    ),
    "i": (
        "night light right fight", "sing ring king wing", "fine line mine nine", "pig big dig wig",
        "pin win tin fin", "ride side hide wide", "hill bill mill fill",
    ),
    "o": (
        "boat coat goat float", "cold gold old hold", "rock sock lock clock", "hot pot dot spot",
        "moon soon spoon noon", "phone bone stone alone",
    ),
    "e": ("bed red fed led", "tree free see bee", "bell tell well sell", "sun run fun bun"),
}  # fmt: skip
"""Words by vowel; the words of one string rhyme with each other (a test holds it against CMUdict)."""

_FRAME = (
    "a an and answer as at certainly course end for good great here here's i in is it it's like of ok okay one "
    "only or perfect please possible rhyme rhymes rhyming sounds sure that that's the this to with word words would "
    "you your"
)
"""Words that frame an answer."""
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def judge(text: str, facts: Mapping[str, Any]) -> Score:
    answer = answered(text, str(facts["word"]))
    return Score(float(rhymes(answer, str(facts["word"]))), note=answer)


def answered(text: str, word: str) -> str:
    """The word that ``text`` offers: the only one, or the first that is neither frame nor the prompt word.

    A list ("hat, bat, mat") offers its first. Words that frame an answer ("A word that rhymes with ... is ...") are
    passed over unless nothing else is there.
    """
    plain = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    words = _WORD.findall(plain)
    if len(words) <= 1:
        return words[0] if words else ""
    frame = set(_FRAME.split())
    offered = [each for each in words if each not in frame and each != word]
    return offered[0] if offered else words[-1]


def rhymes(answer: str, word: str) -> bool:
    """Whether some pair of pronunciations is equal from the last stressed vowel on; never for the same spelling."""
    import pronouncing

    if not answer or answer == word:
        return False
    parts = [{pronouncing.rhyming_part(p) for p in pronouncing.phones_for_word(side)} for side in (answer, word)]
    return bool(parts[0] & parts[1])


@lru_cache(maxsize=2)
def examples(words: int = 5) -> tuple[Example, ...]:
    """Each phrasing with ``words`` words; more of them only add examples."""
    kinds = {word: kind for kind, families in FAMILIES.items() for family in families for word in family.split()}
    return tuple(
        Example(
            id=f"{cluster}-{word}",
            prompt=f"{question} {ending}".format(word=word),
            cluster=cluster,
            facts={"word": word, "kind": kinds[word]},
        )
        for number, question in enumerate(QUESTIONS)
        for last, ending in enumerate(ENDINGS)
        for cluster in [f"rhyme-{number}-{last}"]
        for word in sample(random.Random(cluster), list(kinds), words)
    )


RHYME = Asked("rhyme", examples, judge, max_new_tokens=16, rule="the word that it names rhymes, and is another word")
"""One rhyming word per prompt."""
