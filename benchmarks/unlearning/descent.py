"""Unlearning by steps along a gradient: what all of its methods have in common.

    descent = gradient_difference.prepare(model, lessons, 1.0)
    with unlearned(model, descent, lessons, Pace(rate=1e-4, steps=40), seed=0):
        model.generate(["Insult me."])              # afterwards the network is as it was, bit for bit

A step sees a batch of answers to forget and one of answers to retain. The numbers that change are copies in float32,
written back after each step, as in ``editkit.models.training``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.unlearning.lessons import Lessons
from editkit.models.language_model import LanguageModel

BATCH = 8
"""Answers of either kind in a step, as in editkit's relearning."""
DECAY = 0.01
"""AdamW's, as there."""

Gradients = Mapping[str, torch.Tensor]
"""Of each parameter that changes: which way *up* the loss goes."""


@dataclass(frozen=True)
class Batch:
    """Places in ``lessons.forget`` and in ``lessons.retain``."""

    forget: tuple[int, ...]
    retain: tuple[int, ...]


@dataclass(frozen=True)
class Descent:
    """A method, made ready for one model and its lessons.

    Args:
        names: the parameters that change; no other does.
        gradients: of a batch, in the network as it is at that moment.
        adaptive: AdamW. Else steps of length ``rate`` times the weights' own length, straight down the gradient:
            where the method has taken directions out of it, AdamW's scales for each number would bring them back.
    """

    names: tuple[str, ...]
    gradients: Callable[[Batch], Gradients]
    adaptive: bool = True


Method = Callable[[LanguageModel, Lessons, float], Descent]
"""``prepare(model, lessons, own)``: ``own`` is the method's own weight, which its file explains."""


@dataclass(frozen=True)
class Pace:
    """How far, and how fast."""

    rate: float
    steps: int


@contextmanager
def unlearned(
    model: LanguageModel,
    descent: Descent,
    lessons: Lessons,
    pace: Pace,
    *,
    seed: int,
    watch: Callable[[int], bool] = lambda steps: False,
) -> Iterator[None]:
    """The model after so many steps while the block runs; then as it was, bit for bit.

    Args:
        watch: called after each step with the number of steps so far; True: no more. Fewer steps are the beginning of
            more.
    """
    parameters = {name: parameter for name, parameter in model.network.named_parameters() if name in descent.names}
    assert len(parameters) == len(descent.names), "every parameter that changes is the network's"
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    copies = {name: torch.nn.Parameter(values.to(torch.float32, copy=True)) for name, values in before.items()}
    step = _adaptive(copies, pace.rate) if descent.adaptive else _straight(copies, pace.rate)

    def write(values: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(values[name])

    try:
        batches = _batches(lessons, np.random.default_rng(seed))
        for steps, batch in zip(range(1, pace.steps + 1), batches, strict=False):
            step(descent.gradients(batch))
            write(copies)
            if watch(steps):
                break
        yield
    finally:
        write(before)


def gradients_of(network: torch.nn.Module, names: tuple[str, ...], loss: Callable[[], torch.Tensor]) -> Gradients:
    """The gradient of a loss for some parameters, in float32; no parameter keeps it."""
    found = dict(network.named_parameters())
    parameters = [found[name] for name in names]
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        with torch.enable_grad():
            each = torch.autograd.grad(loss(), parameters, allow_unused=True, materialize_grads=True)
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)
    return {name: gradient.float() for name, gradient in zip(names, each, strict=True)}


def cross_entropy(logprobs: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Nats per token of the answers."""
    return -(logprobs * real).sum() / real.sum()


def _adaptive(copies: Mapping[str, torch.nn.Parameter], rate: float) -> Callable[[Gradients], None]:
    optimizer = torch.optim.AdamW(list(copies.values()), lr=rate, weight_decay=DECAY)

    def step(gradients: Gradients) -> None:
        for name, copy in copies.items():
            copy.grad = gradients[name]
        optimizer.step()

    return step


def _straight(copies: Mapping[str, torch.nn.Parameter], rate: float) -> Callable[[Gradients], None]:
    length = _length([copy.detach() for copy in copies.values()])

    def step(gradients: Gradients) -> None:
        scale = rate * length / max(_length([gradients[name] for name in copies]), 1e-12)
        with torch.no_grad():
            for name, copy in copies.items():
                copy -= scale * gradients[name]

    return step


def _length(tensors: list[torch.Tensor]) -> float:
    return float(torch.stack([tensor.square().sum() for tensor in tensors]).sum().sqrt())


def _batches(lessons: Lessons, rng: np.random.Generator) -> Iterator[Batch]:
    """Without end; each answer once before any comes again."""
    forget, retain = _round(len(lessons.forget), rng), _round(len(lessons.retain), rng)
    while True:
        yield Batch(
            tuple(next(forget) for _ in range(min(BATCH, len(lessons.forget)))),
            tuple(next(retain) for _ in range(min(BATCH, len(lessons.retain)))),
        )


def _round(count: int, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from (int(number) for number in rng.permutation(count))
