"""Training as an attack: one run, asked at several steps on the way. What was asked once is not trained again.

outcomes([Run(subject.edited, Course(answers, rate=2e-4), {5: [question], 25: [question, other]}, "Relearning")])
[{5: [cells], 25: [cells, cells]}]

Runs depend on nothing but their course: copies of the model do several at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from editkit.audits.subject import Arm
from editkit.audits.weights import changed, linear, slices
from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.measuring.ledger import Ledger, Question
from editkit.measuring.store import Cell
from editkit.models.adapter import adapted
from editkit.models.encoding import Encoded
from editkit.models.knockout import knocked_out
from editkit.models.language_model import Ask, LanguageModel
from editkit.models.pool import Arrived, Asked
from editkit.models.training import Parts, Training, all_weights, trained
from editkit.progress import Advance
from editkit.tasks.task import Loglikelihood, Output, Request

Trained = Literal["weights", "weights and slices", "adapter"] | tuple[int, ...]
"""What an attacker trains: all weights, the zeroed slices held at zero; the slices too; an adapter beside the rest; the
vectors of some tokens."""
PER_TOKEN, PER_STEP = 3, 32
"""A token that is trained on takes as long as so many that are read, and each update of the weights as so many more."""


@dataclass(frozen=True)
class Course:
    """Training on these answers."""

    answers: tuple[Loglikelihood, ...]
    rate: float
    seed: int = 0
    trained: Trained = "weights"


@dataclass(frozen=True)
class Run:
    """A course in an arm, and what is asked after how many steps.

    Args:
        title: for who waits.
    """

    arm: Arm
    course: Course
    asked: Mapping[int, Sequence[Question]]
    title: str

    @property
    def out(self) -> Knockout:
        return NOTHING if self.course.trained == "weights and slices" else self.arm.out

    def ledger(self, steps: int) -> Ledger:
        """Of the model after so many steps."""
        return replace(self.arm.ledger, attack=_name(self.arm, self.course, steps))

    def cells(self) -> dict[int, list[list[Cell]]]:
        """Steps -> question by question, example by example; measured, where the store lacks them."""
        return {
            steps: [self.ledger(steps).cells(question, [self.out])[0] for question in questions]
            for steps, questions in self.asked.items()
        }

    def missing(self) -> list[tuple[int, Ask]]:
        """What the store lacks, and after how many steps it is asked."""
        return [
            (steps, ask)
            for steps, questions in self.asked.items()
            for question in questions
            for ask in self.ledger(steps).asks(question, [self.out])
        ]


@dataclass(frozen=True)
class Taught:
    """A run as a piece of work: a copy of the model does it as the model itself does.

    Args:
        rows: the answers, encoded.
        zeroed: what is out of the arm: slices that the attacker holds at zero, or trains from there.
        out: of these, what is held.
        asked: after how many steps, and what.
        reading: tokens of all that is asked.
        budget: how many tokens are answered at once: it must not depend on who does it, as rounding does.
    """

    course: Course
    rows: tuple[Encoded, ...]
    zeroed: Knockout
    out: Knockout
    asked: tuple[tuple[int, tuple[Request, ...]], ...]
    reading: int
    budget: int

    @property
    def steps(self) -> int:
        return max(steps for steps, _ in self.asked)

    @property
    def tokens(self) -> int:
        training, longest = Training(), max(len(context) + len(answer) for context, answer in self.rows)
        return self.steps * (PER_TOKEN * training.batch * longest + PER_STEP) + self.reading

    def run(
        self,
        model: LanguageModel,
        advance: Advance = lambda count: None,
        arrived: Callable[[int, list[Output]], None] = lambda at, outputs: None,
    ) -> list[list[Output]]:
        """The outputs in the order of ``asked``; ``arrived`` hears of each at once, with its place there."""
        answered: dict[int, list[Output]] = {}
        alone = replace(model, pool=None, budget=replace(model.budget, tokens=self.budget))

        def watch(steps: int) -> None:
            advance(1)
            for at, (when, requests) in enumerate(self.asked):
                if when == steps:
                    answered[at] = alone.answer(requests, [self.out] * len(requests))
                    arrived(at, answered[at])

        training, rng = Training(self.steps, self.course.rate), np.random.default_rng(self.course.seed)
        with (
            knocked_out(model.network, model.architecture, self.out),
            _open(model, self.course, self.zeroed) as parts,
            trained(model, parts, self.rows, training, rng, watch=watch),
        ):
            pass
        return [answered[at] for at in range(len(self.asked))]

    def singles(self) -> list[Taught]:
        return [self]

    def told(self) -> str:
        return f"{self.steps} steps of training at {self.course.rate:g} on {len(self.rows)} answers"


def outcomes(runs: Sequence[Run]) -> list[dict[int, list[list[Cell]]]]:
    """For each run, after so many steps, the cells of each question. Copies of a model do its runs at once."""
    shared: dict[int, list[tuple[Run, list[Ask], Taught]]] = {}
    for run in runs:
        asked, model = run.missing(), run.arm.model
        if not asked:
            continue
        piece, asks = _piece(run, asked), [ask for _, ask in asked]
        if model.helped is not None:
            shared.setdefault(id(model.helped), []).append((run, asks, piece))
            continue
        with run.arm.ledger.stages(run.title, piece.steps) as advance:
            piece.run(model, advance, lambda at, outputs, asks=asks: _arrived(asks[at], outputs))
    for work in shared.values():
        first, pool = work[0][0], work[0][0].arm.model.pool
        assert pool is not None
        title = first.title if len(work) == 1 else f"{first.title}, and {len(work) - 1} more"
        with first.arm.ledger.stages(title, sum(piece.steps for _, _, piece in work)) as advance:
            pool.run((piece, _all_arrived(asks, piece.steps, advance)) for _, asks, piece in work)
    return [run.cells() for run in runs]


def _piece(run: Run, asked: Sequence[tuple[int, Ask]]) -> Taught:
    model, pool = run.arm.model, run.arm.model.helped
    rows = tuple(model.encode(answer) for answer in run.course.answers)
    requests = [(steps, tuple(ask.requests)) for steps, ask in asked]
    reading = sum(Asked(each, tuple(map(model.encode, each)), None).tokens for _, each in requests)
    budget = model.budget.tokens if pool is None else pool.tokens
    return Taught(run.course, rows, run.arm.out, run.out, tuple(requests), reading, budget)


def _arrived(ask: Ask, outputs: list[Output]) -> None:
    ask.arrived(list(range(len(outputs))), outputs)


def _all_arrived(asks: Sequence[Ask], steps: int, advance: Advance) -> Arrived:
    def arrived(results: list[list[Output]]) -> None:
        for ask, outputs in zip(asks, results, strict=True):
            _arrived(ask, outputs)
        advance(steps)

    return arrived


@contextmanager
def _open(model: LanguageModel, course: Course, zeroed: Knockout) -> Iterator[Parts]:
    """What is trained, while the block runs."""
    network, own = model.network, slices(model, zeroed)
    if isinstance(course.trained, tuple):
        yield _vectors(network, course.trained)
    elif course.trained == "weights and slices":
        with changed(network, lambda name, weight: weight.masked_fill(own[name], 0) if name in own else None):
            yield all_weights(network)
    elif course.trained == "adapter":
        beside = [name.removesuffix(".weight") for name in linear(network) if name not in own]
        with adapted(network, beside, seed=course.seed) as parts:
            yield parts
    else:
        yield all_weights(network)


def _vectors(network: torch.nn.Module, tokens: Sequence[int]) -> Parts:
    """The rows of some tokens in the table of embeddings."""
    table = network.get_input_embeddings().weight  # type: ignore[operator]
    [name] = [name for name, parameter in network.named_parameters() if parameter is table]
    chosen = torch.zeros(table.shape, dtype=torch.bool, device=table.device)
    chosen[list(tokens)] = True
    return {name: chosen}


def _name(arm: Arm, course: Course, steps: int) -> str:
    """All that the weights depend on: the number of steps to come does not change those that were made."""
    answers = hashlib.sha256(repr(course.answers).encode()).hexdigest()
    what = "" if course.trained == "weights" else f", of {course.trained}"
    return f"{steps} steps at {course.rate} on {answers}, seed {course.seed}, without {arm.out.key.hex()}{what}"
