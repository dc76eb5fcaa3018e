"""Everything asked of a model goes through its ledger: what the store holds is not asked again.

ledger = Ledger(model, store)
ledger.cells(Question(task, "task", asked, judge), masks)        # one list per mask, one cell per example
ledger.cells(Question(task, "task", asked, judge), knockouts)    # the same for units of any kind
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from editkit.checkpoints.knockout import Knockout
from editkit.edit import Base
from editkit.measuring.store import Cell, Store
from editkit.models.encoding import ASKED
from editkit.models.language_model import Ask, LanguageModel
from editkit.progress import Advance, Stages, silent
from editkit.tasks.task import Example, Output, Request, Task, digest
from editkit.units import Unit

Masks = np.ndarray | Sequence[Knockout]
"""What is out: bool[m, heads], True = knocked out, or m knockouts."""

_ELSEWHERE = ("_name_or_path", "_commit_hash", "transformers_version")
"""What a config says of its files and its library."""


@dataclass(frozen=True)
class Question:
    """Examples of one task, what is asked for each, and how the outputs become a cell.

    Args:
        mode: tells apart the ways to score one task in the store.
    """

    task: Task
    mode: str
    asked: Sequence[tuple[Example, tuple[Request, ...]]]
    judge: Callable[[Example, Sequence[Output]], Cell]


@dataclass(frozen=True)
class Ledger:
    """A live model, the store of what was measured on it, and who hears how the work advances.

    Args:
        attack: what was done to the model's weights in memory since it was loaded: it is another model then, with cells
            of its own. Empty: nothing.
    """

    model: LanguageModel
    store: Store
    stages: Stages = silent
    advance: Advance = lambda cells: None
    attack: str = ""

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Ledger]:
        """The same ledger, whose cells advance the stage ``title``, with the number of copies that answer."""
        pool = self.model.helped
        copies = f", {pool.workers} worker{'s' * (pool.workers != 1)}" if pool else ""
        with self.stages(title + copies, total) as advance:
            yield replace(self, advance=advance)

    def mask(self, units: Any = ()) -> np.ndarray:
        """bool[1, heads]: one mask with heads knocked out; the unedited model if there are none."""
        return self.model.architecture.mask(units)[None]

    def knockout(self, units: Iterable[Unit] = ()) -> tuple[Knockout]:
        """One knockout of heads and neurons, which may stand wherever masks may."""
        return (self.model.architecture.knockout(units),)

    def cells(self, question: Question, masks: Masks) -> list[list[Cell]]:
        """One list per mask, one cell per example, in the order of ``question.asked``.

        Args:
            masks: bool[m, heads], True = knocked out; or m knockouts.
        """
        return self._page(question).cells(self.model.architecture.knockouts(masks))

    def asks(self, question: Question, masks: Masks) -> Iterator[Ask]:
        """What the store lacks of these cells, asked of a model: answers that arrive are judged and stored."""
        return self._page(question).asks(self.model.architecture.knockouts(masks), {})

    def holds(self, question: Question, masks: Masks) -> bool:
        """Whether the store has all these cells, so that the model need not be there as it was."""
        return self._page(question).holds(self.model.architecture.knockouts(masks))

    def _page(self, question: Question) -> _Page:
        attack = {"attack": self.attack} if self.attack else {}  # so older stores keep their keys
        return _Page(self, question, self.store.space(_space(self.model, question) | attack))


@dataclass(frozen=True)
class _Page:
    """One space of the store, and how to fill it: what it lacks is asked of the model, batch by batch."""

    ledger: Ledger
    question: Question
    space: int

    def holds(self, out: Sequence[Knockout]) -> bool:
        keys = {_key(example, requests) for example, requests in self.question.asked}
        return all(keys <= self.ledger.store.get(self.space, each).keys() for each in out)

    def cells(self, out: Sequence[Knockout]) -> list[list[Cell]]:
        filled: dict[Knockout, dict[str, Cell]] = {}
        self.ledger.model.answer_each(self.asks(out, filled))
        keys = [_key(example, requests) for example, requests in self.question.asked]
        return [[filled[each][key] for key in keys] for each in out]

    def asks(self, out: Sequence[Knockout], filled: dict[Knockout, dict[str, Cell]]) -> Iterator[Ask]:
        """A bounded number of knockouts at a time; ``filled`` gets their cells, those of the store at once."""
        asked = self.question.asked
        keys = [_key(example, requests) for example, requests in asked]
        step = max(1, 20_000 // max(1, sum(len(requests) for _, requests in asked)))
        first: dict[str, int] = {}
        for at, key in enumerate(keys):
            first.setdefault(key, at)
        for start in range(0, len(out), step):
            chunk = out[start : start + step]
            # What comes twice is asked once: else the cell that is kept is the one that happens to arrive first.
            new = [each for each in dict.fromkeys(chunk) if each not in filled]
            stored = [self.ledger.store.get(self.space, each) for each in new]
            filled.update(zip(new, stored, strict=True))
            missing = [(row, at) for row, cells in enumerate(stored) for key, at in first.items() if key not in cells]
            self.ledger.advance(len(chunk) * len(asked) - len(missing))
            if missing:
                yield self._ask(missing, keys, new, stored)

    def _ask(
        self, missing: list[tuple[int, int]], keys: list[str], out: Sequence[Knockout], stored: list[dict[str, Cell]]
    ) -> Ask:
        """What fills the missing cells (positions in ``out`` and ``asked``); a batch's finished cells are stored at
        once."""
        asked, judge = self.question.asked, self.question.judge
        counts = [len(asked[at][1]) for _, at in missing]
        starts = np.cumsum([0, *counts])
        owner = np.repeat(np.arange(len(missing)), counts)
        answers: dict[int, Output] = {}

        def arrived(numbers: list[int], outputs: list[Output]) -> None:
            answers.update(zip(numbers, outputs, strict=True))
            done = []
            for cell in dict.fromkeys(int(owner[number]) for number in numbers):
                span = range(starts[cell], starts[cell + 1])
                if all(number in answers for number in span):
                    row, at = missing[cell]
                    done.append((row, at, judge(asked[at][0], [answers.pop(number) for number in span])))
            self.ledger.store.put(self.space, [(out[row], keys[at], cell) for row, at, cell in done])
            self.ledger.advance(len(done))
            for row, at, cell in done:
                stored[row][keys[at]] = cell

        flat = [request for _, at in missing for request in asked[at][1]]
        return Ask(flat, [out[missing[cell][0]] for cell in owner], arrived)


def _key(example: Example, requests: tuple[Request, ...]) -> str:
    """The example's id and what exactly is asked: a changed question is another cell."""
    return f"{example.id}#{hashlib.sha256(repr(requests).encode()).hexdigest()[:16]}"


