"""Training as an attack: one run, asked at several steps on the way. What was asked once is not trained again.

outcomes(subject.edited, Course(answers, rate=2e-4), {5: [question], 25: [question, other]}, title="Relearning")
{5: [cells], 25: [cells, cells]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from editkit.audits.subject import Arm
from editkit.audits.weights import changed, linear, slices
from editkit.checkpoints.knockout import NOTHING
from editkit.measuring.ledger import Question
from editkit.measuring.store import Cell
from editkit.models.adapter import adapted
from editkit.models.knockout import knocked_out
from editkit.models.training import Parts, Training, all_weights, trained
from editkit.tasks.task import Loglikelihood

Trained = Literal["weights", "weights and slices", "adapter"] | tuple[int, ...]
"""What an attacker trains: all weights, the zeroed slices held at zero; the slices too; an adapter beside the rest; the
vectors of some tokens."""


@dataclass(frozen=True)
class Course:
    """Training on these answers."""

    answers: tuple[Loglikelihood, ...]
    rate: float
    seed: int = 0
    trained: Trained = "weights"


def outcomes(
    arm: Arm, course: Course, asked: Mapping[int, Sequence[Question]], *, title: str
) -> dict[int, list[list[Cell]]]:
    """The cells of each question after so many steps."""
    after = {steps: replace(arm.ledger, attack=_name(arm, course, steps)) for steps in asked}
    out = NOTHING if course.trained == "weights and slices" else arm.out

    def answered(steps: int) -> list[list[Cell]]:
        return [after[steps].cells(question, [out])[0] for question in asked[steps]]

    if all(after[steps].holds(question, [out]) for steps in asked for question in asked[steps]):
        return {steps: answered(steps) for steps in asked}
    cells: dict[int, list[list[Cell]]] = {}
    model, last = arm.model, max(asked)
    with arm.ledger.stages(title, last) as advance:

        def watch(steps: int) -> None:
            advance(1)
            if steps in asked:
                cells[steps] = answered(steps)

        rows = [model.encode(answer) for answer in course.answers]
        training, rng = Training(last, course.rate), np.random.default_rng(course.seed)
        with (
            knocked_out(model.network, model.architecture, out),
            _open(arm, course) as parts,
            trained(model, parts, rows, training, rng, watch=watch),
        ):
            pass
    return cells


@contextmanager
def _open(arm: Arm, course: Course) -> Iterator[Parts]:
    """What is trained, while the block runs."""
    network, own = arm.model.network, slices(arm.model, arm.out)
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
