"""Integrated gradients over head gates: a cheap first guess at every head's effect, from a few backward passes.

All gates are scaled together from 0 to 1 and the gradient of the answer's mean log-probability is averaged on the
way. Gradients at the unedited model alone fail on saturated skills (a model that is sure of its answer has no
gradient); the path repairs that. A guess only: localizers confirm by exact knockouts.
Sundararajan, Taly, Yan 2017 (arXiv 1703.01365, eq. 1), applied to the head gates of Michel, Levy, Neubig 2019.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from editkit.knockout import gated
from editkit.measure import LikelihoodMeasure

BACKWARD = 3.0
"""One forward and backward pass costs as much as this many forward passes (2 x forward for the backward pass)."""


def gate_prior(
    measure: LikelihoodMeasure,
    *,
    steps: int = 4,
    limit: int = 32,
    advance: Callable[[int], None] = lambda passes: None,
) -> Callable[[], tuple[np.ndarray, float]] | None:
    """A guess at every head's effect, ready to be asked for; None where the model has no gradients.

    Args:
        steps: points on the path from all gates shut to all open.
        limit: how many examples are used; the first ones, which are a fair sample.

    Returns:
        A function that gives (effects float[heads], in nats per token, negative = the head is needed; cost in
        evaluations of the full search set).
    """
    if getattr(measure.model.network, "is_quantized", False):
        return None

    def prior() -> tuple[np.ndarray, float]:
        rows = [
            measure.model.encode(requests[pick])
            for _, requests, pick in measure.anchors[: min(limit, measure.examples)]
        ]
        total = np.zeros(measure.units)
        for step in range(steps):
            total += _gradient(measure, rows, (step + 0.5) / steps)
            advance(1)
        return -total / (steps * len(rows)), BACKWARD * steps * len(rows) / measure.examples

    return prior


def _gradient(measure: LikelihoodMeasure, rows: list[tuple[list[int], list[int]]], scale: float) -> np.ndarray:
    """Sum over rows of d(mean log-probability of the answer)/d(gate), all gates at ``scale``."""
    model = measure.model
    total = np.zeros(measure.units)
    width = max(len(context) + len(answer) for context, answer in rows)
    step = max(1, model.budget.tokens // (4 * width))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        gates = torch.full((len(part), measure.units), scale, requires_grad=True, device=model.device)
        with torch.enable_grad(), gated(model.network, model.architecture, gates):
            logprobs, _, real = model.token_logprobs(part)
            means = (logprobs * real).sum(-1) / real.sum(-1).clamp(min=1)
            [gradient] = torch.autograd.grad(means.sum(), [gates])
        total += gradient.double().sum(0).cpu().numpy()
    return total
