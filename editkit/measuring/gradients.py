"""Integrated gradients over head gates: a cheap first guess at every head's effect, from a few backward passes.

All gates are scaled together from 0 to 1 and the gradient of the answer's mean log-probability is averaged on the
way. Gradients at the unedited model alone fail on saturated skills (a model that is sure of its answer has no
gradient); the path repairs that. A guess only: localizers confirm by exact knockouts.
Sundararajan, Taly, Yan 2017 (arXiv 1703.01365, eq. 1), applied to the head gates of Michel, Levy, Neubig 2019.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch

from editkit.errors import OutOfMemory, first_line
from editkit.localizers.adaptive import Prior
from editkit.measuring.likelihood import LikelihoodMeasure
from editkit.models.encoding import Encoded
from editkit.models.knockout import gated
from editkit.models.memory import Budget, within_memory

BACKWARD = 3.0
"""One forward and backward pass costs as much as this many forward passes (2 x forward for the backward pass)."""
BACKWARD_MEMORY = 4
"""How many times fewer tokens a batch starts with when its activations are kept for the backward pass."""


def gate_prior(
    measure: LikelihoodMeasure,
    *,
    steps: int = 4,
    limit: int = 32,
    advance: Callable[[int], None] = lambda passes: None,
) -> Prior | None:
    """A guess at every head's effect, ready to be asked for; None where the model has no gradients, or
    the columns of the measure are not its heads.

    Args:
        steps: points on the path from all gates shut to all open.
        limit: how many examples are used; the first ones, which are a fair sample.

    Returns:
        A function that gives (effects float[heads], in nats per token, negative = the head is needed, or None, with a
        warning, where a backward pass fails or does not fit; cost in evaluations of the full search set).
    """
    if getattr(measure.ledger.model.network, "is_quantized", False) or measure.columns is not None:
        return None

    def prior() -> tuple[np.ndarray | None, float]:
        model = measure.ledger.model
        rows = [model.encode(anchor.requests[anchor.pick]) for anchor in measure.anchors[:limit]]
        budget = Budget(model.budget.tokens // BACKWARD_MEMORY)
        total, pass_cost = np.zeros(measure.units), BACKWARD * len(rows) / measure.examples
        for step in range(steps):
            try:
                total += _gradient(measure, rows, (step + 0.5) / steps, budget)
            except (OutOfMemory, RuntimeError) as error:  # torch says the latter of an operation without a gradient
                reason = first_line(error)
                warnings.warn(f"No gradients, so the search goes on without them: {reason}", stacklevel=2)
                return None, pass_cost * (step + 1)
            advance(1)
        return -total / (steps * len(rows)), pass_cost * steps

    return prior


def _gradient(measure: LikelihoodMeasure, rows: Sequence[Encoded], scale: float, budget: Budget) -> np.ndarray:
    """Sum over rows of d(mean log-probability of the answer)/d(gate), all gates at ``scale``."""
    model = measure.ledger.model
    total, waiting = np.zeros(measure.units), list(rows)
    width = max(len(context) + len(answer) for context, answer in rows)

    def backward(part: Sequence[Encoded]) -> np.ndarray:
        gates = torch.full((len(part), measure.units), scale, requires_grad=True, device=model.device)
        with torch.enable_grad(), gated(model.network, model.architecture, gates):
            logprobs, _, real = model.token_logprobs(part)
            means = (logprobs * real).sum(-1) / real.sum(-1).clamp(min=1)
            [gradient] = torch.autograd.grad(means.sum(), [gates])
        return gradient.cpu().double().sum(0).numpy()  # some devices have no float64

    def one(row: Encoded) -> str:
        return f"the backward pass of a single request of {len(row[0])} tokens on {model.device}"

    while waiting:
        size = max(1, budget.tokens // width)
        for _, gradient in within_memory(waiting[:size], backward, budget, single=one):
            total += gradient
        waiting = waiting[size:]
    return total
