"""Where working state is kept, outside the output: measurements to resume from, transcripts, converted checkpoints.

~/.cache/editkit/measurements/organism-3f21c0d2.sqlite       shared by all recipes on one model
~/.cache/editkit/runs/swear-organism-3f21c0d2-0/             edit.json, transcripts.jsonl of one run
~/.cache/editkit/converted/52ab...                           a pickled checkpoint as safetensors
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from editkit.edit import Base
from editkit.progress import Stages, silent


@dataclass(frozen=True)
class Session:
    """Where a call keeps its measurements, what it may run, and who hears of its progress.

    Args:
        work: the folder of measurements; the user's cache if None. What is there is not measured again.
        allow_code: let Python scorers run here, and code that the model writes run in a sandbox.
        command: what the card says was typed.
    """

    work: Path | None = None
    allow_code: bool = False
    stages: Stages = silent
    command: str = ""


@dataclass(frozen=True)
class Work:
    """The folder of one run, and the measurement store it reads and adds to."""

    folder: Path
    store: Path


def work_for(base: Base, capability: str, seed: int, chosen: Path | None = None) -> Work:
    """The working state of a run; ``chosen`` (``--work``) holds both in one folder."""
    if chosen is not None:
        return Work(chosen, chosen / "measurements.sqlite")
    model = f"{_plain(Path(base.model).name)}-{(base.revision or 'unknown').removeprefix('sha256:')[:12]}"
    root = cache()
    return Work(root / "runs" / f"{capability}-{model}-{seed}", root / "measurements" / f"{model}.sqlite")


def cache() -> Path:
    """``$EDITKIT_CACHE``, else ``$XDG_CACHE_HOME/editkit``, else ``~/.cache/editkit``."""
    if "EDITKIT_CACHE" in os.environ:
        return Path(os.environ["EDITKIT_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "editkit"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:64] or "model"
