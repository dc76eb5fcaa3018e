"""Whether padding changes nothing: rows of other lengths may then share a batch.

    [pad pad 7 3 9]  or  [7 3 9 pad pad]   must give what   [7 3 9]   gives

Generation pads before a row, scoring behind it. Some models of transformers let the padding in: a state runs over it,
or positions are counted from it. ``harmless`` finds them out at load, and their rows share a batch only with rows of
the same length (``batches``).
"""

from __future__ import annotations

from typing import Any

import torch

from editkit.models.shared_layers import REFUSALS, alike


def token(tokenizer: Any) -> int:
    """The token that fills the gaps."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0


def harmless(network: Any, tokenizer: Any) -> bool:
    """Whether this model answers a padded row as it answers the row alone, in scoring and in generation."""
    weight, pad = network.get_input_embeddings().weight, token(tokenizer)
    words = torch.tensor([word for word in range(int(weight.shape[0])) if word != pad])
    seed = torch.Generator().manual_seed(0)
    short, long = (words[torch.randint(len(words), (1, size), generator=seed)].to(weight.device) for size in (5, 11))
    gap = torch.full((1, long.shape[1] - short.shape[1]), pad, device=weight.device)
    before, behind = (torch.cat([torch.cat(row, dim=1), long]) for row in ((gap, short), (short, gap)))
    real = torch.ones_like(before)
    real[0, : gap.shape[1]] = 0
    try:
        with torch.inference_mode():
            scored = [network(input_ids=ids, use_cache=False).logits[:1, : short.shape[1]] for ids in (short, behind)]
            spoken = [_spoken(network, *row, pad) for row in ((short, torch.ones_like(short)), (before, real))]
    except REFUSALS:
        return False  # this model holds the batch in a way that is not known here
    return alike(*scored) and alike(*spoken)


def _spoken(network: Any, ids: torch.Tensor, real: torch.Tensor, pad: int) -> torch.Tensor:
    """The logits of the first row's next two tokens: the second one reads the cache."""
    generated = network.generate(
        input_ids=ids,
        attention_mask=real,
        min_new_tokens=2,
        max_new_tokens=2,
        do_sample=False,
        num_beams=1,
        pad_token_id=pad,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return torch.stack([logits[0] for logits in generated.logits])
