"""Whether a network in memory is, at the moment, another one than was loaded: hooked, trained, or with other weights.

with knocked_out(model.network, model.architecture, heads):
    is_altered(model.network)       # True: copies of the model elsewhere would answer something else
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch

_COUNT: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()


@contextmanager
def altered(network: torch.nn.Module) -> Iterator[None]:
    """Say so while the block runs. Whatever changes what a network computes does; blocks may be nested."""
    _COUNT[network] = _COUNT.get(network, 0) + 1
    try:
        yield
    finally:
        _COUNT[network] -= 1


def is_altered(network: torch.nn.Module) -> bool:
    """Whether it would answer otherwise than it was loaded."""
    return _COUNT.get(network, 0) > 0
