"""The ``report`` examples that nobody has asked of a base yet: what ``--fresh`` keeps a run to.

    fresh = fresh_examples(store, source.base, wanted, seed=0)
    fresh.ids["capitals"]   ->   {"capital of France", ...}: all that this run's report may ask

An example is fresh while the store holds no answer to it: of no removal, evaluation, study or audit of this base,
whatever was out. What a run gets is written down before it begins, under everything that decides its edit. So the same
command asks the same examples again, stopped or finished, and its own answers make none of them old.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from editkit.checkpoints.knockout import NOTHING
from editkit.edit import Base
from editkit.errors import EditkitError
from editkit.measuring.ledger import asked_of, name_of
from editkit.measuring.store import Cell, Store
from editkit.printable import printable
from editkit.removal.capability import Capability
from editkit.tasks.task import Example, Task, digest, examples_of

LEAST = 20
"""So many examples of each task, or as many as are wanted or there at all. Where all of 20 lost the capability, at most
14.5 % is left with 95 % confidence; of 19, at most 15.2 %: more than the usual goal."""
UNDECIDING = {"summary", "transfer", "also", "hide", "accept", "audits"}
"""Keys of a recipe that no edit depends on."""


@dataclass(frozen=True)
class Fresh:
    """The examples of one run.

    Args:
        run: names the run by what decides its edit.
        ids: by the task's name.
    """

    run: str
    ids: Mapping[str, frozenset[str]]


def fresh_examples(store: Store, base: Base, wanted: Capability, *, seed: int = 0, dtype: str = "auto") -> Fresh:
    """What this run got before, else the first examples that were never asked; nothing is asked here.

    Args:
        dtype: the precision that was asked for: in another one, another edit may be found.

    Raises:
        EditkitError: too few are left, naming each task.
    """
    run, limit = _run(wanted, seed, dtype), wanted.recipe.examples.report
    kept: dict[str, frozenset[str]] = {}
    drawn: dict[int, list[Example]] = {}
    short = []
    for task in (*wanted.targets, *wanted.retain, *wanted.transfer, *wanted.also):
        space = store.space({"fresh": run, "model": name_of(base), "task": task.name})
        if known := store.get(space, NOTHING):
            kept[task.name] = frozenset(known)
            continue
        there, old = examples_of(task, "report"), asked_of(store, base, task.name)
        left = [example for example in there if example.id not in old]
        least = min(LEAST, limit, len(there))
        if len(left) < least:
            short.append(_short(task, len(there), len(left), least))
        drawn[space], kept[task.name] = left[:limit], frozenset(example.id for example in left[:limit])
    if short:
        raise EditkitError(
            f"--fresh: too few report examples are left that no earlier run of {printable(str(store.path))} has looked "
            f"at: {'; '.join(short)}. Add examples to the task's file, take another task, or leave --fresh out."
        )
    for space, examples in drawn.items():
        store.put(space, [(NOTHING, example.id, Cell(1.0)) for example in examples])
    return Fresh(run, kept)


def _short(task: Task, there: int, left: int, least: int) -> str:
    return f"{task.name} has {there}, {there - left} of which were looked at, and needs {least}"


def _run(wanted: Capability, seed: int, dtype: str) -> str:
    """A digest of what decides the edit: recipe, tasks with their examples and scorers, seed and precision."""
    recipe = wanted.recipe.model_dump(mode="json", exclude=UNDECIDING)
    tasks = [digest(task) for task in (*wanted.targets, *wanted.retain)]
    return hashlib.sha256(json.dumps([recipe, tasks, seed, dtype], sort_keys=True).encode()).hexdigest()
