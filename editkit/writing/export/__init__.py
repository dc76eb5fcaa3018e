"""The forms an edit can be written in. Each is one file with ``write(edit, base, out, ...)``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from editkit.writing.export.checkpoint import Written


def _checkpoint(*args: Any, **options: Any) -> Written:
    return import_module("editkit.writing.export.checkpoint").write(*args, **options)


def _lora(*args: Any, **options: Any) -> Written:
    return import_module("editkit.writing.export.lora").write(*args, **options)


EXPORTS: dict[str, Callable[..., Written]] = {"checkpoint": _checkpoint, "lora": _lora}
"""Form -> its ``write``; the module is imported when it is called."""
