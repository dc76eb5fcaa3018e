"""Answers before and after: a few in the report, all of them in the work folder, and all with their scores in OUT."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict

from editkit.evidence.examples import Asked, answered, sha256
from editkit.evidence.exhibits import Transcript
from editkit.measuring.answers import scores
from editkit.removal.trial import Answers, Sheet
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Loglikelihood

SHOWN = 6
"""How many transcripts of the target are kept in the report, and one of each retained task."""


def transcripts(
    before: Sequence[Sheet], after: Sequence[Sheet], targets: int = 1, *, hidden: Collection[str] = ()
) -> tuple[Transcript, ...]:
    """A few prompts with both answers: several of the targets, which are the first sheets, one of any other task."""
    shown = []
    for number, (first, second) in enumerate(zip(before, after, strict=True)):
        if first.task.name in hidden or isinstance(first.task.requests(first.examples[0])[0], Loglikelihood):
            continue
        answered = list(zip(first.examples, first.cells, second.cells, strict=True))
        for example, old, new in answered[: max(2, SHOWN // targets) if number < targets else 1]:
            shown.append(Transcript(first.task.name, example.prompt, old.output.strip(), new.output.strip()))
    return tuple(shown)


def examples(answers: Answers, *, hidden: Collection[str] = ()) -> tuple[Asked, ...]:
    """Every example of the trial, as it travels with the model.

    Args:
        hidden: tasks whose answers are not to be read; those of tasks that are not built in never are.
    """
    rows = []
    for first, second, third in zip(answers.before, answers.after, answers.again, strict=True):
        task = first.task
        hide = task.name in hidden or TASKS.get(task.name) != task
        for example, *cells in zip(first.examples, first.cells, second.cells, third.cells, strict=True):
            old, new, _ = (answered(cell.output, hidden=hide) for cell in cells)
            before, after, again = scores(cells)
            told = (task.name, example.id, example.cluster, sha256(example.prompt), (old, new))
            rows.append(Asked(*told, before, after, again, hide))
    return tuple(rows)


def transcript_lines(before: Sequence[Sheet], after: Sequence[Sheet]) -> str:
    """Every answer of both models, one JSON object a line, for people who want to read them all."""
    lines = []
    for first, second in zip(before, after, strict=True):
        for example, old, new in zip(first.examples, first.cells, second.cells, strict=True):
            row: dict[str, object] = {"task": first.task.name, "example": example.id, "prompt": example.prompt}
            row |= {"before": asdict(old), "after": asdict(new)}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)
