"""Negative preference optimisation: an answer to forget is one that loses, with no winner beside it.

    L = -2 / beta * mean log sigmoid(-beta * log(p(answer) / p_base(answer))) + own * L(retain)

Zhang, Lin, Bai and Mei 2024, arXiv 2404.05868, equation 3; with the retain term it is their NPO+RT. p is of the whole
answer, p_base the model's before the first step. At beta -> 0 the gradient is that of gradient ascent (their
proposition 1). The paper's: beta = 0.1, own = 1, AdamW, all weights. Ours: other values of ``own``, rate, steps,
batches of 8.
"""

from __future__ import annotations

import torch

from benchmarks.unlearning.descent import BATCH, Batch, Descent, Gradients, cross_entropy, gradients_of
from benchmarks.unlearning.lessons import Lessons
from editkit.models.language_model import LanguageModel

BETA = 0.1


def prepare(model: LanguageModel, lessons: Lessons, own: float) -> Descent:
    """All weights. ``own``: how much retaining counts beside forgetting."""
    names = tuple(name for name, _ in model.network.named_parameters())
    base = _base(model, lessons)

    def gradients(batch: Batch) -> Gradients:
        def whole() -> torch.Tensor:
            forget, _, answered = model.token_logprobs([lessons.forget[row] for row in batch.forget])
            retain, _, kept = model.token_logprobs([lessons.retain[row] for row in batch.retain])
            ratio = (forget * answered).sum(-1) - base[list(batch.forget)]
            return loss(ratio, BETA) + own * cross_entropy(retain, kept)

        return gradients_of(model.network, names, whole)

    return Descent(names, gradients)


def loss(ratio: torch.Tensor, beta: float) -> torch.Tensor:
    """Of log(p / p_base), float[answers]."""
    return -2 / beta * torch.nn.functional.logsigmoid(-beta * ratio).mean()


def _base(model: LanguageModel, lessons: Lessons) -> torch.Tensor:
    """float[answers], log p_base of each answer to forget."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(lessons.forget), BATCH):
            logprobs, _, real = model.token_logprobs(lessons.forget[start : start + BATCH])
            parts.append((logprobs * real).sum(-1))
    return torch.cat(parts).clone()  # outside inference mode, so that a loss may use it
