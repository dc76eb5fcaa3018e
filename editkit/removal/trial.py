"""One experiment: the same examples asked of the unedited model, of it once more, and of the edited one.

trial = trial_of(wanted, seed=0)
report = trial.report(trial.asked(ledger, units))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence import report, verdict
from editkit.evidence.report import EvalReport
from editkit.evidence.row import Role, Row, Sample, rows
from editkit.evidence.strong_heads import StrongHeads
from editkit.evidence.verdict import Criteria, RandomHeads
from editkit.measuring.answers import scores, task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import Cell
from editkit.removal.capability import Capability
from editkit.tasks.task import Example, Split, Task, divides_clusters, examples_of, judged_by
from editkit.units import Unit


@dataclass(frozen=True)
class Sheet:
    """One task's examples, and the cells one model filled in for them."""

    task: Task
    examples: tuple[Example, ...]
    cells: tuple[Cell, ...]

    @property
    def clusters(self) -> list[str]:
        return [example.cluster for example in self.examples]

    @property
    def mean(self) -> float:
        return float(np.mean([cell.value for cell in self.cells]))


@dataclass(frozen=True)
class Answers:
    """The sheets of one trial, task by task: unedited, edited, and the unedited model's a second time."""

    before: tuple[Sheet, ...]
    after: tuple[Sheet, ...]
    again: tuple[Sheet, ...]


@dataclass(frozen=True)
class Trial:
    """What is asked, and how it is judged.

    Args:
        roles: by a task's name; a task that is not named is retained.
        limit: examples per task.
        only: by a task's name, the ids of the examples that may be asked; None: all of the split.
        hidden: tasks whose answers are not to be read by others.
        first: so many for a task that is not among the targets, until it is one of the ``whole``; None: all.
    """

    tasks: tuple[Task, ...]
    criteria: Criteria
    roles: Mapping[str, Role] = field(default_factory=dict)
    split: Split = "report"
    limit: int = 200
    seed: int = 0
    hidden: frozenset[str] = frozenset()
    first: int | None = None
    whole: frozenset[str] = frozenset()
    only: Mapping[str, frozenset[str]] | None = None

    @property
    def size(self) -> int:
        """How many examples are asked."""
        return sum(len(self.examples(task)) for task in self.tasks)

    def answers(
        self, ledger: Ledger, units: Iterable[Unit] = (), *, title: str = "Answers, unedited"
    ) -> tuple[Sheet, ...]:
        """Every task's answers with ``units`` knocked out.

        Unedited, hooked and shipped models get the same requests in the same batches, so that nothing but the edit
        differs.
        """
        with ledger.stage(title, self.size) as ledger:
            return tuple(self.sheet(ledger, task, units) for task in self.tasks)

    def asked(self, ledger: Ledger, units: Iterable[Unit]) -> Answers:
        """The answers of the unedited model, of the edited one, and of the unedited one again."""
        before, after = self.answers(ledger), self.answers(ledger, units, title="Answers, edited")
        return Answers(before, after, self.again(ledger, before))

    def decided(self, ledger: Ledger, units: Iterable[Unit], answers: Answers) -> tuple[Trial, Answers]:
        """The second look: what the first ``answers`` left undecided is asked all its examples."""
        rows = self.report(answers).rows
        names = frozenset(row.task for row in rows if verdict.undecided(row, self.criteria))
        trial = replace(self, whole=self.whole | names)
        return (self, answers) if trial.size == self.size else (trial, trial.asked(ledger, units))

    def sheet(self, ledger: Ledger, task: Task, units: Iterable[Unit] = ()) -> Sheet:
        """One task's answers with ``units`` knocked out."""
        examples = self.examples(task)
        if not examples:
            raise EditkitError(
                f"Task {task.name!r} has no example in the split {self.split!r}: it needs more examples."
            )
        [cells] = task_scores(ledger, task, examples, ledger.knockout(units))
        return Sheet(task, tuple(examples), tuple(cells))

    def again(self, ledger: Ledger, before: Sequence[Sheet]) -> tuple[Sheet, ...]:
        """A/A: the unedited model's answers a second time.

        Every second example is asked first, so that each has other neighbours in its batch: there kernels round
        differently, and a near tie may tip.
        """
        second = []
        with ledger.stage("Noise floor", self.size) as ledger:
            for sheet in before:
                cells: dict[str, Cell] = {}
                for half in (sheet.examples[::2], sheet.examples[1::2]):
                    [asked] = task_scores(ledger, sheet.task, half, ledger.mask(), run=2)
                    cells |= {example.id: cell for example, cell in zip(half, asked, strict=True)}
                second.append(replace(sheet, cells=tuple(cells[example.id] for example in sheet.examples)))
        return tuple(second)

    def rows(self, before: Sequence[Sheet], after: Sequence[Sheet]) -> list[Row]:
        """Paired rows in the order of the sheets. Deterministic in ``seed``."""
        samples = [
            Sample(
                first.task.name,
                self.roles.get(first.task.name, "retain"),
                self.split,
                first.task.chance,
                list(zip(scores(first.cells), scores(second.cells), strict=True)),
                first.clusters,
                divides_clusters(first.task),
                judged_by(first.task),
            )
            for first, second in zip(before, after, strict=True)
        ]
        return rows(samples, margin=self.criteria.damage_each, seed=self.seed)

    def least_lost(self, before: Sequence[Sheet], after: Sequence[Sheet]) -> tuple[Sheet, Sheet]:
        """Both sheets of the target that keeps the largest share of its score above chance."""

        def share(pair: tuple[Sheet, Sheet]) -> float:
            first, second = pair
            return (second.mean - first.task.chance) / max(1e-9, first.mean - first.task.chance)

        pairs = zip(before, after, strict=True)
        return max((pair for pair in pairs if self.roles.get(pair[0].task.name) == "target"), key=share)

    def report(
        self, answers: Answers, null: RandomHeads | None = None, strong: StrongHeads | None = None
    ) -> EvalReport:
        """Rows, noise floor and verdict: computed, never typed."""
        rows, noise = self.rows(answers.before, answers.after), self.rows(answers.before, answers.again)
        return report.report(rows, criteria=self.criteria, null=null, noise=noise, strong=strong)

    def examples(self, task: Task) -> list[Example]:
        few = self.first is not None and self.roles.get(task.name) != "target" and task.name not in self.whole
        limit = self.first if few else self.limit
        if self.only is None:
            return examples_of(task, self.split, limit=limit)
        there = examples_of(task, self.split)
        return [example for example in there if example.id in self.only[task.name]][:limit]


def trial_of(
    wanted: Capability, *, split: Split = "report", seed: int = 0, only: Mapping[str, frozenset[str]] | None = None
) -> Trial:
    """A capability's trial on one split, the targets first. Transfer and ``also`` are asked on ``report`` alone."""
    recipe = wanted.recipe
    transfer, also = (wanted.transfer, wanted.also) if split == "report" else ((), ())
    groups: list[tuple[Role, Sequence[Task]]] = [
        ("target", wanted.targets),
        ("retain", wanted.retain),
        ("transfer", transfer),
        ("also", also),
    ]
    roles: dict[str, Role] = {task.name: role for role, tasks in groups for task in tasks}
    tasks = tuple(task for _, tasks in groups for task in tasks)
    limit, first = getattr(recipe.examples, split), recipe.examples.first if split == "report" else None
    return Trial(tasks, recipe.criteria, roles, split, limit, seed, only=only, first=first)
