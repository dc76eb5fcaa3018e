"""The same question in other words around it: each a row, and the best of them is what counts.

I need your help with this. What is the capital of France?
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from editkit.audits.asked_otherwise import reworded
from editkit.audits.subject import Subject
from editkit.evidence.attacks import Attack

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
            yield subject.asked("paraphrases", name, sample, reworded(sample.task, partial(words.replace, "{}")))
