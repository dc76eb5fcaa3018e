"""What the edit took out of the hidden states is added again: does one direction bring the capability back?

After a block, at every position, the mean difference between the base and the edited model where the answer begins is
added to the hidden states; a quarter, half and three quarters up (activation steering: 2308.10248, 2312.06681).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from editkit.audits.hidden_states import first_of, hidden_states
from editkit.audits.subject import Arm, Dose, Sample, Scores, Subject
from editkit.evidence.attacks import Attack
from editkit.measuring.answers import answers
from editkit.models.altered import altered
from editkit.models.shared_layers import blocks_of
from editkit.tasks.task import Example, Task

LESSONS = 60
"""Answers whose difference is taken."""


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target and block."""
    model = subject.edited.model
    blocks = blocks_of(model.network, model.architecture)
    if blocks is None:
        return
    layers = sorted({len(blocks) * quarter // 4 for quarter in (1, 2, 3)})
    for sample in subject.targets:
        rows = [model.encode(lesson.answer)[0] for lesson in sample.lessons[:LESSONS]]
        if not rows:
            continue
        base, edited = (hidden_states(arm, rows) for arm in (subject.base, subject.edited))
        for layer in layers:
            added = (base[layer] - edited[layer]).mean(0)
            yield _row(subject, sample, layer, added)


def _row(subject: Subject, sample: Sample, layer: int, added: torch.Tensor) -> Attack:
    own = _steered(subject.edited, layer, added, [(sample.task, sample.scored)])
    others = _steered(subject.edited, layer, added, [(other.task, other.scored) for other in subject.others])
    [beside] = _steered(subject.control, layer, added, [(sample.task, sample.scored)])
    dose = Dose(f"the difference added after layer {layer}")
    return subject.row("steering", dose, sample, Scores(own[0]), subject.beside(beside), others=subject.lost(others))


def _steered(
    arm: Arm, layer: int, added: torch.Tensor, asked: Sequence[tuple[Task, Sequence[Example]]]
) -> list[list[float]]:
    """Scores, task by task."""
    digest = hashlib.sha256(added.float().cpu().numpy().tobytes()).hexdigest()[:16]
    questions = [answers(task, examples) for task, examples in asked]
    return arm.under(f"steering, {digest} added after layer {layer}", _adding(arm, layer, added), questions)


@contextmanager
def _adding(arm: Arm, layer: int, added: torch.Tensor) -> Iterator[None]:
    blocks = blocks_of(arm.model.network, arm.model.architecture)
    assert blocks is not None

    def hook(module: torch.nn.Module, args: Any, output: Any) -> Any:
        states = first_of(output)
        moved = states + added.to(states)
        return (moved, *output[1:]) if isinstance(output, tuple) else moved

    handle = blocks[layer].register_forward_hook(hook)
    try:
        with altered(arm.model.network):
            yield
    finally:
        handle.remove()
