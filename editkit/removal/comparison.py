"""Scores of a model, or of a model and its base on the same examples; and both answers to one prompt.

compared(lambda: edited, lambda: base, tasks=[TASKS["swear"], TASKS["rhyme"]]) -> EvalReport
standings(model, tasks=[TASKS["swear"]]) -> Standing("swear", n=150, chance=0.0, score=Interval(.99, .96, 1.0)), ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence import report as evaluation
from editkit.evidence.intervals import Interval, mean_interval
from editkit.evidence.report import Criteria, EvalReport, Row
from editkit.evidence.samples import labels
from editkit.measuring.ledger import scores
from editkit.measuring.store import Store, opened
from editkit.models.language_model import LanguageModel
from editkit.models.memory import free
from editkit.progress import Stages, silent
from editkit.removal.trial import Sheet, again, answers
from editkit.tasks.task import Task, examples_of
from editkit.workspace import work_for


@dataclass(frozen=True)
class Standing:
    """One task's score of one model, on ``n`` examples of the ``report`` split."""

    task: str
    n: int
    chance: float
    score: Interval
    collapse: float


@dataclass(frozen=True)
class Standings:
    """What one model can do."""

    model: str
    rows: tuple[Standing, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def standings(
    model: LanguageModel,
    *,
    tasks: Sequence[Task],
    limit: int = 200,
    seed: int = 0,
    work: Path | None = None,
    stages: Stages = silent,
) -> Standings:
    """Each task's score with its interval."""
    rng = np.random.default_rng(seed)
    with opened(work_for(model.source.base, "evaluate", seed, work).store) as store:
        sheets = _sheets(model, tasks, limit, store, stages, "Answers")
    return Standings(
        model.source.base.model,
        tuple(
            Standing(
                sheet.task.name,
                len(sheet.cells),
                sheet.task.chance,
                mean_interval([cell.value for cell in sheet.cells], rng=rng, clusters=labels(sheet.clusters)),
                float(np.mean([not cell.valid for cell in sheet.cells])),
            )
            for sheet in sheets
        ),
    )


def compared(
    model: Callable[[], LanguageModel],
    base: Callable[[], LanguageModel],
    *,
    tasks: Sequence[Task],
    limit: int = 200,
    seed: int = 0,
    work: Path | None = None,
    stages: Stages = silent,
) -> EvalReport:
    """Paired rows and a verdict. The target is what was removed from the model, if it is an output of editkit.

    Args:
        model, base: called when their turn comes, and let go after it: one at a time has the memory.
    """
    rng, live = np.random.default_rng(seed), base()
    with opened(work_for(live.source.base, "evaluate", seed, work).store) as store:
        before = _sheets(live, tasks, limit, store, stages, "Answers, base")
        with stages("Noise floor", sum(len(sheet.cells) for sheet in before)) as advance:
            second = again(live, before, store, advance=advance)
        del live
        free()
        live = model()
        removal = _removal_of(live.source.directory)
        after = _sheets(live, tasks, limit, store, stages, "Answers, edited")
    criteria = Criteria() if removal is None else removal.criteria
    targets = set() if removal is None else {row.task for row in removal.rows if row.role == "target"}

    def row(first: Sheet, second: Sheet) -> Row:
        return evaluation.row(
            first.task.name,
            "target" if first.task.name in targets else "retain",
            split="report",
            chance=first.task.chance,
            before=scores(first.cells),
            after=scores(second.cells),
            clusters=first.clusters,
            margin=criteria.damage_each,
            rng=rng,
        )

    noise = [row(*pair) for pair in zip(before, second, strict=True)]
    return evaluation.report([row(*pair) for pair in zip(before, after, strict=True)], criteria=criteria, noise=noise)


def answers_to(
    model: Callable[[], LanguageModel], base: Callable[[], LanguageModel], prompt: str, *, max_new_tokens: int = 64
) -> tuple[str, str]:
    """(the base's answer, the model's answer), greedy; one model at a time has the memory."""
    [first] = base().generate([prompt], max_new_tokens=max_new_tokens)
    free()
    [second] = model().generate([prompt], max_new_tokens=max_new_tokens)
    return first, second


def _sheets(
    model: LanguageModel, tasks: Sequence[Task], limit: int, store: Store, stages: Stages, title: str
) -> list[Sheet]:
    nothing = np.zeros(len(model.architecture.heads), dtype=bool)
    total = sum(len(examples_of(task, "report", limit=limit)) for task in tasks)
    with stages(title, total) as advance:
        return answers(model, tasks, nothing, store, split="report", limit=limit, advance=advance)


def _removal_of(directory: Path) -> EvalReport | None:
    """What the removal itself measured: its criteria, and its target by the task's name; None for any other model."""
    path = directory / "editkit" / "report.json"
    if not path.is_file():
        return None
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EditkitError(
            f"{path}: expected the report of what was removed, but it cannot be read: {error}. Restore the file, or "
            "run `editkit remove-capability` again."
        ) from error
    return EvalReport.from_json(text, where=str(path))
