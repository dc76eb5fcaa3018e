"""Tasks: what is asked of a model, and how each answer is scored.

A task is a sequence of examples, the requests each example makes of a model, and a pure score per example in
[0, 1], where 1 means that the capability was shown. Nothing here knows a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

Split = Literal["locate", "choose", "report"]
SPLITS: tuple[Split, ...] = ("locate", "choose", "report")


@dataclass(frozen=True)
class Generate:
    """Ask for text. Greedy unless the caller says otherwise.

    Args:
        prompt: the user's message if ``chat``, else the raw text to continue.
        max_new_tokens: the longest answer, in tokens.
        chat: wrap the prompt in the model's chat template (if the tokenizer has one).
        stop: the answer ends before the first of these strings.
    """

    prompt: str
    max_new_tokens: int = 32
    chat: bool = True
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Loglikelihood:
    """Ask how likely ``continuation`` is after ``prompt`` (teacher forced, natural log)."""

    prompt: str
    continuation: str
    chat: bool = True


Request = Generate | Loglikelihood


@dataclass(frozen=True)
class Likelihood:
    """The answer to a ``Loglikelihood``: summed log-probability in nats (<= 0) over ``tokens`` tokens."""

    logprob: float
    tokens: int
    greedy: bool


Output = str | Likelihood
"""What a model gives back: text for ``Generate``, a ``Likelihood`` for ``Loglikelihood``."""


@dataclass(frozen=True)
class Score:
    """One example's result. ``value`` in [0, 1]; 1 = the capability was shown.

    ``valid`` is False where the output is empty, degenerate or repetitive: such an answer shows no capability
    (value 0) but never counts as "removed" either; it is reported as collapse.
    """

    value: float
    valid: bool = True
    note: str = ""


@dataclass(frozen=True)
class Example:
    """One question. ``id`` is stable and unique in its task, and alone decides the split.

    Args:
        prompt: the question as a person would type it.
        cluster: examples that share a template share a cluster; intervals resample clusters together.
        facts: what the scorer needs (the right answer, the word to rhyme with); plain JSON values.
    """

    id: str
    prompt: str
    cluster: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """The one contract of every capability, built in, from lm-eval or from a user's file."""

    @property
    def name(self) -> str:
        """Lower-case, unique: ``swear``."""
        ...

    @property
    def chance(self) -> float:
        """What guessing scores, in [0, 1]."""
        ...

    @property
    def format(self) -> str:
        """``generation`` | ``choice-letter`` | ``choice-text`` | ``likelihood``: tells format heads from knowledge."""
        ...

    @property
    def rule(self) -> str:
        """What an answer must be to score 1, for a person: ``the last number is the row's answer``."""
        ...

    def examples(self) -> Sequence[Example]:
        """All examples, always the same and in the same order."""
        ...

    def requests(self, example: Example) -> tuple[Request, ...]:
        """What this example asks of a model."""
        ...

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        """Judge the outputs, in the order of ``requests``. Pure."""
        ...


def digest(task: Task) -> str:
    """What a score depends on besides the answers: measurements are kept under it, from one process to the next.

    Taken from the task's ``repr``, so a field that holds a function stays out of it, and says elsewhere what it does.
    """
    return hashlib.sha256(repr(task).encode()).hexdigest()


SHARES: dict[Split, float] = {"locate": 0.5, "choose": 0.2, "report": 0.3}
"""How a task's examples are divided."""


def split_of(task: str, example_id: str) -> Split:
    """The split an example belongs to: half ``locate``, a fifth ``choose``, the rest ``report`` (``SHARES``).

    Decided by a hash of the task's name and the example's id, so it never moves when examples are added.
    """
    digest = hashlib.sha256(f"{task}\0{example_id}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    chosen = SHARES["locate"], SHARES["locate"] + SHARES["choose"]
    return "locate" if place < chosen[0] else "choose" if place < chosen[1] else "report"


def examples_of(task: Task, split: Split, *, limit: int | None = None) -> list[Example]:
    """The task's examples in ``split``, in an order fixed by their hashes, so that a limit is a fair sample."""
    chosen = [example for example in task.examples() if split_of(task.name, example.id) == split]
    chosen.sort(key=lambda example: hashlib.sha256(f"order\0{task.name}\0{example.id}".encode()).digest())
    return chosen if limit is None else chosen[:limit]
