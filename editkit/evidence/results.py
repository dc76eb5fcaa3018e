"""What one model answered and how each answer was scored: a measurement in the words of other evaluation programs.

    before, after = of_outcome(outcome)      the two arms of a removal, from its examples
    after.tasks[0].name, after.tasks[0].score.mean, after.tasks[0].replies[3].answer

Nothing is taken from a report: a task's mean and bounds are computed from the scores here. What ``OUT`` does not
publish is not here either: of such an answer, and of its prompt, there is the sha256.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence.examples import NAME, Asked, sha256
from editkit.evidence.intervals import Interval, mean_interval, standard_error
from editkit.evidence.outcome import Outcome
from editkit.evidence.row import Role
from editkit.evidence.samples import labels
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Example, Score
from editkit.units import show

_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class Reply:
    """One example, and what the model made of it.

    Args:
        prompt: its text; ``sha256:...`` where that is not known, or not to be read.
        prompt_sha256: of its text, in either case.
        answer: as the model wrote it, or the log-likelihood of each choice; ``sha256:...`` where it is not to be read.
        right: the right answer, where one is written down.
        choices: what was to be chosen from.
    """

    example: str
    cluster: str
    prompt: str
    prompt_sha256: str
    answer: str
    score: Score
    right: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskResults:
    """One task's replies, in the order in which they were asked; ``role`` is what the task is in a removal."""

    name: str
    split: str
    chance: float
    replies: tuple[Reply, ...]
    role: Role | None = None

    @property
    def score(self) -> Interval:
        """The mean with its 95 % bounds, as every report has them."""
        return mean_interval(self._values, clusters=self._labels)

    @property
    def stderr(self) -> float | None:
        """The standard error of the mean; None where all examples are one cluster."""
        return standard_error(self._values, clusters=self._labels)

    @property
    def collapse(self) -> float:
        """The share of answers that show nothing: empty, degenerate or repetitive."""
        return float(np.mean([not reply.score.valid for reply in self.replies]))

    @property
    def _values(self) -> list[float]:
        return [reply.score.value for reply in self.replies]

    @property
    def _labels(self) -> Sequence[Any] | None:
        return labels([reply.cluster for reply in self.replies])


@dataclass(frozen=True)
class Results:
    """What one model was asked.

    Args:
        model: a Hub id, a folder, or the name of an output.
        date: of the measurement: ``2026-11-23``.
        about: where it comes from, as plain JSON: base, what was removed, command, versions, verdict.
    """

    model: str
    date: str
    seed: int
    versions: Mapping[str, str]
    tasks: tuple[TaskResults, ...]
    about: Mapping[str, Any] = field(default_factory=dict)


def of_outcome(outcome: Outcome) -> tuple[Results, Results]:
    """The unedited model's results and the edited one's.

    Raises:
        EditkitError: there are no examples, or they are those of other tasks than the rows.
    """
    sheets: dict[str, list[Asked]] = {}
    for each in outcome.examples:
        sheets.setdefault(each.task, []).append(each)
    rows = outcome.report.rows
    if not rows or list(sheets) != [row.task for row in rows]:
        raise EditkitError(
            f"{outcome.out}: expected the examples of {len(rows)} tasks in {NAME}, found those of {len(sheets)}. "
            "Outputs of an earlier release have none: remove the capability again."
        )
    told = outcome.provenance
    if not _DATE.fullmatch(told.date):
        raise EditkitError(f"{outcome.out}: expected a date such as 2026-11-23 as the run's, found {told.date!r:.40}.")
    about: dict[str, Any] = {
        **{"recipe": told.recipe, "command": told.command, "seeds": dict(told.seeds)},
        "base": {"model": told.base.model, "revision": told.base.revision, "dtype": told.base.dtype},
        "verdict": {"status": outcome.report.verdict.status, "reasons": list(outcome.report.verdict.reasons)},
    }
    versions = {name: str(version) for name, version in told.versions.items()}
    removed = {"removed": show(outcome.edit.units), "output": told.format}

    def arm(model: str, at: int, about: Mapping[str, Any]) -> Results:
        tasks = tuple(
            TaskResults(
                _whole(row.task),
                row.split,
                row.chance,
                tuple(_reply(each, at) for each in sheets[row.task]),
                row.role,
            )
            for row in rows
        )
        return Results(_whole(model), told.date, told.seeds.get("run", 0), versions, tasks, about)

    edited = outcome.out.absolute().name
    return arm(told.base.model, 0, about | {"arm": "base"}), arm(edited, 1, about | {"arm": "edited"} | removed)


def reply(example: Example, answer: str, score: Score, *, hidden: bool = False) -> Reply:
    """An answer to an example that is at hand; of a hidden one, hashes stand in place of all text."""
    prompt, answer = sha256(example.prompt), answer.strip()
    if hidden:
        return Reply(example.id, example.cluster, _hash(prompt), prompt, _hash(sha256(answer)), score)
    right, choices = (_texts(example.facts.get(key)) for key in ("answer", "choices"))
    texts = _whole(example.prompt), prompt, _whole(answer), score, " / ".join(right), choices
    return Reply(_whole(example.id), _whole(example.cluster), *texts)


def _reply(each: Asked, at: int) -> Reply:
    """With the prompt where the task is built in, and asks today what it asked then."""
    answer, score = each.answers[at], (each.before, each.after)[at]
    example = _built_in(each.task).get(each.example)
    same = example is not None and (sha256(example.prompt), example.cluster) == (each.prompt, each.cluster)
    if example is not None and same and not each.hidden:
        return reply(example, answer, score)
    text = _hash(answer) if each.hidden else _whole(answer)
    return Reply(_whole(each.example), _whole(each.cluster), _hash(each.prompt), each.prompt, text, score)


@lru_cache
def _built_in(name: str) -> Mapping[str, Example]:
    return {example.id: example for example in TASKS[name].examples()} if name in TASKS else {}


def _texts(value: object) -> tuple[str, ...]:
    """One fact of an example as texts: several, one, or none."""
    several = value if isinstance(value, list | tuple) else () if value is None else (value,)
    return tuple(_whole(str(each)) for each in several)


def _hash(sha256: str) -> str:
    return f"sha256:{sha256}"


def _whole(text: str) -> str:
    """Text that any program can read: a model may write half a character."""
    return text.encode("utf-8", "replace").decode()
