"""RepSelect: up the loss of what is to be forgotten, without the directions in which it is like everything else.

    G = U S V'  of each linear map's gradient;     the step goes along  U_rest S_rest V_rest'

without its ``own`` largest components. Sondej, Yang and Mahdi 2026, arXiv 2606.17168: "collapsing top principal
components of weight gradients before each update". The paper's: that, for each weight, before each update. Ours, as
only its abstract was at hand: the components are those of a batch's gradient, not centred; all linear maps but the
output's; the loss is gradient difference's of the answers to forget alone, with no term for those to retain; how many
components go; steps of a fixed length straight along what is left, since AdamW would bring back what was taken out.
"""

from __future__ import annotations

import torch

from benchmarks.unlearning.descent import Batch, Descent, Gradients, cross_entropy, gradients_of
from benchmarks.unlearning.lessons import Lessons
from editkit.audits.weights import linear
from editkit.models.language_model import LanguageModel


def prepare(model: LanguageModel, lessons: Lessons, own: float) -> Descent:
    """The weights of linear maps. ``own``: how many components are collapsed."""
    names = tuple(linear(model.network))

    def gradients(batch: Batch) -> Gradients:
        def ascent() -> torch.Tensor:
            logprobs, _, real = model.token_logprobs([lessons.forget[row] for row in batch.forget])
            return -cross_entropy(logprobs, real)

        whole = gradients_of(model.network, names, ascent)
        return {name: collapsed(gradient, int(own)) for name, gradient in whole.items()}

    return Descent(names, gradients, adaptive=False)


def collapsed(gradient: torch.Tensor, components: int) -> torch.Tensor:
    """The matrix without its ``components`` largest singular ones.

    They are found on the shorter side, where G G' has their squares: exact for those that are large, as these are.
    """
    if components <= 0:
        return gradient
    wide = gradient if gradient.shape[0] <= gradient.shape[1] else gradient.T
    left = torch.linalg.eigh(wide @ wide.T).eigenvectors[:, -components:]
    rest = wide - left @ (left.T @ wide)
    return rest if gradient.shape[0] <= gradient.shape[1] else rest.T
