"""What is attacked, and what it is compared with: the base, the edited model, a control; tasks; lessons.

subject = subject_of(ledger, edit.units, wanted, BUDGETS["quick"])
subject.edited.out, subject.targets[0].scored, subject.targets[0].lessons

No lesson shares a cluster with a scored example, in any format: what comes back was hidden, not taught (2410.08827).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

import numpy as np

from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.errors import EditkitError
from editkit.evidence.attacks import Attack, Control
from editkit.evidence.recovery import recovered
from editkit.evidence.samples import labels
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger, Question
from editkit.measuring.right_answers import right_answer
from editkit.models.language_model import LanguageModel
from editkit.removal.capability import Capability
from editkit.removal.random_sets import random_sets
from editkit.tasks.task import Example, Generate, Loglikelihood, Task, examples_of
from editkit.units import Unit


@dataclass(frozen=True)
class Budget:
    """How much is asked and trained.

    Args:
        scored, others: examples of each task of the capability, and of each other task.
        lessons: sizes of what relearning sees.
        steps: after which it is asked.
        rates: of which the attacker takes the best.
    """

    name: str = "quick"
    scored: int = 40
    others: int = 12
    lessons: tuple[int, ...] = (10, 60)
    steps: tuple[int, ...] = (1, 2, 5, 10, 25)
    rates: tuple[float, ...] = (3e-5, 2e-4, 1e-3)


BUDGETS = {
    "quick": Budget(),
    "full": Budget("full", 200, 60, (10, 100), (1, 2, 5, 10, 25, 50, 100), (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)),
}


@dataclass(frozen=True)
class Lesson:
    """A right answer to train on."""

    example: Example
    answer: Loglikelihood


@dataclass(frozen=True)
class Sample:
    """One task: the examples that are scored, and lessons from other clusters."""

    task: Task
    scored: tuple[Example, ...]
    lessons: tuple[Lesson, ...] = ()

    @cached_property
    def named(self) -> bool:
        """Whether each question has a right answer of its own, written down, that is generated."""
        generated = all(isinstance(self.task.requests(each)[0], Generate) for each in self.scored)
        return generated and all(right_answer(self.task, each) is not None for each in self.scored)


@dataclass(frozen=True)
class Arm:
    """A model under attack, and what is out of it.

    Args:
        lacks: whether it never had the capability.
    """

    name: str
    ledger: Ledger
    out: Knockout = NOTHING
    lacks: bool = False

    @property
    def model(self) -> LanguageModel:
        return self.ledger.model

    def scores(self, task: Task, examples: Sequence[Example]) -> list[float]:
        """What it scores, example by example."""
        [cells] = task_scores(self.ledger, task, examples, [self.out])
        return [cell.value for cell in cells]

    def under(
        self, attack: str, made: AbstractContextManager[object], asked: Sequence[Question], *, held: bool = True
    ) -> list[list[float]]:
        """Scores, question by question, while ``made`` is open; what the store holds of this attack needs it not.

        Args:
            attack: names all that the answers depend on.
            held: whether the arm's units stay out.
        """
        ledger, out = replace(self.ledger, attack=attack), [self.out if held else NOTHING]
        known = all(ledger.holds(question, out) for question in asked)
        with nullcontext() if known else made:
            return [[cell.value for cell in ledger.cells(question, out)[0]] for question in asked]


@dataclass(frozen=True)
class Dose:
    """How much of an attack: in words; optimizer steps and answers seen, where it trains."""

    text: str
    steps: int = 0
    lessons: int = 0


@dataclass(frozen=True)
class Scores:
    """Scores of the same examples, example by example.

    Args:
        base, edited: where they are not those of the models without an attack.
    """

    attacked: Sequence[float]
    base: Sequence[float] | None = None
    edited: Sequence[float] | None = None


@dataclass(frozen=True)
class Subject:
    """Everything an audit needs.

    Args:
        control: where an audit has none of its own: the model that never had the capability, with the same units out;
            else the base with as many random units out.
        formats: tasks that show the capability otherwise than the edit was searched in.
    """

    base: Arm
    edited: Arm
    control: Arm
    targets: tuple[Sample, ...]
    formats: tuple[Sample, ...]
    others: tuple[Sample, ...]
    budget: Budget = field(default_factory=Budget)
    seed: int = 0

    def row(
        self,
        audit: str,
        dose: Dose,
        sample: Sample,
        scores: Scores,
        control: Control | None,
        *,
        others: Mapping[str, float] | None = None,
    ) -> Attack:
        """The row of an attack, whose scores are of ``sample.scored``."""
        base = self.base.scores(sample.task, sample.scored) if scores.base is None else scores.base
        edited = self.edited.scores(sample.task, sample.scored) if scores.edited is None else scores.edited
        clusters = labels([example.cluster for example in sample.scored])
        share = None if control is None else recovered(base, edited, scores.attacked, clusters=clusters)
        return Attack(
            *(audit, dose.text, sample.task.name, len(base), len(set(clusters or range(len(base))))),
            *(mean(base), mean(edited), mean(scores.attacked), control, share),
            others=others or {},
            steps=dose.steps,
            lessons=dose.lessons,
        )

    def asked(self, audit: str, dose: str, sample: Sample, task: Task) -> Attack:
        """The row of an attack by prompt alone: edited model and control answer ``task`` in the sample's place."""
        scores, beside = (arm.scores(task, sample.scored) for arm in (self.edited, self.control))
        return self.row(audit, Dose(dose), sample, Scores(scores), self.beside(beside))

    def beside(self, scores: Sequence[float]) -> Control:
        """The default control, for audits that have no better one, and its mean score."""
        return Control(self.control.name, mean(scores), self.control.lacks)

    def lost(self, attacked: Iterable[Sequence[float]]) -> dict[str, float]:
        """The change of each other task, by its scores under an attack on the edited model."""
        return {
            other.task.name: mean(scores) - mean(self.edited.scores(other.task, other.scored))
            for other, scores in zip(self.others, attacked, strict=True)
        }

    @cached_property
    def benign(self) -> tuple[Loglikelihood, ...]:
        """Right answers of the other tasks, of ``locate``, one task after another."""
        each = [self.answers_of(other.task, most=self.budget.others) for other in self.others]
        return tuple(answer for turn in zip_longest(*each) for answer in turn if answer is not None)

    def answers_of(self, task: Task, *, most: int) -> list[Loglikelihood]:
        """Right answers of another task, of ``locate``."""
        return [lesson.answer for lesson in _lessons(self.base, task, examples_of(task, "locate"), most=most)]

    @property
    def kept(self) -> dict[str, float]:
        """Share of each target's score above chance that is there without an attack."""
        shares = {}
        for sample in self.targets:
            base, edited = (mean(arm.scores(sample.task, sample.scored)) for arm in (self.base, self.edited))
            above = base - sample.task.chance
            shares[sample.task.name] = max(0.0, edited - sample.task.chance) / above if above > 0 else 1.0
        return shares


