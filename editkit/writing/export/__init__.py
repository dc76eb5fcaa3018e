"""The forms an edit can be written in. Each is one file with ``write(edit, base, out, ...)``."""

from __future__ import annotations

from collections.abc import Callable

from editkit.writing.export import checkpoint, lora
from editkit.writing.export.checkpoint import Written

EXPORTS: dict[str, Callable[..., Written]] = {"checkpoint": checkpoint.write, "lora": lora.write}
"""Form -> its ``write``. Libraries for models are imported where they are used, in the functions of a form."""
