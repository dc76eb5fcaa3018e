"""Weights rounded to 8 and to 4 bits, as they are to be served on small machines. Fine-tuned unlearning comes back so
(2410.16454: 21 % to 83 % at 4 bits); exact zeros stay zero.

8 bits: one scale a row. 4 bits: a scale and a zero for each 64 numbers of a row. The output matrix stays as it is.
Where torchao is installed, its own 8 and 4 bits too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import torch

from editkit.audits.subject import Subject
from editkit.audits.weights import Change, WeightAttack, linear, rows
from editkit.evidence.attacks import Attack
from editkit.models.language_model import LanguageModel
from editkit.models.training import Parts

GROUP = 64


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    return rows(subject, "rounding", attacks())


def attacks() -> list[WeightAttack]:
    """Those that can be made here."""
    own = [WeightAttack("8 bits", _to_8), WeightAttack("4 bits", _to_4)]
    if not find_spec("torchao"):
        return own
    return [*own, WeightAttack("8 bits by torchao", _by_torchao(8)), WeightAttack("4 bits by torchao", _by_torchao(4))]


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


def _by_torchao(bits: int) -> Callable[[LanguageModel, Parts], Change]:
    """Weights alone, symmetric: 8 bits with a scale a row, 4 bits with one for each 64 numbers, or fewer to fit."""

    def rounded(weight: torch.Tensor) -> torch.Tensor:
        ao = import_module("torchao.quantization")
        group = ao.PerGroup(math.gcd(weight.shape[1], GROUP))
        four = torch.int4  # pyright: ignore[reportAttributeAccessIssue]
        config = ao.Int8WeightOnlyConfig() if bits == 8 else ao.IntxWeightOnlyConfig(four, group)
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device=weight.device)
        layer.weight = torch.nn.Parameter(weight, requires_grad=False)
        ao.quantize_(layer, config)
        return layer.weight.dequantize()

    return lambda model, zero: _each(model, zero, rounded)


def _each(model: LanguageModel, zero: Parts, rounded: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    axes = linear(model.network)

    def change(name: str, weight: torch.Tensor) -> torch.Tensor | None:
        if name not in axes:
            return None
        whole = weight.float().masked_fill(zero[name], 0) if name in zero else weight.float()
        return rounded(whole) if axes[name] == 1 else rounded(whole.T).T

    return change
