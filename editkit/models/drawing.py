"""Answers drawn at temperature 1, by numbers: draw 3 of a prompt is the same text in any batch.

The likeliest token after Gumbel noise was added to the logits is a token drawn from them (Gumbel 1954). The noise comes
from the draw's number, the prompt and the position, not from a generator that all rows share.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Drawn:
    """A processor of logits for ``generate``: float[rows, vocabulary] at each step.

    Args:
        seeds: of each row; None: greedy.
        step: how many tokens of the answer are there; counted on.
    """

    seeds: tuple[tuple[int, int] | None, ...]
    step: int = 0

    @classmethod
    def of(cls, draws: Sequence[int], contexts: Sequence[Sequence[int]], step: int = 0) -> Drawn:
        prompts = [zlib.crc32(np.asarray(context, dtype="<i8").tobytes()) for context in contexts]
        return cls(tuple((draw, prompt) if draw else None for draw, prompt in zip(draws, prompts, strict=True)), step)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noise = np.zeros(scores.shape, dtype=np.float32)
        for row, seed in enumerate(self.seeds):
            if seed is not None:
                rng = np.random.default_rng((*seed, self.step))
                noise[row] = -np.log(rng.standard_exponential(scores.shape[1], dtype=np.float32) + 1e-30)
        self.step += 1
        return scores.float() + torch.from_numpy(noise).to(scores.device)
