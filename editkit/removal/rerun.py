"""Some of the published examples, asked again of the published weights.

rerun(model, capability, outcome, number=50, rng=rng)
Rerun(asked=50, answers=0, scores=0, allowed=2)     of 50, no answer and no score is another
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from editkit.errors import EditkitError, IntegrityError
from editkit.evidence.examples import Asked, answered, sha256
from editkit.evidence.outcome import Outcome
from editkit.evidence.recomputed import recomputed
from editkit.evidence.report import EvalReport
from editkit.evidence.verdict import undecided
from editkit.measuring.answers import scores, task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.printable import printable
from editkit.progress import Stages, silent
from editkit.removal.agreement import CERTAIN, at_most
from editkit.removal.capability import Capability
from editkit.removal.trial import Trial, trial_of
from editkit.tasks.task import Example, Loglikelihood, Task

CLOSE = 1e-3
"""Nats per token: in another batch a likelihood rounds otherwise, in the sixth digit and beyond."""


@dataclass(frozen=True)
class Rerun:
    """How many of ``asked`` examples were answered and scored otherwise than published.

    Args:
        noise: (flipped, all): scores of the unedited model that flipped when it was asked twice, of how many.
        allowed: the number of scores that noise alone may make differ.
        first: the first example that was scored otherwise, in words.
    """

    asked: int
    answers: int
    scores: int
    noise: tuple[int, int]
    allowed: int
    first: str = ""

    def describe(self) -> str:
        """One sentence for the terminal."""
        flipped, of = self.noise
        text = f"Of {self.asked} examples asked again, {self.scores} scores and {self.answers} answers differ"
        return f"{text}; asked twice, the unedited model differed in {flipped} of {of:,} scores. {self.first}".strip()


def rerun(
    model: LanguageModel,
    wanted: Capability,
    outcome: Outcome,
    *,
    number: int,
    rng: np.random.Generator,
    stages: Stages = silent,
) -> Rerun:
    """Ask ``number`` of the examples again.

    Args:
        model: the published weights.
        wanted: the tasks of the published recipe.
        rng: which examples; a publisher who knew them could measure those alone.

    Raises:
        EditkitError: no examples were published.
        IntegrityError: examples, clusters, chance levels or roles are not those of the tasks, or more scores differ
            than noise explains.
    """
    published = outcome.examples
    if not published:
        raise EditkitError("There is nothing to ask again: this was made before per-example evidence.")
    tasks = _same_tasks(wanted, published, outcome.report, fresh=outcome.provenance.fresh is not None)
    drawn = np.sort(rng.choice(len(published), size=min(number, len(published)), replace=False))
    sample = [published[at] for at in drawn.tolist()]
    answers, differing = 0, []
    with opened(None) as store, Ledger(model, store, stages).stage("Asked again", len(sample)) as ledger:
        for name, (task, known) in tasks.items():
            mine = [each for each in sample if each.task == name]
            [cells] = task_scores(ledger, task, [known[each.example] for each in mine], ledger.mask())
            for each, cell, score in zip(mine, cells, scores(cells), strict=True):
                chosen = isinstance(task.requests(known[each.example])[0], Loglikelihood)
                answers += not (_same_nats if chosen else _same_text)(each, cell.output)
                if score != each.after:
                    differing.append(
                        f"{each.task}, {each.example}: {each.after.value:g} published, {score.value:g} now."
                    )
    flipped = sum(each.again != each.before for each in published)
    result = Rerun(
        len(sample),
        answers,
        len(differing),
        (flipped, len(published)),
        _allowed(flipped, len(published), len(sample)),
        printable(differing[0]) if differing else "",
    )
    if result.scores > result.allowed:
        raise IntegrityError(
            f"The published weights do not answer as published. {result.describe()} Noise explains {result.allowed}. "
            "Another precision (--dtype) or processor rounds otherwise, and may tip more."
        )
    return result


def _same_text(each: Asked, output: str) -> bool:
    return answered(output, hidden=each.hidden) == each.answers[1]


def _same_nats(each: Asked, output: str) -> bool:
    """Whether the likelihoods of the choices are close; of hidden ones only the score can be compared."""
    try:
        published, now = ([float(word) for word in text.split()] for text in (each.answers[1], output))
    except ValueError:
        return each.hidden
    return len(published) == len(now) and all(
        abs(one - other) <= CLOSE for one, other in zip(published, now, strict=True)
    )


def _allowed(flipped: int, of: int, asked: int) -> int:
    """So many flips come by noise in all but one of a thousand samples, at the highest rate that was not excluded."""
    from scipy.stats import binom

    return int(binom.ppf(CERTAIN, asked, at_most(flipped, of)))


def _same_tasks(
    wanted: Capability, published: Sequence[Asked], report: EvalReport, *, fresh: bool
) -> dict[str, tuple[Task, dict[str, Example]]]:
    """The recipe's tasks with their examples by id.

    Args:
        fresh: which examples were left for the report only its store knows: any of the split, in their order.

    Raises:
        IntegrityError: what is published are other examples than the recipe's tasks draw, or rows say other of them.
    """
    names = {row.task for row in report.rows}
    ids = {name: frozenset(each.example for each in published if each.task == name) for name in names}
    trial = trial_of(wanted, only=ids if fresh else None)
    trial = replace(trial, whole=_left_open(trial, published, report))
    tasks = {task.name: task for task in trial.tasks}
    wrong = []
    drawn_of: dict[str, tuple[Task, dict[str, Example]]] = {}
    for row in report.rows:
        task = tasks.get(row.task)
        if task is None:
            wrong.append(f"{row.task}: no task of the recipe")
            continue
        if (row.role, row.chance) != (trial.roles[task.name], task.chance):
            wrong.append(f"{row.task}: expected the role {trial.roles[task.name]} and chance {task.chance:g}")
        drawn = trial.examples(task)
        drawn_of[row.task] = task, {example.id: example for example in drawn}
        expected = [(example.id, example.cluster, sha256(example.prompt)) for example in drawn]
        if expected != [(each.example, each.cluster, each.prompt) for each in published if each.task == row.task]:
            wrong.append(f"{row.task}: these are not the {len(drawn)} examples that the task draws for its report")
    if wrong:
        raise IntegrityError("What was asked is not what the recipe asks:\n  " + "\n  ".join(map(printable, wrong)))
    return drawn_of


def _left_open(trial: Trial, published: Sequence[Asked], report: EvalReport) -> frozenset[str]:
    """The tasks that the first batch of examples left open: these are asked the rest, and no others."""
    if trial.first is None:
        return frozenset()
    sheets: dict[str, list[Asked]] = {}
    for each in published:
        sheets.setdefault(each.task, []).append(each)
    batch = [
        each
        for name, sheet in sheets.items()
        for each in (sheet if trial.roles.get(name) == "target" else sheet[: trial.first])
    ]
    rows = recomputed(report, batch, seed=trial.seed).rows
    return frozenset(row.task for row in rows if undecided(row, report.criteria))