def mean(scores: Sequence[float]) -> float:
    return float(np.mean(scores)) if len(scores) else 0.0


def subject_of(
    ledger: Ledger,
    units: Iterable[Unit],
    wanted: Capability,
    budget: Budget,
    *,
    never_had: Ledger | None = None,
    seed: int = 0,
) -> Subject:
    """The arms and the samples of an edit.

    Raises:
        EditkitError: a task without examples to score, or a model of another shape as the one that never had it.
    """
    base, edited = Arm("base", ledger), Arm("edited", ledger, *ledger.knockout(units))
    targets = _samples(base, (*wanted.targets, *wanted.transfer), budget)
    others = (Sample(task, tuple(examples_of(task, "report", limit=budget.others))) for task in wanted.retain)
    searched = len(wanted.targets)
    return Subject(
        *(base, edited, _control(edited, never_had, seed)),
        *(targets[:searched], targets[searched:]),
        tuple(other for other in others if other.scored),
        budget,
        seed,
    )


def _control(edited: Arm, never_had: Ledger | None, seed: int) -> Arm:
    model = edited.model
    if never_had is not None:
        if never_had.model.architecture.layout != model.architecture.layout:
            raise EditkitError(
                f"--never-had {never_had.model.source.base.model}: its heads and neurons are not those of "
                f"{model.source.base.model}, so the same units cannot be out. Train it in the same shape."
            )
        return Arm(f"never had it ({never_had.model.source.base.model})", never_had, edited.out, lacks=True)
    if not edited.out:
        raise EditkitError("The edit removes nothing, so there is nothing to attack.")
    drawn = random_sets(model.architecture, edited.out, 20, np.random.default_rng(seed))
    apart = min(drawn, key=lambda out: len(np.intersect1d(out.places, edited.out.places)), default=NOTHING)
    return Arm("base, random units out", edited.ledger, apart)


