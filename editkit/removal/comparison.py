"""Scores of a model, or of a model and its base on the same examples; and both answers to one prompt.

trial = Trial((TASKS["swear"], TASKS["rhyme"]), Criteria())
comparison(lambda: edited, lambda: base, trial, work=None).report -> EvalReport
standings(model, trial, work) -> Standing("swear", n=150, chance=0.0, score=Interval(.99, .96, 1.0)), ...
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

from editkit.edit import Base
from editkit.errors import EditkitError
from editkit.evidence.intervals import Interval
from editkit.evidence.provenance import Provenance
from editkit.evidence.report import EvalReport
from editkit.evidence.results import Results, TaskResults, reply
from editkit.measuring.answers import scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.memory import free
from editkit.progress import Stages, silent
from editkit.removal import recipe as recipes
from editkit.removal.trial import Answers, Sheet, Trial
from editkit.workspace import Work, work_for
from editkit.writing import manifest

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

    @classmethod
    def of(cls, results: Results) -> Standings:
        return cls(
            results.model,
            tuple(
                Standing(task.name, len(task.replies), task.chance, task.score, task.collapse) for task in results.tasks
            ),
        )


@dataclass(frozen=True)
class Comparison:
    """The answers of two models to one trial; ``base`` and ``model`` are what they are called."""

    trial: Trial
    answers: Answers
    base: Base
    model: Base

    @property
    def report(self) -> EvalReport:
        """Paired rows and a verdict."""
        return self.trial.report(self.answers)

    def results(self, date: str) -> tuple[Results, Results]:
        """What the base answered, and what the model did."""
        about = {"base": asdict(self.base), "model": asdict(self.model)}
        first = results(self.base, self.trial, self.answers.before, date, about | {"arm": "base"})
        return first, results(self.model, self.trial, self.answers.after, date, about | {"arm": "edited"})


def results(
    model: Base, trial: Trial, sheets: Sequence[Sheet], date: str, about: Mapping[str, object] = MappingProxyType({})
) -> Results:
    """One model's answers and scores; hashes in place of the answers to tasks that are ``hidden``."""
    return Results(
        model.model,
        date,
        trial.seed,
        manifest.versions(),
        tuple(
            TaskResults(
                sheet.task.name,
                trial.split,
                sheet.task.chance,
                tuple(
                    reply(example, cell.output, score, hidden=sheet.task.name in trial.hidden)
                    for example, cell, score in zip(sheet.examples, sheet.cells, scores(sheet.cells), strict=True)
                ),
                trial.roles.get(sheet.task.name),
            )
            for sheet in sheets
        ),
        about,
    )


def measured(model: LanguageModel, trial: Trial, work: Work, date: str = "", *, stages: Stages = silent) -> Results:
    """One model's answers and scores; tasks that its context has no room for are left out."""
    trial = _that_fits(model, trial)
    with opened(work.store) as store:
        sheets = trial.answers(Ledger(model, store, stages), title="Answers")
    return results(model.source.base, trial, sheets, date, {"model": asdict(model.source.base)})


def standings(model: LanguageModel, trial: Trial, work: Work, *, stages: Stages = silent) -> Standings:
    """Each task's score with its interval."""
    return Standings.of(measured(model, trial, work, stages=stages))


def compared(model: Later, base: Later, trial: Trial, work: Path | None, *, stages: Stages = silent) -> EvalReport:
    """Paired rows and a verdict."""
    return comparison(model, base, trial, work, stages=stages).report


def comparison(model: Later, base: Later, trial: Trial, work: Path | None, *, stages: Stages = silent) -> Comparison:
    """Both models' answers. The target is what was removed from the model, if it is an output of editkit.

    Args:
        model, base: called when their turn comes, and let go after it: one at a time has the memory.
    """
    live = base()
    trial = _that_fits(live, trial)
    with opened(work_for(live.source.base, "evaluate", trial.seed, work).store) as store:
        ledger = Ledger(live, store, stages)
        before, unedited = trial.answers(ledger, title="Answers, base"), live.source.base
        again = trial.again(ledger, before)
        del live, ledger
        free()
        live = model()
        after = trial.answers(Ledger(live, store, stages), title="Answers, edited")
    removal = _removal_of(live.source.directory)
    if removal is not None:
        roles = {row.task: row.role for row in removal.rows if row.role in ("target", "transfer")}
        trial = replace(trial, criteria=removal.criteria, roles=roles)
    return Comparison(trial, Answers(before, after, again), unedited, live.source.base)


def hidden_in(directory: Path) -> frozenset[str]:
    """The tasks that the recipe of an output hides; of any other model none.

    Raises:
        EditkitError: the provenance of the output cannot be read.
    """
    path = directory / "editkit" / "provenance.json"
    if not path.is_file():
        return frozenset()
    told = Provenance.from_json(_text(path), where=str(path))
    return frozenset(recipes.parse(told.recipe_text, where=f"{path}, recipe_text").hide)


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
    return EvalReport.from_json(_text(path), where=str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EditkitError(
            f"{path}: expected the evidence of what was removed, but it cannot be read: {error}. Restore the file, or "
            "run `editkit remove-capability` again."
        ) from error
