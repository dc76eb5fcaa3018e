"""One copy of a model as an actor of Ray: what runs in a worker's process.

It loads the model once from its own disk, the shared storage or the Hub; weights never travel through Ray.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
import torch

from editkit.checkpoints.source import Source, resolve
from editkit.cluster.identity import facts
from editkit.errors import EditkitError
from editkit.models.loading import SAMPLE, load_source
from editkit.models.placement import Placement
from editkit.models.pool import Asked, Piece
from editkit.tasks.task import Generate


@dataclass(frozen=True)
class Where:
    """Where an actor runs, and its log."""

    node: str
    host: str
    process: int
    log: str


@dataclass(frozen=True)
class Loaded:
    """What a copy says of itself once it is loaded."""

    facts: Mapping[str, str]
    seconds: float
    pace: float


class Copy:
    """One copy of the model, in a process of its own.

    Args:
        threads: of the processor, for each operation.
    """

    def __init__(self, source: Source, placement: Placement, *, proved: bool, threads: int) -> None:
        self.source, self.placement, self.proved, self.threads = source, placement, proved, threads

    @ray.method(concurrency_group="watched")
    def live(self) -> None:
        """Never returns: who waits for it hears of the end of this process."""
        threading.Event().wait()

    def where(self) -> Where:
        log = Path("/proc/self/fd/2")
        node = ray.get_runtime_context().get_node_id()
        return Where(node, platform.node(), os.getpid(), os.readlink(log) if log.is_symlink() else "")

    def load(self) -> Loaded:
        """Load, and try how quick it is.

        Raises:
            EditkitError: the model is not here, or cannot be loaded.
        """
        start = time.monotonic()
        torch.set_num_threads(self.threads)
        self.model = load_source(_here(self.source), self.placement, check=self.proved)
        first = Generate(SAMPLE, max_new_tokens=8)
        piece = Asked((first,), (self.model.encode(first),), None)
        paces = []
        for _ in range(2):
            began = time.monotonic()
            piece.run(self.model)
            paces.append((time.monotonic() - began) / piece.tokens)
        return Loaded(facts(self.model), time.monotonic() - start, paces[-1])

    def do(self, piece: Piece) -> Any:
        """The result of a piece."""
        torch.set_num_threads(self.threads)  # which threads of a process do not share
        return piece.run(self.model)


def _here(source: Source) -> Source:
    """The source as this machine has it."""
    if source.bundled:
        return resolve(None)
    if source.directory.is_dir():
        return source
    try:
        return resolve(source.original or source.base.model, source.base.revision)
    except EditkitError as error:
        raise EditkitError(
            f"{error} It is looked for on {platform.node()}, where a worker is: put the model on storage that all "
            "machines share, under the same path, or name it by its Hub id."
        ) from error
