"""How requests become batches: like with like, longest first, as many rows as the budget of tokens allows. Pure.

24 likelihoods of 60 tokens, budget 500   ->   batches of 8 requests each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from editkit.checkpoints.knockout import Knockout
from editkit.models.encoding import Encoded
from editkit.tasks.task import Generate, Request

SHORTEST = 16
"""A shorter common beginning is not worth a forward pass of its own ..."""
LEAST_SAVED = 0.25
"""... nor is one that saves less than this share of the tokens."""


@dataclass(frozen=True)
class Batch:
    """Requests that run together: all ``Generate`` of one kind, or all likelihoods with the same first layer.

    ``prefix``: how many tokens all its rows begin with, to be run once per mask; 0 = not worth it.
    """

    rows: list[int]
    prefix: int = 0


def batches(
    requests: Sequence[Request],
    encoded: Sequence[Encoded],
    out: Sequence[Knockout] | None,
    layers: np.ndarray,
    *,
    prefixes: bool,
    padded: bool,
    budget: Callable[[], int],
) -> Iterator[Batch]:
    """Every row once, in batches: what runs out of memory does so at once.

    Args:
        out: what is knocked out in each row, or None.
        layers: int[rows], the layer of each row's first knockout: rows below it can be shared (``shared_layers``).
        prefixes: whether the model can run a common beginning apart (``shared_prefix.reusable``).
        padded: whether rows of other lengths may share a batch (``padding.harmless``).
        budget: how many tokens fit now; asked before every row, since it shrinks when memory runs out.
    """
    groups: dict[tuple[int, tuple[str, ...], int], list[int]] = {}
    for row, request in enumerate(requests):
        generated = isinstance(request, Generate)
        number, stop = (request.max_new_tokens, request.stop) if generated else (-int(layers[row]), ())
        context, continuation = encoded[row]
        width = 0 if padded else len(context) + max(0, len(continuation) - 1)  # the last token is not read
        groups.setdefault((number, stop, width), []).append(row)
    for (number, _, _), rows in sorted(groups.items()):
        yield from _cut(rows, encoded, out, new=max(0, number), prefixes=prefixes, budget=budget)


def _cut(
    rows: list[int],
    encoded: Sequence[Encoded],
    out: Sequence[Knockout] | None,
    *,
    new: int,
    prefixes: bool,
    budget: Callable[[], int],
) -> Iterator[Batch]:
    """Cut one group. Rows with a common beginning come mask by mask, others text by text (equal texts share layers)."""
    prefix, mask_of = (0, {}) if not prefixes else _prefix(rows, encoded, out)
    length = {row: len(encoded[row][0]) + len(encoded[row][1]) + new for row in rows}
    kept = 0 if new else prefix  # generation keeps every row's whole cache
    order = sorted(rows, key=lambda row: (mask_of.get(row, 0), -length[row], encoded[row]))
    batch: list[int] = []
    longest, of_masks = 0, set[int]()
    for row in order:
        longest = max(longest, length[row] - kept)
        of_masks.add(mask_of.get(row, 0))
        if batch and (len(batch) + 1) * longest + len(of_masks) * prefix > budget():
            yield Batch(batch, prefix)
            batch, longest, of_masks = [], length[row] - kept, {mask_of.get(row, 0)}
        batch.append(row)
    yield Batch(batch, prefix)


def _prefix(rows: list[int], encoded: Sequence[Encoded], out: Sequence[Knockout] | None) -> tuple[int, dict[int, int]]:
    """How many tokens to run once per mask, and the number of each row's mask; (0, {}) where it does not pay."""
    contexts = [encoded[row][0] for row in rows]
    common = shared_length(contexts)
    if common < SHORTEST:
        return 0, {}
    mask_of = distinct(out, rows)
    tokens = sum(len(encoded[row][0]) + len(encoded[row][1]) for row in rows)
    saved = (len(rows) - len(set(mask_of.values()))) * common
    return (common, mask_of) if saved >= LEAST_SAVED * tokens else (0, {})


def shared_length(contexts: Sequence[list[int]]) -> int:
    """How many tokens all contexts begin with, short of the last one of each: that one is asked what comes next."""
    first, last = min(contexts), max(contexts)
    most = min(map(len, contexts)) - 1
    return next((at for at in range(most) if first[at] != last[at]), max(0, most))


def distinct(out: Sequence[Knockout] | None, rows: Sequence[int]) -> dict[int, int]:
    """Row -> the number of what is out in it, equal knockouts having equal numbers, counted from 0 as they come."""
    if out is None:
        return dict.fromkeys(rows, 0)
    numbers: dict[Knockout, int] = {}
    return {row: numbers.setdefault(out[row], len(numbers)) for row in rows}
