"""Answers of a batch, written a few tokens at a time: rows that have ended leave the batch.

transformers' ``generate`` carries every row on until the last one ends, so each short answer costs as much as the
longest beside it. Here it is asked for 4, 8, 16, ... tokens at a time, and goes on with the rows that have not ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

FIRST = 4
"""Tokens before the first look at which rows have ended; then twice as many each time."""


def generated(
    network: Any,
    ids: torch.Tensor,
    attention: torch.Tensor,
    *,
    most: int,
    pad: int,
    past: Any,
    leave: bool,
    stopped: Callable[[torch.Tensor], torch.Tensor],
    rows: Callable[[Sequence[int], int], AbstractContextManager[dict[str, Any]]],
) -> list[list[int]]:
    """The tokens that follow each row, padding behind its end included; greedy.

    Args:
        ids, attention: int[rows, width], padded before or within each row.
        most: so many tokens at most.
        past: the cache of what all rows begin with, which is used up; None: none.
        leave: whether a row may leave the batch: the network's cache is keys and values row by row, and nothing else.
        stopped: int[rows, length] -> bool[rows], whether what was written holds a stop string.
        rows: entered around each run with the numbers of the rows that are there and how many tokens are written; what
            it gives is handed to ``generate``.
    """
    width, there, written = ids.shape[1], list(range(len(ids))), [list[int]() for _ in ids]
    size = FIRST if leave else most
    while there:
        done = ids.shape[1] - width
        with rows(there, done) as how:
            made = network.generate(
                input_ids=ids,
                attention_mask=attention,
                past_key_values=past,
                max_new_tokens=min(size, most - done),
                do_sample=False,
                num_beams=1,
                temperature=None,
                top_p=None,
                top_k=None,
                pad_token_id=pad,
                return_dict_in_generate=True,
                **how,
            )
        ids, new = made.sequences, made.sequences[:, ids.shape[1] :]
        for row, tokens in zip(there, new.tolist(), strict=True):
            written[row] += tokens
        if ids.shape[1] - width >= most:
            break
        going = ~(_ended(network, new) | stopped(ids))
        there = [row for row, goes in zip(there, going.tolist(), strict=True) if goes]
        kept, past, size = going.nonzero()[:, 0], made.past_key_values, 2 * size
        ids, attention = ids[kept], torch.cat([attention, torch.ones_like(new)], dim=1)[kept]
        for layer in past.layers if there else ():
            layer.batch_select_indices(kept.to(layer.device))
    return written


def _ended(network: Any, new: torch.Tensor) -> torch.Tensor:
    """bool[rows]: whether a token that ends an answer was written."""
    ends = network.generation_config.eos_token_id
    known = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    return torch.isin(new, torch.tensor(known, device=new.device, dtype=new.dtype)).any(dim=1)
