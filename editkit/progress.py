"""How long work is followed from outside: a stage has a title, perhaps a total, and advances by counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[int], None]
"""Told how much of the stage's total has just been done."""

Stages = Callable[[str, int | None], AbstractContextManager[Advance]]
"""``with stages("Finding heads", 4000) as advance: advance(100)``. A total of None means that nobody knows."""


@contextmanager
def silent(title: str, total: int | None = None) -> Iterator[Advance]:
    """The stage that tells nobody."""
    yield lambda count: None
