"""How requests become batches: like with like, longest first, as many rows as the budget of tokens allows. Pure.

24 likelihoods of 60 tokens, budget 500   ->   batches of 8 places each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from editkit.checkpoints.knockout import Knockout
from editkit.models.encoding import Encoded
from editkit.tasks.task import Generate, Request

SHORTEST = 32
"""A shorter common beginning is not worth a forward pass of its own ..."""
LEAST_SAVED = 0.25
"""... nor is one that saves less than this share of the tokens."""


@dataclass(frozen=True)
class Batch:
    """Requests that run together: all ``Generate`` of one kind, or all likelihoods with the same first layer.

    ``prefix``: how many tokens all its rows begin with, to be run once per mask; 0 = not worth it.
    """

    places: list[int]
    prefix: int = 0


def batches(
    requests: Sequence[Request],
    rows: Sequence[Encoded],
    out: Sequence[Knockout] | None,
    layers: np.ndarray,
    *,
    prefixes: bool,
    padded: bool,
    budget: Callable[[], int],
) -> Iterator[Batch]:
    """Every place once, in batches: what runs out of memory does so at once.

    Args:
        out: what is knocked out in each row, or None.
        layers: int[rows], the layer of each row's first knockout: rows below it can be shared (``shared_layers``).
        prefixes: whether the model can run a common beginning apart (``shared_prefix.reusable``).
        padded: whether rows of other lengths may share a batch (``padding.harmless``).
        budget: how many tokens fit now; asked before every row, since it shrinks when memory runs out.
    """
    groups: dict[tuple[int, tuple[str, ...], int], list[int]] = {}
    for place, request in enumerate(requests):
        generated = isinstance(request, Generate)
        number, stop = (request.max_new_tokens, request.stop) if generated else (-int(layers[place]), ())
        context, continuation = rows[place]
        width = 0 if padded else len(context) + max(0, len(continuation) - 1)  # the last token is not read
        groups.setdefault((number, stop, width), []).append(place)
    for (number, _, _), places in sorted(groups.items()):
        yield from _cut(places, rows, out, new=max(0, number), prefixes=prefixes, budget=budget)


def _cut(
    places: list[int],
    rows: Sequence[Encoded],
    out: Sequence[Knockout] | None,
    *,
    new: int,
    prefixes: bool,
    budget: Callable[[], int],
) -> Iterator[Batch]:
    """Cut one group. Rows with a common beginning come mask by mask, others text by text (equal texts share layers)."""
    prefix, mask_of = (0, {}) if not prefixes else _prefix(places, rows, out)
    length = {place: len(rows[place][0]) + len(rows[place][1]) + new for place in places}
    kept = 0 if new else prefix  # generation keeps every row's whole cache
    order = sorted(places, key=lambda place: (mask_of.get(place, 0), -length[place], rows[place]))
    batch: list[int] = []
    longest, of_masks = 0, set[int]()
    for place in order:
        longest = max(longest, length[place] - kept)
        of_masks.add(mask_of.get(place, 0))
        if batch and (len(batch) + 1) * longest + len(of_masks) * prefix > budget():
            yield Batch(batch, prefix)
            batch, longest, of_masks = [], length[place] - kept, {mask_of.get(place, 0)}
        batch.append(place)
    yield Batch(batch, prefix)


def _prefix(places: list[int], rows: Sequence[Encoded], out: Sequence[Knockout] | None) -> tuple[int, dict[int, int]]:
    """How many tokens to run once per mask, and the number of each place's mask; (0, {}) where it does not pay."""
    contexts = [rows[place][0] for place in places]
    common = shared_length(contexts)
    if common < SHORTEST:
        return 0, {}
    mask_of = distinct(out, places)
    tokens = sum(len(rows[place][0]) + len(rows[place][1]) for place in places)
    saved = (len(places) - len(set(mask_of.values()))) * common
    return (common, mask_of) if saved >= LEAST_SAVED * tokens else (0, {})


def shared_length(contexts: Sequence[list[int]]) -> int:
    """How many tokens all contexts begin with, short of the last one of each: that one is asked what comes next."""
    first, last = min(contexts), max(contexts)
    most = min(map(len, contexts)) - 1
    return next((place for place in range(most) if first[place] != last[place]), max(0, most))


def distinct(out: Sequence[Knockout] | None, places: Sequence[int]) -> dict[int, int]:
    """The number of what is out in each place, equal knockouts having equal numbers, counted from 0 as they come."""
    if out is None:
        return dict.fromkeys(places, 0)
    numbers: dict[Knockout, int] = {}
    return {place: numbers.setdefault(out[place], len(numbers)) for place in places}
