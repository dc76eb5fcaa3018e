"""Switch off neurons of routed experts, whose weights lie in one tensor [experts, ., .] and see tokens of many rows.

The experts' module runs once more for each set of rows with the same neurons off, on these rows' tokens alone, while
the weights of those neurons are zero; then they are as they were. So a knockout is a zeroed weight by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

from editkit.checkpoints.architecture import Site
from editkit.errors import EditkitError
from editkit.models.token_rows import TokenRows


@dataclass(frozen=True)
class Off:
    """Neurons of one expert, int[n]: neuron ``index[i]`` is off in row ``rows[i]``; ``rows`` None: in every row."""

    site: Site
    rows: np.ndarray | None
    index: np.ndarray


Cut = Mapping[Site, np.ndarray]
"""Which neurons of which expert are off together."""


def holds(module: torch.nn.Module, site: Site) -> bool:
    """Whether a module has all experts' weights as the site says."""
    weight = getattr(module, site.weight, None)
    return isinstance(weight, torch.Tensor) and weight.ndim == 3 and weight.shape[0] > site.expert


def switch(module: torch.nn.Module, offs: Sequence[Off], tokens: TokenRows | None) -> RemovableHandle:
    """Hook the module of a layer's experts."""
    cuts = _by_rows(offs)

    def hook(module: torch.nn.Module, args: Any, kwargs: dict[str, Any], output: torch.Tensor) -> torch.Tensor:
        for rows, cut in cuts:
            if rows is None:
                with _zeroed(module, cut):
                    return module.forward(*args, **kwargs)
        edited = output.clone()
        for rows, cut in cuts:
            pick = torch.as_tensor(rows, device=output.device)
            given = [_rows_of(value, pick, tokens) for value in args]
            named = {name: _rows_of(value, pick, tokens) for name, value in kwargs.items()}
            with _zeroed(module, cut):
                again = module.forward(*given, **named)
            _split(edited, tokens)[:, pick] = _split(again, tokens, len(pick))
        return edited

    return module.register_forward_hook(hook, with_kwargs=True)


def _by_rows(offs: Sequence[Off]) -> list[tuple[np.ndarray | None, Cut]]:
    """The rows with the same neurons off, together."""
    if any(off.rows is None for off in offs):
        return [(None, {off.site: off.index for off in offs})]
    of_row: dict[int, dict[Site, np.ndarray]] = {}
    for off in offs:
        for row in np.unique(np.asarray(off.rows)):
            of_row.setdefault(int(row), {})[off.site] = off.index[off.rows == row]
    alike: dict[tuple[tuple[int, bytes], ...], list[int]] = {}
    for row, cut in sorted(of_row.items()):
        alike.setdefault(tuple((site.expert, index.tobytes()) for site, index in cut.items()), []).append(row)
    return [(np.array(rows), of_row[rows[0]]) for rows in alike.values()]


@contextmanager
def _zeroed(module: torch.nn.Module, cut: Cut) -> Iterator[None]:
    """The weights of some neurons are zero while the block runs."""
    kept: list[tuple[torch.Tensor, int, torch.Tensor, torch.Tensor]] = []
    with torch.no_grad():
        try:
            for site, index in cut.items():
                plane, axis = getattr(module, site.weight).detach()[site.expert], site.axis - len(site.shape) + 2
                which = torch.as_tensor(index, device=plane.device)
                kept.append((plane, axis, which, plane.index_select(axis, which)))
                plane.index_fill_(axis, which, 0)
            yield
        finally:
            for plane, axis, which, before in kept:
                plane.index_copy_(axis, which, before)


def _rows_of(value: Any, pick: torch.Tensor, tokens: TokenRows | None) -> Any:
    """What belongs to some rows; other values as they are."""
    if not isinstance(value, torch.Tensor) or not value.ndim:
        return value
    return _split(value, tokens)[:, pick].flatten(0, 2)


def _split(value: torch.Tensor, tokens: TokenRows | None, rows: int = 0) -> torch.Tensor:
    """[copies * rows * tokens, ...] -> [copies, rows, tokens, ...]: each row's tokens follow each other."""
    count = (rows or tokens.rows) * tokens.each if tokens else 0
    if not tokens or not count or len(value) % count:
        raise EditkitError(
            f"Experts were given {len(value)} tokens, which are not those of {rows or (tokens and tokens.rows)} rows: "
            "give one mask without a batch dimension for all rows."
        )
    return value.view(-1, rows or tokens.rows, tokens.each, *value.shape[1:])