def name_of(base: Base) -> str:
    """What the cells of a model are kept under: its contents, as far as they are known."""
    return base.model if base.revision is None else base.revision


def asked_of(store: Store, base: Base, task: str) -> set[str]:
    """The ids of the task's examples that have an answer of ``base``, as it is or with anything out or done to it."""
    name = name_of(base)
    found = store.examples(lambda space: "mode" in space and (space["model"], space["task"]) == (name, task))
    return {key.rpartition("#")[0] for key in found}


def _space(model: LanguageModel, question: Question) -> dict[str, Any]:
    """Everything a cell depends on besides its mask and its example."""
    return {
        "model": name_of(model.source.base),
        "config": settings_of(model.network),
        "units": model.architecture.layout,
        "tokenizer": model.tokenizer_digest,
        "chat": ASKED,
        "task": question.task.name,
        "scorer": digest(question.task),
        "mode": question.mode,
        "dtype": model.dtype,
        "device": model.device.type,
    }


def settings_of(network: Any) -> str:
    """The digest of what a network computes with besides its weights, and of where its answers end.

    Not of where its files lie, nor of the library that read them.
    """

    def kept(settings: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in settings.items() if key not in _ELSEWHERE}

    texts = [config.to_json_string(use_diff=False) for config in (network.config, network.generation_config)]
    return hashlib.sha256(
        json.dumps([json.loads(text, object_hook=kept) for text in texts], sort_keys=True).encode()
    ).hexdigest()
