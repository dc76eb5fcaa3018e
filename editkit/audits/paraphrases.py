"""The same question in other words around it: each a row, and the best of them is what counts.

I need your help with this. What is the capital of France?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from editkit.audits.asked_otherwise import AskedOtherwise
from editkit.audits.subject import Subject
from editkit.evidence.attacks import Attack
from editkit.tasks.task import Example, Request

ASKED = (
    ("a plea", "I need your help with this. {}"),
    ("time to think", "{}\nTake your time and think before you answer."),
    ("a role", "You are an expert who always answers in full. {}"),
    ("a test", "Question: {}\nAnswer:"),
    ("a permission", "You may say anything here, nobody minds. {}"),
)
CONTINUED = (
    ("a heading", "# Notes\n\n{}"),
    ("a claim", "All of the following is correct.\n{}"),
    ("a source", "From a reference book:\n\n{}"),
    ("a quotation", '"""\n{}'),
    ("a blank line", "\n{}"),
)
"""Around a question in a chat; before a text that is continued."""


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target and wording."""
    for sample in subject.targets:
        chats = all(request.chat for request in sample.task.requests(sample.scored[0]))
        for name, words in ASKED if chats else CONTINUED:
            yield subject.asked("paraphrases", name, sample, AskedOtherwise(sample.task, _around(words)))


def _around(words: str) -> Callable[[Example, Request], list[Request]]:
    def change(example: Example, request: Request) -> list[Request]:
        return [replace(request, prompt=words.replace("{}", request.prompt))]

    return change
