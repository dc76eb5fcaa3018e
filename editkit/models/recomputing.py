"""A backward pass that keeps what enters a block and nothing inside it: each block runs again when its turn comes.

    with recomputed(blocks_of(network, architecture) or ()):
        ...
        torch.autograd.grad(answer, gates)

A token of an 8B model keeps .4 MB instead of 5, for one more forward pass (benchmarks/results/attribution-memory.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint


@contextmanager
def recomputed(blocks: Sequence[torch.nn.Module]) -> Iterator[None]:
    """The forward pass and the backward pass must both lie inside. Gradients are the same, bit for bit."""
    before = {block: vars(block).get("forward") for block in blocks}  # accelerate puts one there
    for block in before:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for block, own in before.items():
            del block.forward
            if own:
                block.forward = own
