"""Where generated text ends: a row is done once what it wrote holds a stop string.

transformers' own criterion reads the whole vocabulary anew for each batch: half a second for 49,152 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Stopped:
    """A criterion for ``generate``: bool[rows].

    Args:
        start: position of the first token that was written.
    """

    tokenizer: Any
    stop: tuple[str, ...]
    start: int

    def __call__(self, input_ids: torch.Tensor, scores: Any = None, **rest: Any) -> torch.Tensor:
        texts = self.tokenizer.batch_decode(input_ids[:, self.start :], skip_special_tokens=True)
        return torch.tensor([any(word in text for word in self.stop) for text in texts], device=input_ids.device)
