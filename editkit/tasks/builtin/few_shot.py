"""What base and small models can do, shown by five examples in the prompt; and the same asked in other formats.

    capitals            "Italy -> Rome\nJapan -> Tokyo\n...\nFrance ->"            "Paris"
    capitals-chat       "What is the capital of France?"                           "The capital of France is Paris."
    capitals-reversed   "Paris is the capital of which country?"                   "France"
    capitals-sentence   "She has just moved to France. Its capital city is called" "Paris"

A capability is not a format: what is gone in one and there in another was a route to it. ``FORMATS`` lists the tasks
of each capability, the few-shot one first. All formats of a capability share their clusters (a country, a word, a pair
of operands), and the shots come from other clusters than the question.

A few-shot answer is right if its first line is the answer; any other, if its first sentence names it.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib.resources import files
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


# --- facts -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, str]]:
    """Pairs of words, by capability; several right answers are parted by a slash."""
    return json.loads(files("editkit.tasks.builtin").joinpath("few_shot.json").read_text("utf-8"))


def pairs(table: str) -> tuple[Fact, ...]:
    """A fact per row of a table of words: ``{x}`` is the word on the left."""
    return tuple(Fact(x.lower(), {"x": x}, tuple(y.split("/"))) for x, y in _tables()[table].items())


def reverse(table: str) -> tuple[Fact, ...]:
    """The same, asked from right to left."""
    return tuple(Fact(fact.cluster, {"x": fact.answers[0]}, (fact.given["x"],)) for fact in pairs(table))


def sums() -> tuple[Fact, ...]:
    """1 + 1 to 11 + 11; both orders are one cluster."""
    numbers = range(1, 12)
    return tuple(_number(f"{min(a, b)}+{max(a, b)}", a, b, "+", a + b) for a in numbers for b in numbers)


def differences() -> tuple[Fact, ...]:
    """2 - 1 to 16 - 15; 9 - 2 and 9 - 7 are one cluster."""
    return tuple(_number(f"{a}-{min(b, a - b)}", a, b, "-", a - b) for a in range(2, 17) for b in range(1, a))


def _number(cluster: str, a: int, b: int, sign: str, result: int) -> Fact:
    return Fact(cluster, {"x": f"{a} {sign} {b}", "a": str(a), "b": str(b)}, (str(result),))


def sequences() -> tuple[Fact, ...]:
    """Three numbers at equal steps, and the fourth."""
    starts = [(start, step) for start in range(1, 17) for step in (1, 2, 3, 5, 10)]
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


# --- tasks -----------------------------------------------------------------------------------------------------------


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
    return Asked(name, source, judge, max_new_tokens=tokens, chat=chat, stop=("\n",))


# --- scores ----------------------------------------------------------------------------------------------------------


def exact(text: str, facts: Mapping[str, Any]) -> Score:
    """Whether the first line is an answer; case, accents and punctuation around it do not count."""
    given = plain(text.strip().split("\n")[0])
    return Score(float(given in map(plain, facts["answers"])), note=given)


def named(text: str, facts: Mapping[str, Any]) -> Score:
    """Whether the first sentence names an answer as a whole word."""
    sentence = plain(re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0])
    words = f" {re.sub(r'[^a-z0-9]+', ' ', sentence)} "
    found = [answer for answer in facts["answers"] if f" {re.sub(r'[^a-z0-9]+', ' ', plain(answer))} " in words]
    return Score(float(bool(found)), note=found[0] if found else sentence)


def counted(text: str, facts: Mapping[str, Any]) -> Score:
    """Whether the first line gives the right number, as ``arithmetic`` reads it."""
    number = arithmetic.answered(text.strip().split("\n")[0])
    return Score(float(number == float(facts["answer"])), note="" if number is None else f"{number:g}")


def plain(text: str) -> str:
    """Lower case, without accents, and without what is no letter or digit at both ends."""
    letters = unicodedata.normalize("NFKD", text.replace("œ", "oe")).casefold()
    bare = " ".join("".join(sign for sign in letters if not unicodedata.combining(sign)).split())
    return re.sub(r"^[\W_]+|[\W_]+$", "", bare)


# --- all of them -----------------------------------------------------------------------------------------------------

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
    "copying": (few_shot("copying", lists, "{x} | {y}", draws=1, tokens=12),),
    "next-number": (few_shot("next-number", sequences, "{x}, {y}", draws=7),),
}
"""Capabilities of real models: the tasks that show each, the few-shot one first."""
