"""How many tokens each row of the running batch has: an MLP may be given [rows * tokens, width].

A mixture of experts takes all rows' tokens in one list, row after row. To say whose a token is, the list's length must
be the number of rows times what the model was given.
"""

from __future__ import annotations

from typing import Any

import torch


class TokenRows:
    """``each``: the tokens that every one of ``rows`` rows has in the forward pass that runs now."""

    def __init__(self, model: torch.nn.Module, rows: int) -> None:
        self.rows, self.each = rows, 0
        self._handle = model.register_forward_pre_hook(self._note, with_kwargs=True)

    @property
    def count(self) -> int:
        return self.rows * self.each

    def close(self) -> None:
        self._handle.remove()

    def _note(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args)
        self.each = next((each.shape[1] for each in given if isinstance(each, torch.Tensor) and each.ndim > 1), 0)
