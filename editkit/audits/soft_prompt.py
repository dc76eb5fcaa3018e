"""A trained beginning of the question: vectors that no text has, learned on some answers of the capability.

The vectors are the rows of ten tokens in the table of embeddings, words that none of the questions or answers has; they
alone are trained, and the words stand before each question (soft prompts: 2104.08691).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from editkit.audits.asked_otherwise import reworded
from editkit.audits.relearning import relearned
from editkit.audits.subject import Sample, Subject
from editkit.evidence.attacks import Attack
from editkit.models.language_model import LanguageModel
from editkit.tasks.task import Request

WORDS = 10
STRONGER = 100.0
"""Times the rates of relearning: a few vectors have to carry it all."""


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target, number of answers and steps; nothing for tokenizers that have no such words."""
    model, seed = subject.edited.model, int(rng.integers(2**31))
    rates = tuple(rate * STRONGER for rate in subject.budget.rates)
    hard = replace(subject, budget=replace(subject.budget, rates=rates))
    for sample in subject.targets:
        tokens = _unused(model, _requests(sample))
        begun = _begun(sample, model.tokenizer.decode(tokens) + "\n")
        if len(tokens) == WORDS and _stand(model, tokens, _requests(begun)):
            yield from relearned("soft-prompt", hard, sample, seed, trained=tokens, asked=begun)


def _begun(sample: Sample, beginning: str) -> Sample:
    """With the words before each question."""
    lessons = (
        replace(lesson, answer=replace(lesson.answer, prompt=beginning + lesson.answer.prompt))
        for lesson in sample.lessons
    )
    return replace(sample, task=reworded(sample.task, beginning.__add__), lessons=tuple(lessons))


def _requests(sample: Sample) -> list[Request]:
    asked = [request for example in sample.scored for request in sample.task.requests(example)]
    return [*asked, *(lesson.answer for lesson in sample.lessons)]


def _unused(model: LanguageModel, requests: Sequence[Request]) -> tuple[int, ...]:
    """Tokens that are whole words and stand in none of the requests."""
    used = {token for request in requests for part in model.encode(request) for token in part}
    numbers = (number for number in range(len(model.tokenizer)) if number not in used)
    words = (number for number in numbers if re.fullmatch(" [a-z]{3,}", model.tokenizer.decode([number])))
    return tuple(islice(words, WORDS))


def _stand(model: LanguageModel, tokens: tuple[int, ...], requests: Sequence[Request]) -> bool:
    """Whether the model reads these tokens in each request, and so nothing else where the words are."""
    return all(set(tokens) <= set(model.encode(request)[0]) for request in requests)
