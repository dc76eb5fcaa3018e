"""The forms an edit can be written in. Each is one file with ``write(edit, base, out, ...)``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from editkit.errors import UsageError

EXPORTS: dict[str, str] = {
    "checkpoint": "editkit.export.checkpoint",
    "lora": "editkit.export.lora",
    "delta": "editkit.export.delta",
}
"""Form -> the module that writes it; imported when it is asked for."""


def exporter(form: str) -> Callable[..., Any]:
    """The ``write`` of a form.

    Raises:
        UsageError: listing the forms, if there is no such one.
    """
    if form not in EXPORTS:
        raise UsageError(f"There is no format {form!r}; there are {', '.join(EXPORTS)}.")
    return import_module(EXPORTS[form]).write
