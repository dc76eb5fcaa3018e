"""Where a model goes, in which numbers, and whether code that came with it may run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from editkit.models.pool import Opener


@dataclass(frozen=True)
class Placement:
    """How a model is loaded.

    Args:
        device: ``auto`` takes a GPU if there is one; ``cpu``, ``cuda``, ``cuda:1``, ``mps``, or ``balanced`` to spread
            the layers over all GPUs. A table says which module goes where (``memory.layout``).
        dtype: ``auto`` keeps the checkpoint's own; else ``float32``, ``bfloat16`` or ``float16``.
        trust_remote_code: run Python files that came with the checkpoint. Off: such models are refused.
        pool: makes the copies elsewhere that answer in its place (``cluster``).
    """

    device: str | Mapping[str, Any] = "auto"
    dtype: str = "auto"
    trust_remote_code: bool = False
    pool: Opener | None = field(default=None, compare=False)
