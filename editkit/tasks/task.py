"""Tasks: what is asked of a model, and how each answer is scored.

A task is a sequence of examples, the requests each example makes of a model, and a pure score per example in
[0, 1], where 1 means that the capability was shown. Nothing here knows a model.
"""

from __future__ import annotations

import hashlib
from collections import Counter
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
        prefill: how the answer begins: the model goes on from there, and its output is what it adds.
        draw: 0 is the greedy answer; any other number is one drawn at temperature 1, the same one every time.
    """

    prompt: str
    max_new_tokens: int = 32
    chat: bool = True
    stop: tuple[str, ...] = ()
    prefill: str = ""
    draw: int = 0

    def __repr__(self) -> str:
        """Measurements are kept under it, many from before there was a beginning or a draw: so none is not named."""
        return _named(self, ("prompt", "max_new_tokens", "chat", "stop"), ("prefill", "draw"))


@dataclass(frozen=True)
class Loglikelihood:
    """Ask how likely ``continuation`` is after ``prompt`` (teacher forced, natural log).

    Args:
        lead: how the answer begins: it is given, and what follows it is asked.
    """

    prompt: str
    continuation: str
    chat: bool = True
    lead: str = ""

    def __repr__(self) -> str:
        """As of ``Generate``: a lead that is none is not named."""
        return _named(self, ("prompt", "continuation", "chat"), ("lead",))


def _named(request: object, always: Sequence[str], sometimes: Sequence[str]) -> str:
    """As a dataclass shows itself, without those of ``sometimes`` that are empty."""
    fields = [*always, *(name for name in sometimes if getattr(request, name))]
    return f"{type(request).__name__}({', '.join(f'{name}={getattr(request, name)!r}' for name in fields)})"


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
    """One question. ``id`` is stable and unique in its task; with ``cluster`` it decides the split.

    Args:
        prompt: the question as a person would type it.
        cluster: what examples share that are no findings of their own: a template, a fact, a word. It counts once.
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


def judged_by(task: Task) -> str:
    """The model that scores the task's answers and its version, as far as that is known by now; empty: none does.

    A task that is scored by a model says so by a property of this name.
    """
    return getattr(task, "judged_by", "")


def digest(task: Task) -> str:
    """What a score depends on besides the answers: measurements are kept under it, from one process to the next.

    Taken from the task's ``repr``, so a field that holds a function stays out of it, and says elsewhere what it does.
    """
    return hashlib.sha256(repr(task).encode()).hexdigest()


SHARES: dict[Split, float] = {"locate": 0.5, "choose": 0.2, "report": 0.3}
"""How a task's examples are divided."""
FEWEST_CLUSTERS = 20
"""So many clusters in each split, or clusters are divided too. With 19 of them in ``report``, a model that names 5 % of
the capitals where it named 54 % is only shown to keep at most 36 % of them."""


def splits(name: str, examples: Sequence[Example]) -> dict[str, Split]:
    """The split of each example of the task ``name``, by its id: of whole clusters where there are enough of them.

    A cluster goes by a hash of its name alone, so it is in the same split in every task: what the search has seen in
    one format, ``report`` asks about in no other. Nothing moves when examples are added, unless with them the clusters
    become enough.
    """
    whole: dict[str, Split] = {example.id: _split(example.cluster or f"{name}\0{example.id}") for example in examples}
    counts = Counter({example.cluster or example.id: whole[example.id] for example in examples}.values())
    if all(counts[split] >= FEWEST_CLUSTERS for split in SPLITS):
        return whole
    return {example.id: split_of(name, example.id) for example in examples}


def divides_clusters(task: Task) -> bool:
    """Whether examples of one cluster are in several splits: too few clusters to keep them whole."""
    split = splits(task.name, task.examples())
    pairs = {(example.cluster, split[example.id]) for example in task.examples() if example.cluster}
    return len(pairs) > len({cluster for cluster, _ in pairs})


def split_of(task: str, example_id: str) -> Split:
    """The split of an example that goes by itself: a hash of the task's name and its id."""
    return _split(f"{task}\0{example_id}")


def examples_of(task: Task, split: Split, *, limit: int | None = None) -> list[Example]:
    """The task's examples in ``split``, in an order fixed by their hashes, so that a limit is a fair sample."""
    examples = task.examples()
    where = splits(task.name, examples)
    chosen = [example for example in examples if where[example.id] == split]
    chosen.sort(key=lambda example: hashlib.sha256(f"order\0{task.name}\0{example.id}".encode()).digest())
    return chosen if limit is None else chosen[:limit]


def _split(key: str) -> Split:
    """Half ``locate``, a fifth ``choose``, the rest ``report`` (``SHARES``)."""
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    if share < SHARES["locate"]:
        return "locate"
    return "choose" if share < SHARES["locate"] + SHARES["choose"] else "report"
