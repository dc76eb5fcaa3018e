"""From the name in a recipe or on the command line to a task.

find("swear")                                                      a built-in task
find("lm-eval:gsm8k")                                              any task of lm-evaluation-harness (editkit[eval])
find("pirate.yaml")                                                a file that holds one of the tables below
find({"prompts": "pirate.jsonl", "scorer": {"contains": ["ahoy"]}})  the user's own prompts
find({"lm_eval": "hellaswag", "metric": "acc"})                    a task of lm-eval with settings
find({"code": "humaneval"})                                        programs, run in a sandbox
find({"swear": "rude.txt"})                                        the built-in prompts, your own list of words
files("pirate.yaml")                                               [pirate.yaml, pirate.jsonl], to see them change
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from editkit.errors import EditkitError
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Task

HARNESS = "lm-eval:"


def find(
    spec: str | Mapping[str, Any],
    *,
    where: str = "task",
    folder: Path = Path("."),
    allow_code: bool = False,
    planning: bool = False,
) -> Task:
    """The task that ``spec`` names or describes.

    Args:
        where: the recipe, for messages.
        folder: where the recipe lies: its files are looked up there.
        allow_code: whether the user's Python scorers may run here, and code that the model writes in a sandbox.
        planning: whether the task is only described, never scored: then no code of the user's runs, allowed or not.

    Raises:
        EditkitError: there is no such task; the message names the nearest and lists what is built in.
    """
    if not isinstance(spec, str):
        return _described(spec, where, folder, allow_code, planning)
    if spec in TASKS:
        return TASKS[spec]
    if spec.startswith(HARNESS):
        return _described({"lm_eval": spec.removeprefix(HARNESS)}, where, folder, allow_code, planning)
    if Path(spec).suffix in {".yaml", ".yml"}:
        path = folder / spec
        return _described(_table(path), str(path), path.parent, allow_code, planning)
    close = difflib.get_close_matches(spec, list(TASKS), n=1, cutoff=0.5)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise EditkitError(
        f"There is no task {spec!r}{hint}. Built in: {', '.join(TASKS)}. "
        f"Tasks of lm-evaluation-harness are written {HARNESS}NAME; a task of your own is a .yaml file with prompts "
        "and a scorer (docs/evaluation.md)."
    )


def files(spec: str | Mapping[str, Any], folder: Path = Path(".")) -> list[Path]:
    """The files on this machine that a task is read from: its own, prompts, a list of words, the module of a scorer."""
    if not isinstance(spec, str):
        return _named(spec, folder)
    path = folder / spec
    if path.suffix not in {".yaml", ".yml"} or not os.path.isfile(path):
        return []
    with suppress(EditkitError):  # said by find
        return [path, *_named(_table(path), path.parent)]
    return [path]


def _named(value: Any, folder: Path) -> list[Path]:
    if isinstance(value, Mapping):
        return [path for child in value.values() for path in _named(child, folder)]
    if not isinstance(value, str):
        return []
    return [path for path in (folder / value, folder / f"{value.partition(':')[0]}.py") if os.path.isfile(path)]


def _described(table: Mapping[str, Any], where: str, folder: Path, allow_code: bool, planning: bool) -> Task:
    """The kind of task is told by its first key: whose prompts they are."""
    if "lm_eval" in table:
        from editkit.tasks import harness

        if planning and not isinstance(table["lm_eval"], str):
            raise EditkitError(
                f"{where}: an lm-eval task that is not part of lm-eval can run Python from its templates, and a plan "
                "runs none: its cost cannot be told. Leave this task out to plan the rest."
            )
        return harness.task(table, where=where, allow_python=allow_code)
    if "code" in table:
        from editkit.tasks import execution

        return execution.task(table, where=where, folder=folder, allow_code_execution=allow_code or planning)
    if "swear" in table:
        return _swear(table, where, folder)
    from editkit.tasks import jsonl

    return jsonl.task(table, where=where, folder=folder, allow_python=allow_code, planning=planning)


def _swear(table: Mapping[str, Any], where: str, folder: Path) -> Task:
    from editkit.tasks.builtin.swear import swear
    from editkit.tasks.scoring import word_list

    if unknown := sorted(set(table) - {"swear"}):
        raise EditkitError(
            f"{where}: unknown key {unknown[0]!r}; the task swear takes its list of words, nothing else."
        )
    words = word_list(table["swear"], f"{where}, swear", folder)
    if odd := [word for word in words if not (word.isascii() and word.isalpha())]:
        raise EditkitError(f"{where}: swear counts single words of the letters a to z; found {odd[0]!r:.60}.")
    return swear(words)


def _table(path: Path) -> Mapping[str, Any]:
    import yaml

    from editkit.tasks import strict_yaml

    try:
        value = strict_yaml.load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise EditkitError(f"The task {path} cannot be read: {' '.join(str(error).split())}.") from error
    if not isinstance(value, Mapping):
        raise EditkitError(f"{path}: expected a table with prompts and scorer, found {value!r:.60}.")
    return value
