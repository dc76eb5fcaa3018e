"""Rows of one batch share what all their texts begin with: it runs once per mask, its keys and values serve every row.

    50 questions behind the same 900 tokens of worked examples, 2 masks: the 900 tokens run twice, not 100 times

Few-shot prompts and long instructions begin alike. Models whose cache is more than keys and values of all positions
(recurrent states, sliding windows), or that count positions otherwise, are found out by ``reusable`` and left
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from editkit.models.shared_layers import REFUSALS, alike, keeping


@dataclass(frozen=True)
class Prefix:
    """The first ``length`` tokens of every row, run: ``cache`` has one row per distinct mask, or one for all of them.

    ``which`` (int[rows]): each row's row of the cache.
    """

    length: int
    cache: Any
    which: torch.Tensor

    def served(self) -> Cache:
        """For one forward pass: each layer hands out its keys and values as they are asked for, and keeps no others."""
        return Cache(layers=[_Served(layer, self.which) for layer in self.cache.layers])

    def grown(self) -> Cache:
        """For generation, which goes on growing it: one row for every row of the batch."""
        for layer in self.cache.layers:
            layer.batch_select_indices(self.which.to(layer.device))
        return self.cache


class _Served(DynamicLayer):
    """One layer's prefix in front of whatever rows arrive: the batch may be wider in upper layers."""

    def __init__(self, layer: Any, which: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = layer.keys, layer.values, True
        self.dtype, self.device = layer.dtype, layer.device
        self._which = which.to(layer.device)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._before(self.keys, key_states), self._before(self.values, value_states)

    def _before(self, kept: Any, new: torch.Tensor) -> torch.Tensor:
        rows = kept.expand(len(new), *kept.shape[1:]) if len(kept) == 1 else kept.index_select(0, self._which)
        return torch.cat([rows, new], dim=-2)


def run(network: Any, ids: torch.Tensor, which: torch.Tensor) -> Prefix:
    """Run the shared beginning.

    Args:
        ids: int[1 or distinct masks, length]; a single row may widen on its way (``shared_layers.widened``).
        which: int[rows], the number of each row's mask.
    """
    cache = DynamicCache(config=network.config)
    network(input_ids=ids, past_key_values=cache, use_cache=True, **keeping(network, 1))
    return Prefix(ids.shape[1], cache, which)


def reusable(network: Any) -> bool:
    """Whether running the beginning apart provably changes nothing for this model, in scoring and in generation."""
    device = network.get_input_embeddings().weight.device
    vocabulary = int(network.get_input_embeddings().weight.shape[0])
    seed = torch.Generator().manual_seed(0)
    before = torch.randint(2, vocabulary, (2, 6), generator=seed).to(device)
    after = torch.randint(2, vocabulary, (3, 4), generator=seed).to(device)
    which = torch.tensor([1, 0, 1], device=device)
    gap = torch.zeros(3, 2, dtype=torch.long, device=device)
    padded = torch.cat([before[which], gap, after], dim=1)
    try:
        if any(type(layer) is not DynamicLayer for layer in DynamicCache(config=network.config).layers):
            return False
        with torch.inference_mode():
            whole = network(input_ids=torch.cat([before[which], after], dim=1), use_cache=False).logits[:, 6:]
            apart = network(input_ids=after, past_key_values=run(network, before, which).served()).logits
            spoken = network.generate(
                input_ids=padded,
                attention_mask=torch.cat([torch.ones_like(before[which]), gap, torch.ones_like(after)], dim=1),
                past_key_values=run(network, before, which).grown(),
                max_new_tokens=1,
                do_sample=False,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            ).logits[0]
    except REFUSALS:
        return False  # this model's cache carries the batch in a way that is not known here
    return alike(whole, apart) and alike(whole[:, -1], spoken.to(whole))
