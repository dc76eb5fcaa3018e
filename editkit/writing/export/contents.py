"""What of a base checkpoint goes into OUT, under which name, and what is left out.

    copied    {"config.json": "config.json", "README.md": "editkit/base/README.md", ...}     base name -> name in OUT
    left_out  [LeftOut("pytorch_model.bin", "another copy of the unedited weights"), ...]

The base's own card, and the ``editkit`` folder of a base that was edited before, move to ``editkit/base/``: OUT has its
own, and undo puts them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from editkit.checkpoints.files import is_relative_name, printable, walk
from editkit.checkpoints.source import Source
from editkit.checkpoints.unshipped import why
from editkit.errors import EditkitError

KEPT = "editkit/base/"
"""Where OUT keeps the files of the base whose place it needs for its own."""


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


def contents_of(base: Source, weights: tuple[str, ...]) -> Contents:
    """Sort the files of a base checkpoint.

    Args:
        weights: the safetensors files that hold the model; every other weights file is left out.

    Raises:
        EditkitError: for a file name with control characters, or a linked folder.
    """
    copied, left_out = {}, []
    names = set(walk(base.directory))
    absent = set(walk(base.original)) - names if base.original else set()  # what its conversion did without
    for name in sorted(names | absent):
        if not is_relative_name(name):
            raise EditkitError(f"{printable(name)!r}: a file name with control characters is refused. Rename the file.")
        reason = why(name, weights)
        if reason is None and name in names:
            copied[name] = KEPT + name if name in ("README.md", "editkit") or name.startswith("editkit/") else name
        elif reason is not None:
            left_out.append(LeftOut(name, reason))
    return Contents(copied, tuple(left_out))
