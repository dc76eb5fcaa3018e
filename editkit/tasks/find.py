"""From the name in a recipe or on the command line to a task.

find("swear")                                               a built-in task
find("lm-eval:gsm8k")                                       any task of lm-evaluation-harness (the extra editkit[eval])
find({"file": "prompts.jsonl", "scorer": "contains", ...})  the user's own examples
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from editkit.errors import EditkitError
from editkit.task import Task
from editkit.tasks import TASKS

HARNESS = "lm-eval:"


def find(spec: str | Mapping[str, Any]) -> Task:
    """The task that ``spec`` names.

    Raises:
        EditkitError: there is no such task; the message names the nearest and lists what is built in.
    """
    if not isinstance(spec, str):
        from editkit.tasks.jsonl import from_mapping

        return from_mapping(spec)
    if spec in TASKS:
        return TASKS[spec]
    if spec.startswith(HARNESS):
        from editkit.tasks.harness import harness_task

        return harness_task(spec.removeprefix(HARNESS))
    close = difflib.get_close_matches(spec, list(TASKS), n=1, cutoff=0.5)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise EditkitError(
        f"There is no task {spec!r}{hint}. Built in: {', '.join(TASKS)}. "
        f"Tasks of lm-evaluation-harness are written {HARNESS}NAME."
    )
