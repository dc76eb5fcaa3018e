"""Representation misdirection: texts to forget are led to one random point inside the network, others stay put.

    L = mean |h - c u|^2 over tokens to forget + own * mean |h - h_base|^2 over tokens to retain

h is what block ``l`` gives out, u a random unit vector with entries from [0, 1) before it is scaled; only the blocks
l - 2, l - 1 and l change. Li et al. 2024, arXiv 2403.03218, section 4. The paper's: that; AdamW; l = 7 of 32; own
(their alpha) 1200 for Zephyr; c between 6.5 and 300, by model. Ours: l at the same share of the depth, but no lower
than 2; c five times the mean length of h on what is to be forgotten, so that it means the same in any model; texts are
questions with their right answers, where the paper has documents; other values of ``own``, rate, steps, batches of 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.unlearning.descent import BATCH, Batch, Descent, Gradients, gradients_of
from benchmarks.unlearning.lessons import Lessons
from editkit.errors import EditkitError
from editkit.models.encoding import Encoded
from editkit.models.language_model import LanguageModel

DEPTH = 7 / 32
AWAY = 5.0
"""c, in mean lengths of h."""
SEED = 0
"""Of u."""


def prepare(model: LanguageModel, lessons: Lessons, own: float) -> Descent:
    """The weights of three blocks. ``own``: how much staying put counts beside being led away."""
    blocks = model.blocks
    if blocks is None or len(blocks) < 3:
        raise EditkitError(f"{model!r}: three blocks that follow each other are needed, found none.")
    layer = layer_of(len(blocks))
    inside = {id(parameter) for block in blocks[layer - 2 : layer + 1] for parameter in block.parameters()}
    names = tuple(name for name, parameter in model.network.named_parameters() if id(parameter) in inside)
    block = blocks[layer]
    with torch.no_grad():
        base, away = _all(model, block, lessons.retain), _all(model, block, lessons.forget)
        lengths = torch.cat(away).norm(dim=-1)
        point = AWAY * lengths.mean() * direction(base[0].shape[-1]).to(lengths.device)

    def gradients(batch: Batch) -> Gradients:
        def whole() -> torch.Tensor:
            forget = torch.cat(_each(model, block, [lessons.forget[row] for row in batch.forget]))
            retain = torch.cat(_each(model, block, [lessons.retain[row] for row in batch.retain]))
            return loss(forget, retain, point=point, base=torch.cat([base[row] for row in batch.retain]), own=own)

        return gradients_of(model.network, names, whole)

    return Descent(names, gradients)


def loss(
    forget: torch.Tensor, retain: torch.Tensor, *, point: torch.Tensor, base: torch.Tensor, own: float
) -> torch.Tensor:
    """Of hidden states, float[tokens, width]; ``base``: those of the same tokens to retain before the first step."""
    return (forget - point).square().sum(-1).mean() + own * (retain - base).square().sum(-1).mean()


def layer_of(blocks: int) -> int:
    """The block whose output is led away: at 7/32 of the depth, with two below it."""
    return max(2, round(DEPTH * blocks))


def direction(width: int) -> torch.Tensor:
    """The unit vector u."""
    drawn = torch.rand(width, generator=torch.Generator().manual_seed(SEED))
    return drawn / drawn.norm()


class _Reached(Exception):
    """The block has given out what is wanted; nothing above it is computed."""


def _all(model: LanguageModel, block: torch.nn.Module, rows: Sequence[Encoded]) -> list[torch.Tensor]:
    starts = range(0, len(rows), BATCH)
    return [row for start in starts for row in _each(model, block, rows[start : start + BATCH])]


def _each(model: LanguageModel, block: torch.nn.Module, rows: Sequence[Encoded]) -> list[torch.Tensor]:
    """What the block gives out for each row's tokens, float[tokens, width]. Padding is on the right, out of sight."""
    texts = [context + answer for context, answer in rows]
    width = max(map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts], device=model.device)
    given: list[torch.Tensor] = []

    def reached(module: torch.nn.Module, args: Any, output: Any) -> None:
        given.append(output[0] if isinstance(output, tuple) else output)
        raise _Reached

    handle = block.register_forward_hook(reached)
    try:
        model.network(input_ids=ids, use_cache=False)
    except _Reached:
        pass
    finally:
        handle.remove()
    return [states[: len(text)].float() for states, text in zip(given[0], texts, strict=True)]
