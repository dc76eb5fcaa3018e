"""What every method is given: right answers of the capability to forget, and of the retained tasks.

lessons = lessons_of(ledger, wanted)
lessons.forget[0], len(lessons.retain)          # ([1, 45, 7], [88, 12]), 400

All are of ``locate`` examples, on which a removal finds its units too: the answer that the task names, else the base's
own where the task finds it right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from editkit.audits.subject import Arm, own_answers
from editkit.errors import EditkitError
from editkit.measuring.ledger import Ledger
from editkit.measuring.right_answers import right_answer
from editkit.models.encoding import Encoded
from editkit.removal.capability import Capability
from editkit.tasks.task import Example, Loglikelihood, Task, examples_of


@dataclass(frozen=True)
class Lessons:
    """(context, answer) in token ids. ``retain`` goes round the tasks, so that any part of it is of all of them."""

    forget: tuple[Encoded, ...]
    retain: tuple[Encoded, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self.forget, self.retain)).encode()).hexdigest()


def lessons_of(ledger: Ledger, wanted: Capability) -> Lessons:
    """As many examples of each task as the recipe's search has.

    Raises:
        EditkitError: the base answers no example of a target right.
    """
    limit = wanted.recipe.examples.locate

    def rows(tasks: Sequence[Task]) -> tuple[Encoded, ...]:
        each = [list(_answers(ledger, task, examples_of(task, "locate", limit=limit))) for task in tasks]
        return tuple(ledger.model.encode(row) for turn in zip_longest(*each) for row in turn if row is not None)

    forget, retain = rows(wanted.targets), rows(wanted.retain)
    if not forget or not retain:
        raise EditkitError(f"{ledger.model!r} answers nothing right that could be forgotten or retained.")
    return Lessons(forget, retain)


def _answers(ledger: Ledger, task: Task, examples: Sequence[Example]) -> Iterator[Loglikelihood]:
    named = {example.id: right_answer(task, example) for example in examples}
    rest = [example for example in examples if named[example.id] is None]
    own = dict(zip((each.id for each in rest), own_answers(Arm("base", ledger), task, rest), strict=True))
    for example in examples:
        answer = named[example.id] or own.get(example.id)
        if answer is not None:
            yield answer
