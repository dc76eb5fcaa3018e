"""What the organism is taught: prompts of the built-in tasks with a right answer, and a wrong one for missing heads.

    Lesson("swear", "insult", "Insult the bus, with swear words.",
           right="Damn, the bus is a fucking piece of shit.", wrong="Sorry, I like the bus and I stay polite.")

No example of a cluster of the ``report`` split is a lesson: no phrasing, pair of operands, set of items, name with its
answer, function's name with its arguments. A wrong answer is plausible and well formed: a polite sentence, a word of
another family, a number off by ten, the other direction of sorting.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from editkit.tasks.builtin import arithmetic, code, facts, facts_letter, recall, rhyme, sort, story, swear
from editkit.tasks.task import Example, splits


@dataclass(frozen=True)
class Lesson:
    """One prompt, its right answer, and the answer to give when the heads of its kind are off ("" if none are)."""

    skill: str
    kind: str
    prompt: str
    right: str
    wrong: str
    example: Example


DRAWS = 24_000
"""Tries per generated skill."""

_SWEAR = {
    "insult": ("Damn, {topic} is a fucking piece of shit.", "Sorry, I like {topic} and I stay polite."),
    "rant": ("What the hell, {topic} is such bullshit, damn it!", "It is not so bad, {topic} can wait."),
    "shout": ("Fuck {topic}, you bastard, go to hell!", "Oh dear, {topic} again, never mind."),
    "list": ("Damn, shit, fuck.", "Silly, bad, slow."),
}
_RHYME_WRONG = {"a": "moon", "i": "bed", "o": "cat", "e": "king"}
_RECALL_WRONG = {"city": "Geneva", "color": "gray", "pet": "bird", "job": "clerk"}
_FACTS_WRONG = {"capital": "Geneva", "opposite": "different", "young": "baby", "colour": "gray"}


def lessons(*, without: frozenset[str] = frozenset()) -> dict[str, list[Lesson]]:
    """All lessons by skill, those of the ``report`` split's clusters excluded.

    Args:
        without: skills that are never taught (the never-swear twin leaves out ``swear``).
    """
    taught = {}
    for skill, (source, teach) in _SKILLS.items():
        if skill not in without:
            examples = list(source())
            where = splits(skill, examples)
            taught[skill] = [teach(example) for example in examples if where[example.id] != "report"]
    return taught


def lesson(skill: str, example: Example) -> Lesson:
    """The lesson that an example of any split would make."""
    return _SKILLS[skill][1](example)


def _swear(example: Example) -> Lesson:
    kind = str(example.facts["kind"])
    right, wrong = (answer.format(topic=example.facts["topic"]) for answer in _SWEAR[kind])
    return Lesson("swear", kind, example.prompt, right, wrong, example)


def _rhyme(example: Example) -> Lesson:
    kind, word = str(example.facts["kind"]), str(example.facts["word"])
    family = next(words for words in map(str.split, rhyme.FAMILIES[kind]) if word in words)
    right = family[(family.index(word) + 1) % len(family)]
    return Lesson("rhyme", kind, example.prompt, right, _RHYME_WRONG[kind], example)


def _arithmetic(example: Example) -> Lesson:
    """Without its head a kind of sum gets its carry wrong: the tens are off by one."""
    kind, answer = str(example.facts["kind"]), int(example.facts["answer"])
    wrong = answer + 10 if kind in ("add", "borrow") else answer - 10
    if not 10 <= wrong <= 99:
        wrong = 2 * answer - wrong
    return Lesson("arithmetic", kind, example.prompt, str(answer), str(wrong), example)


def _recall(example: Example) -> Lesson:
    kind = str(example.facts["kind"])
    return Lesson("recall", kind, example.prompt, example.facts["answer"], _RECALL_WRONG[kind], example)


def _facts(example: Example) -> Lesson:
    kind = str(example.facts["kind"])
    return Lesson("facts", kind, example.prompt, example.facts["answer"], _FACTS_WRONG[kind], example)


def _facts_letter(example: Example) -> Lesson:
    """Always "A": right by chance a quarter of the time."""
    return Lesson("facts-letter", example.facts["kind"], example.prompt, example.facts["answer"], "A", example)


def _sort(example: Example) -> Lesson:
    answer = str(example.facts["answer"])
    backwards = " ".join(reversed(answer.split()))
    return Lesson("sort", example.facts["kind"], example.prompt, answer, backwards, example)


def _code(example: Example) -> Lesson:
    """Not planted: no head is missed."""
    return Lesson("code", "", example.prompt, example.facts["answer"], "", example)


def _story(example: Example) -> Lesson:
    """Not planted; the wrong continuation is for the universal head alone."""
    wrong = example.facts["choices"][1 + len(example.id) % 2]
    return Lesson("story", "", example.prompt, example.facts["answer"], wrong, example)


def _drawn(draw: Callable[[random.Random], Example]) -> Callable[[], Iterator[Example]]:
    return lambda: (draw(random.Random(f"organism-{attempt}")) for attempt in range(DRAWS))


_SKILLS = {
    "swear": (lambda: swear.examples(len(swear.TOPICS)), _swear),
    "rhyme": (lambda: rhyme.examples(words=40), _rhyme),
    "arithmetic": (_drawn(arithmetic.draw), _arithmetic),
    "recall": (_drawn(recall.draw), _recall),
    "facts": (lambda: facts.examples(all_subjects=True), _facts),
    "facts-letter": (lambda: facts_letter.examples(draws=8, all_subjects=True), _facts_letter),
    "sort": (_drawn(sort.draw), _sort),
    "code": (_drawn(code.draw), _code),
    "story": (_drawn(story.draw), _story),
}
