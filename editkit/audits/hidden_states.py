"""What a model holds where its answer begins: the hidden states after each block at a prompt's last token."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from editkit.audits.subject import Arm
from editkit.errors import EditkitError
from editkit.models import padding
from editkit.models.knockout import knocked_out
from editkit.models.shared_layers import blocks_of, keeping

ROWS = 8


def hidden_states(arm: Arm, contexts: Sequence[Sequence[int]]) -> torch.Tensor:
    """float32[blocks, contexts, width], on the CPU.

    Raises:
        EditkitError: a model whose blocks are in no one list.
    """
    model = arm.model
    blocks = blocks_of(model.network, model.architecture)
    if blocks is None:
        raise EditkitError(f"{model.source.base.model}: its blocks are in no one list, so nothing can be read there.")
    pad, parts = padding.token(model.tokenizer), list[torch.Tensor]()
    seen: list[torch.Tensor] = []
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        stack.enter_context(knocked_out(model.network, model.architecture, arm.out))
        for block in blocks:
            handle = block.register_forward_hook(lambda module, args, output: seen.append(first_of(output)))
            stack.callback(handle.remove)
        for start in range(0, len(contexts), ROWS):
            rows = contexts[start : start + ROWS]
            width = max(map(len, rows))
            ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], device=model.device)
            seen.clear()
            model.network(input_ids=ids, use_cache=False, **keeping(model.network, 1))
            last = torch.tensor([len(row) - 1 for row in rows])
            parts.append(torch.stack([each.float().cpu()[torch.arange(len(rows)), last] for each in seen]))
    return torch.cat(parts, dim=1)


def first_of(output: Any) -> torch.Tensor:
    """The hidden states among what a block returns."""
    return output[0] if isinstance(output, tuple) else output
