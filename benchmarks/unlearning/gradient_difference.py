"""Gradient difference: up the loss of what is to be forgotten, down that of what is to be retained.

    L = -L(forget) + own * L(retain)

Liu, Liu and Stone 2022 (arXiv 2203.12817); in this form TOFU, arXiv 2401.06121, section 4. L is the nats per token of
the right answers. The paper's: own = 1, AdamW, all weights. Ours: other values of ``own``, rate, steps, batches of 8.
"""

from __future__ import annotations

import torch

from benchmarks.unlearning.descent import Batch, Descent, Gradients, cross_entropy, gradients_of
from benchmarks.unlearning.lessons import Lessons
from editkit.models.language_model import LanguageModel


def prepare(model: LanguageModel, lessons: Lessons, own: float) -> Descent:
    """All weights. ``own``: how much retaining counts beside forgetting."""
    names = tuple(name for name, _ in model.network.named_parameters())

    def gradients(batch: Batch) -> Gradients:
        def whole() -> torch.Tensor:
            forget, _, answered = model.token_logprobs([lessons.forget[row] for row in batch.forget])
            retain, _, kept = model.token_logprobs([lessons.retain[row] for row in batch.retain])
            return loss(cross_entropy(forget, answered), cross_entropy(retain, kept), own)

        return gradients_of(model.network, names, whole)

    return Descent(names, gradients)


def loss(forget: torch.Tensor, retain: torch.Tensor, own: float) -> torch.Tensor:
    """Of both in nats per token."""
    return own * retain - forget
