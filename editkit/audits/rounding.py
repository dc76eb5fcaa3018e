"""Weights rounded to 8 and to 4 bits, as they are to be served on small machines. Fine-tuned unlearning comes back so
(2410.16454: 21 % to 83 % at 4 bits); exact zeros stay zero.

8 bits: one scale a row. 4 bits: a scale and a zero for each 64 numbers of a row. The output matrix stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from editkit.audits.subject import Subject
from editkit.audits.weights import Change, WeightAttack, linear, rows
from editkit.evidence.attacks import Attack
from editkit.models.language_model import LanguageModel
from editkit.models.training import Parts

GROUP = 64


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    return rows(subject, "rounding", [WeightAttack("8 bits", _to_8), WeightAttack("4 bits", _to_4)])


def _to_8(model: LanguageModel, zero: Parts) -> Change:
    def rounded(weight: torch.Tensor) -> torch.Tensor:
        scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        return (weight / scale).round() * scale

    return _each(model, zero, rounded)


def _to_4(model: LanguageModel, zero: Parts) -> Change:
    def rounded(weight: torch.Tensor) -> torch.Tensor:
        width = weight.shape[1]
        groups = torch.nn.functional.pad(weight, (0, -width % GROUP)).unflatten(1, (-1, GROUP))
        low, high = (edge.unsqueeze(-1) for edge in (groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)))
        scale = (high - low).clamp(min=1e-12) / 15
        origin = (low / scale).round()  # a whole number, so that zeros stay zero
        whole = ((groups / scale).round() - origin).clamp(0, 15)
        return ((whole + origin) * scale).flatten(1)[:, :width]

    return _each(model, zero, rounded)


def _each(model: LanguageModel, zero: Parts, rounded: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    axes = linear(model.network)

    def change(name: str, weight: torch.Tensor) -> torch.Tensor | None:
        if name not in axes:
            return None
        whole = weight.float().masked_fill(zero[name], 0) if name in zero else weight.float()
        return rounded(whole) if axes[name] == 1 else rounded(whole.T).T

    return change
