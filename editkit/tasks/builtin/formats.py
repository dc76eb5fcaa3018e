"""Capabilities of real models, each in several formats.

    capitals            "Italy -> Rome\nJapan -> Tokyo\n...\nFrance ->"            "Paris"
    capitals-chat       "What is the capital of France?"                           "The capital of France is Paris."
    capitals-reversed   "Paris is the capital of which country?"                   "France"
    capitals-sentence   "She has just moved to France. Its capital city is called" "Paris"

A capability is not a format: what is gone in one and there in another was a route to it. All formats of a capability
share their clusters (a country, a word, a pair of operands), and shots come from other clusters than their question.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from importlib.resources import files

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import sample
from editkit.tasks.builtin.few_shot import Fact, few_shot, question


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, str]]:
    """Pairs of words, by capability; several right answers are parted by a slash."""
    return json.loads(files("editkit.tasks.builtin").joinpath("words.json").read_text("utf-8"))


def pairs(table: str) -> tuple[Fact, ...]:
    """A fact per row of a table of words: ``{x}`` is the word on the left."""
    return tuple(Fact(x.lower(), {"x": x}, tuple(y.split("/"))) for x, y in _tables()[table].items())


def reverse(table: str) -> tuple[Fact, ...]:
    """The same, asked from right to left."""
    return tuple(Fact(fact.cluster, {"x": fact.answers[0]}, (fact.given["x"],)) for fact in pairs(table))


def sums() -> tuple[Fact, ...]:
    """1 + 1 to 17 + 17; both orders are one cluster."""
    numbers = range(1, 18)
    return tuple(_number(f"{min(a, b)}+{max(a, b)}", a, b, "+", a + b) for a in numbers for b in numbers)


def differences() -> tuple[Fact, ...]:
    """2 - 1 to 25 - 24; 9 - 2 and 9 - 7 are one cluster."""
    return tuple(_number(f"{a}-{min(b, a - b)}", a, b, "-", a - b) for a in range(2, 26) for b in range(1, a))


def _number(cluster: str, a: int, b: int, sign: str, result: int) -> Fact:
    return Fact(cluster, {"x": f"{a} {sign} {b}", "a": str(a), "b": str(b)}, (str(result),))


def sequences() -> tuple[Fact, ...]:
    """Three numbers at equal steps, and the fourth."""
    starts = [(start, step) for start in range(1, 32) for step in (1, 2, 3, 5, 10)]
    return tuple(
        Fact(f"{start}+{step}", {"x": f"{start}, {start + step}, {start + 2 * step}"}, (str(start + 3 * step),))
        for start, step in starts
    )


def lists() -> tuple[Fact, ...]:
    """Three unrelated words, to be repeated; lists with the same first word are one cluster."""
    words = list(_tables()["translation"])

    def of(first: str) -> Iterator[Fact]:
        rng, others = random.Random(f"lists-{first}"), [word for word in words if word != first]
        for _ in range(5):
            text = " ".join([first, *sample(rng, others, 2)])
            yield Fact(first, {"x": text}, (text,))

    return tuple(fact for word in words for fact in of(word))


ARROW = "{x} -> {y}"

capitals, antonyms, past, plurals, french = (
    partial(pairs, table) for table in ("capitals", "antonyms", "past-tense", "plurals", "translation")
)

FORMATS: dict[str, tuple[Asked, ...]] = {
    "addition": (
        few_shot("addition", sums, "{a} + {b} = {y}"),
        question(
            "addition-chat",
            sums,
            (
                "What is {a} plus {b}? Answer with the number only.",
                "{a} + {b} = ? Answer with the number only.",
                "How much is {a} plus {b}? Just the number.",
                "What is the sum of {a} and {b}? Just the number.",
                "Add {a} and {b}. Answer with the number only.",
            ),
            numeric=True,
        ),
        question(
            "addition-words",
            sums,
            (
                "Tom has {a} apples. He gets {b} more apples. How many apples does he have now? Just the number.",
                "{a} red cars and {b} blue cars are on the road. How many cars are there? Just the number.",
                "Anna read {a} pages yesterday and {b} pages today. How many pages is that? Just the number.",
                "A bus carries {a} people. Then {b} more get on. How many people are on the bus? Just the number.",
                "I bought {a} eggs on Monday and {b} on Friday. How many eggs did I buy? Just the number.",
            ),
            numeric=True,
        ),
    ),
    "subtraction": (
        few_shot("subtraction", differences, "{a} - {b} = {y}"),
        question(
            "subtraction-chat",
            differences,
            (
                "What is {a} minus {b}? Answer with the number only.",
                "{a} - {b} = ? Answer with the number only.",
                "How much is {a} minus {b}? Just the number.",
                "What is {a} take away {b}? Just the number.",
                "Subtract {b} from {a}. Answer with the number only.",
            ),
            numeric=True,
        ),
        question(
            "subtraction-words",
            differences,
            (
                "Tom has {a} apples. He gives {b} of them away. How many apples does he have left? Just the number.",
                "{a} cars stand in a row. Then {b} of them drive away. How many cars are left? Just the number.",
                "A story has {a} pages. Anna has read {b} of them. How many pages are left? Just the number.",
                "A bus carries {a} people. Then {b} get off. How many people are on the bus? Just the number.",
                "I had {a} eggs and used {b} for a cake. How many eggs are left? Just the number.",
            ),
            numeric=True,
        ),
    ),
    "capitals": (
        few_shot("capitals", capitals, ARROW),
        question(
            "capitals-chat",
            capitals,
            (
                "What is the capital of {x}?",
                "Which city is the capital of {x}?",
                "Name the capital city of {x}.",
                "Tell me the capital of {x}.",
                "I forgot: what is the capital city of {x}?",
            ),
        ),
        question(
            "capitals-reversed",
            partial(reverse, "capitals"),
            (
                "{x} is the capital of which country?",
                "Which country has {x} as its capital?",
                "Name the country whose capital is {x}.",
                "The city of {x} is the capital of which country?",
                "{x} is a capital city. Of which country?",
            ),
        ),
        question(
            "capitals-sentence",
            capitals,
            (
                "She has just moved to {x}. Its capital city is called",
                "We flew to {x} and landed in its capital,",
                "The government of {x} sits in the capital,",
                "He was born in {x}. He grew up in its capital, the city of",
                "The capital of {x} is",
            ),
            chat=False,
            tokens=8,
        ),
    ),
    "antonyms": (
        few_shot("antonyms", antonyms, ARROW),
        question(
            "antonyms-chat",
            antonyms,
            (
                "What is the opposite of {x}?",
                "Which word is the opposite of {x}?",
                "Name the opposite of {x}.",
                "Tell me an antonym of {x}.",
                "Give me the word that means the opposite of {x}.",
            ),
        ),
        question(
            "antonyms-sentence",
            antonyms,
            (
                'The opposite of "{x}" is "',
                'The antonym of "{x}" is "',
                'It was not "{x}"; it was the very opposite: "',
                'In the book of opposites, "{x}" stands beside "',
                'The words mean opposite things: "{x}" and "',
            ),
            chat=False,
            tokens=6,
        ),
    ),
    "past-tense": (
        few_shot("past-tense", past, ARROW),
        question(
            "past-tense-chat",
            past,
            (
                "What is the past tense of {x}?",
                "Which word is the past tense of {x}?",
                'Put the verb "{x}" into the past tense.',
                'Tell me the simple past of the verb "{x}".',
                'What is "{x}" in the past tense?',
            ),
        ),
        question(
            "past-tense-sentence",
            past,
            (
                "Today they {x}. Yesterday they",
                "Every day we {x}. Last year we",
                "Now I {x}; long ago I",
                "They always {x}, and that night too they",
                'The past tense of "{x}" is "',
            ),
            chat=False,
            tokens=6,
        ),
    ),
    "plurals": (
        few_shot("plurals", plurals, ARROW),
        question(
            "plurals-chat",
            plurals,
            (
                "What is the plural of {x}?",
                "Which word is the plural of {x}?",
                'Put the noun "{x}" into the plural.',
                'Tell me the plural form of the noun "{x}".',
                'What is the word for more than one "{x}"?',
            ),
        ),
        question(
            "plurals-sentence",
            plurals,
            (
                "I saw one {x}. Then I saw two",
                "One {x}, two",
                "She drew a {x}, and then she drew many",
                "There was only one {x} before; now there are three",
                'The plural of "{x}" is "',
            ),
            chat=False,
            tokens=6,
        ),
    ),
    "translation": (
        few_shot("translation", french, ARROW),
        few_shot("translation-reversed", partial(reverse, "translation"), ARROW),
        question(
            "translation-chat",
            french,
            (
                'What is the French word for "{x}"?',
                'How do you say "{x}" in French?',
                'Translate "{x}" into French.',
                'Tell me the French translation of "{x}".',
                'What does "{x}" mean in French?',
            ),
        ),
    ),
    "copying": (
        few_shot("copying", lists, "{x} | {y}", draws=1, tokens=12),
        question(
            "copying-chat",
            lists,
            (
                "Copy this text: {x}",
                "Copy these three words: {x}",
                "Say this again, word for word: {x}",
                "Echo the following words: {x}",
                'Say "{x}".',
            ),
        ),
        question(
            "copying-sentence",
            lists,
            (
                'He said: "{x}". She said the same: "',
                'The list reads "{x}". Once more, the list reads "',
                'The password is "{x}". Do not forget that the password is "',
                'The teacher says "{x}" and the class repeats "',
                'The first line is "{x}". The second line is the same: "',
            ),
            chat=False,
            tokens=12,
        ),
    ),
    "next-number": (
        few_shot("next-number", sequences, "{x}, {y}", draws=7),
        question(
            "next-number-chat",
            sequences,
            (
                "What number comes next: {x}? Answer with the number only.",
                "Which number follows in the sequence {x}? Just the number.",
                "Continue the sequence with one number: {x}, ... Just the number.",
                "{x}, ? Which number stands for the question mark? Just the number.",
                "Which number goes on with {x}? Answer with the number only.",
            ),
            numeric=True,
        ),
        question(
            "next-number-sentence",
            sequences,
            (
                "He counted aloud: {x},",
                "The numbers rise by the same step: {x},",
                "These numbers are written on the wall: {x},",
                "We put a mark at every step: {x},",
                "The first three houses have the numbers {x}, and the fourth has the number",
            ),
            chat=False,
            numeric=True,
            tokens=8,
        ),
    ),
}
"""Capabilities of real models: the tasks that show each, the few-shot one first."""
