"""Scores of a model, or of a model and its base on the same examples; and both answers to one prompt.

trial = Trial((TASKS["swear"], TASKS["rhyme"]), Criteria())
compared(lambda: edited, lambda: base, trial, work=None) -> EvalReport
standings(model, trial, work) -> Standing("swear", n=150, chance=0.0, score=Interval(.99, .96, 1.0)), ...
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence.intervals import Interval, mean_interval
from editkit.evidence.report import EvalReport
from editkit.evidence.samples import labels
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.memory import free
from editkit.progress import Stages, silent
from editkit.removal.trial import Answers, Trial
from editkit.workspace import Work, work_for

Later = Callable[[], LanguageModel]
"""A model that is loaded when it is called for."""


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


def standings(model: LanguageModel, trial: Trial, work: Work, *, stages: Stages = silent) -> Standings:
    """Each task's score with its interval; tasks that the model's context has no room for are left out."""
    trial = _that_fits(model, trial)
    with opened(work.store) as store:
        sheets = trial.answers(Ledger(model, store, stages), title="Answers")
    return Standings(
        model.source.base.model,
        tuple(
            Standing(
                sheet.task.name,
                len(sheet.cells),
                sheet.task.chance,
                mean_interval([cell.value for cell in sheet.cells], clusters=labels(sheet.clusters)),
                float(np.mean([not cell.valid for cell in sheet.cells])),
            )
            for sheet in sheets
        ),
    )


def compared(model: Later, base: Later, trial: Trial, work: Path | None, *, stages: Stages = silent) -> EvalReport:
    """Paired rows and a verdict. The target is what was removed from the model, if it is an output of editkit.

    Args:
        model, base: called when their turn comes, and let go after it: one at a time has the memory.
    """
    live = base()
    trial = _that_fits(live, trial)
    with opened(work_for(live.source.base, "evaluate", trial.seed, work).store) as store:
        ledger = Ledger(live, store, stages)
        before = trial.answers(ledger, title="Answers, base")
        again = trial.again(ledger, before)
        del live, ledger
        free()
        live = model()
        after = trial.answers(Ledger(live, store, stages), title="Answers, edited")
    removal = _removal_of(live.source.directory)
    if removal is not None:
        roles = {row.task: row.role for row in removal.rows if row.role in ("target", "transfer")}
        trial = replace(trial, criteria=removal.criteria, roles=roles)
    return trial.report(Answers(before, after, again))


def _that_fits(model: LanguageModel, trial: Trial) -> Trial:
    """The trial without the tasks whose answers alone are longer than what the model reads; with a warning.

    Raises:
        EditkitError: none is left.
    """
    refused: dict[str, EditkitError] = {}
    for task in trial.tasks:
        try:
            for request in task.requests(task.examples()[0]):
                model.encode(request)
        except EditkitError as error:
            refused[task.name] = error
    if not refused:
        return trial
    if len(refused) == len(trial.tasks):
        raise next(iter(refused.values()))
    warnings.warn(f"Left out, as this model's context is too short for them: {', '.join(refused)}.", stacklevel=2)
    return replace(trial, tasks=tuple(task for task in trial.tasks if task.name not in refused))


def answers_to(model: Later, base: Later, prompt: str, *, max_new_tokens: int = 64) -> tuple[str, str]:
    """(the base's answer, the model's answer), greedy; one model at a time has the memory."""
    [first] = base().generate([prompt], max_new_tokens=max_new_tokens)
    free()
    [second] = model().generate([prompt], max_new_tokens=max_new_tokens)
    return first, second


def _removal_of(directory: Path) -> EvalReport | None:
    """What the removal itself measured: its criteria, and its targets by their names; None for any other model."""
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