def _samples(base: Arm, tasks: Sequence[Task], budget: Budget) -> tuple[Sample, ...]:
    """Scored examples and lessons of all formats, in clusters apart."""
    scored = {task.name: examples_of(task, "report") for task in tasks}
    taught = {task.name: examples_of(task, "locate") for task in tasks}
    shared = {_cluster(each) for each in _all(scored)} & {_cluster(each) for each in _all(taught)}

    def kept(examples: Sequence[Example], side: int) -> list[Example]:
        return [each for each in examples if _cluster(each) not in shared or _side(_cluster(each)) == side]

    samples = []
    for task in tasks:
        chosen = kept(scored[task.name], 0)[: budget.scored]
        if not chosen:
            raise EditkitError(f"Task {task.name!r} has no example to score in clusters of its own: it needs more.")
        lessons = _lessons(base, task, kept(taught[task.name], 1), most=2 * max(budget.lessons))
        samples.append(Sample(task, tuple(chosen), tuple(lessons)))
    return tuple(samples)


def _lessons(base: Arm, task: Task, examples: Sequence[Example], *, most: int) -> Iterator[Lesson]:
    """Right answers as the task names them, else the base's own that the task finds right."""
    examples = examples[:most]
    own = [example for example in examples if right_answer(task, example) is None]
    answers = dict(zip([each.id for each in own], own_answers(base, task, own), strict=True))
    for example in examples:
        answer = right_answer(task, example) or answers.get(example.id)
        if answer is not None:
            yield Lesson(example, answer)


def own_answers(base: Arm, task: Task, examples: Sequence[Example]) -> list[Loglikelihood | None]:
    """What the unedited model generates, where the task finds it right."""
    if not examples:
        return []
    [cells] = task_scores(base.ledger, task, examples, [base.out])
    requests = [task.requests(example)[0] for example in examples]
    return [
        Loglikelihood(request.prompt, cell.output, request.chat)
        if isinstance(request, Generate) and cell.valid and cell.value >= 0.5 and cell.output.strip()
        else None
        for request, cell in zip(requests, cells, strict=True)
    ]


def permuted(sample: Sample, rng: np.random.Generator) -> Sample:
    """The same questions with each cluster's answers another's: a mapping of the same form that no model knows.

    Of lessons and of scored examples apart, as they share no cluster.
    """
    lessons = _rotated([_cluster(lesson.example) for lesson in sample.lessons], rng)
    scored = _rotated([_cluster(example) for example in sample.scored], rng)
    return replace(
        sample,
        lessons=tuple(
            replace(own, answer=replace(own.answer, continuation=sample.lessons[other].answer.continuation))
            for own, other in zip(sample.lessons, lessons, strict=True)
        ),
        scored=tuple(
            replace(own, id=f"{own.id}, answer of {sample.scored[other].id}", facts=sample.scored[other].facts)
            for own, other in zip(sample.scored, scored, strict=True)
        ),
    )


def _rotated(clusters: Sequence[str], rng: np.random.Generator) -> list[int]:
    """For each, the first of the cluster that follows its own in a random circle."""
    first = {cluster: at for at, cluster in reversed(list(enumerate(clusters)))}
    circle = [sorted(first)[at] for at in rng.permutation(len(first))]
    after = dict(zip(circle, [*circle[1:], circle[0]], strict=True))
    return [first[after[cluster]] for cluster in clusters]


def _all(groups: Mapping[str, Sequence[Example]]) -> Iterator[Example]:
    return (example for group in groups.values() for example in group)


def _cluster(example: Example) -> str:
    return example.cluster or f"alone: {example.id}"


def _side(cluster: str) -> int:
    return hashlib.sha256(f"side\0{cluster}".encode()).digest()[0] % 2
