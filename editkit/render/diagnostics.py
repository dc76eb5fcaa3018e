"""A localizer's diagnostics as lines of a table, whatever the method recorded.

facts({"masks": 240, "design": {"passes": 12.0}, "first": [1, 2, 3]})
-> (("masks", "240"), ("design: passes", "12"), ("first", "1, 2, 3"))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

SHOWN = 80
"""Lines; the rest is in localization.json, and the last line says so."""

LISTED = 12
"""Numbers of a list that are written out."""


def facts(diagnostics: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    lines = list(_lines("", diagnostics, depth=0))
    more = len(lines) - SHOWN
    return tuple(lines[:SHOWN]) + ((("…", f"{more} more in localization.json"),) if more > 0 else ())


def _lines(prefix: str, value: Any, *, depth: int) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and depth < 4:
        found = []
        for name, part in value.items():
            shown = str(name).replace("_", " ")
            found += _lines(f"{prefix}: {shown}" if prefix else shown, part, depth=depth + 1)
        return found
    return [(prefix, _shown(value))]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unknown"
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return "unknown"
        return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        listed = ", ".join(_shown(part) for part in value[:LISTED])
        return listed + (f", … ({len(value)} in all)" if len(value) > LISTED else "")
    return str(value)
