"""What of a base checkpoint goes into OUT, under which name, and what is left out.

    copied    {"config.json": "config.json", "README.md": "editkit/base/README.md", ...}     base name -> name in OUT
    left_out  [LeftOut("pytorch_model.bin", "another copy of the unedited weights"), ...]

The base's own card, and the ``editkit`` folder of a base that was edited before, move to ``editkit/base/``: OUT has its
own, and undo puts them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from editkit.errors import EditkitError
from editkit.files import is_relative_name, printable, walk
from editkit.source import OTHER_WEIGHTS

KEPT = "editkit/base/"
"""Where OUT keeps the files of the base whose place it needs for its own."""

_NOT_MODEL = (".git/*", ".cache/*", ".huggingface/*", "*/__pycache__/*", "__pycache__/*", ".ipynb_checkpoints/*")


@dataclass(frozen=True)
class LeftOut:
    """A file of the base that does not go into OUT, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class Contents:
    """``copied`` maps names in the base to names in OUT; every file of the base is in it or in ``left_out``."""

    copied: Mapping[str, str]
    left_out: tuple[LeftOut, ...]


def contents_of(directory: Path, weights: tuple[str, ...]) -> Contents:
    """Sort the files of a base checkpoint.

    Args:
        weights: the safetensors files that hold the model; every other weights file is left out.

    Raises:
        EditkitError: for a file name with control characters, or a linked folder.
    """
    copied, left_out = {}, []
    for name in walk(directory):
        if not is_relative_name(name):
            raise EditkitError(f"{printable(name)!r}: a file name with control characters is refused. Rename the file.")
        reason = None if name in weights else _why_left_out(name)
        if reason is None:
            copied[name] = KEPT + name if name in ("README.md", "editkit") or name.startswith("editkit/") else name
        else:
            left_out.append(LeftOut(name, reason))
    return Contents(copied, tuple(left_out))


def _why_left_out(name: str) -> str | None:
    lower = name.lower()
    if any(fnmatch(lower, pattern) for pattern in _NOT_MODEL):
        return "not part of the model"
    if any(fnmatch(lower, pattern) for pattern in OTHER_WEIGHTS):
        return "another copy of the unedited weights, or a pickle"
    is_own = name.startswith("editkit/") or (name.endswith("/adapter_model.safetensors"))
    if lower.endswith(".safetensors") and not is_own:
        return "weights that the checkpoint's index does not name"
    return None
