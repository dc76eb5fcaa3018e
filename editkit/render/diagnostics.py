"""A localizer's diagnostics as lines of a table, whatever the method recorded; what is known has a plain name.

facts({"finalists": 8, "design": {"masks": 240}, "mine": [1, 2, 3]})
-> (("Finalists, measured on all examples", "8"), ("Design: masks", "240"), ("mine", "1, 2, 3"))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

SHOWN = 80
"""Lines; the rest is in localization.json, and the last line says so."""

NAMES = {
    "examples": "Search examples",
    "finalists": "Finalists, measured on all examples",
    "first": "Examples per head in the first round",
    "group": "Heads per joint knockout (0: one by one)",
    "prior": "Guided by gradients",
    "skipped": "Left out",
    "rounds": "Rounds",
    "sparsity": "Share of heads out in each mask",
    "r2": "Fit: R² on the masks it was made from",
    "r2 out": "Fit: R² on masks held out",
    "alpha": "Fit: penalty",
    "active": "Fit: heads with an effect",
    "target": "Fit: of",
    "settings tried": "Fit: settings tried",
    "coefficients": "Fit: coefficient of",
    "stability": "Stability: share of resampled fits that name",
    "design: masks": "Design: masks",
    "design: columns": "Design: heads",
    "design: passes": "Design: times each head is out, on average",
    "design: fewest": "Design: times a head is out, at least",
    "design: most": "Design: times a head is out, at most",
    "design: duplicates": "Design: heads that no mask tells apart",
    "design: warning": "Design: warning",
    "evaluations: search": "Passes: search",
    "evaluations: universal": "Passes: universal heads",
    "evaluations: selectivity": "Passes: selectivity",
    "universal: required tasks": "Universal heads: tasks that must break",
    "universal: median drop": "Universal heads: drop of a typical head",
    "universal: candidates": "Universal heads: candidates",
    "universal: examples": "Universal heads: examples per task",
    "universal: format tested": "Universal heads: answer formats tested apart",
    "universal: untested": "Universal heads: not looked for",
}
"""What the localizers of this package record, in words. A name ends where the recorded one goes on."""

LISTED = 12
"""Numbers of a list that are written out."""


def facts(diagnostics: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    lines = [(_named(name), shown) for name, shown in _lines("", diagnostics, depth=0)]
    more = len(lines) - SHOWN
    return tuple(lines[:SHOWN]) + ((("…", f"{more} more in localization.json"),) if more > 0 else ())


def _lines(prefix: str, value: Any, *, depth: int) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and depth < 4:
        found = []
        for name, part in value.items():
            shown = str(name).replace("_", " ")
            found += _lines(f"{prefix}: {shown}" if prefix else shown, part, depth=depth + 1)
        return found
    return [] if value is None else [(prefix, _shown(value))]


def _named(name: str) -> str:
    """The plain name; for ``stability: L1H5`` that of ``stability``, followed by the rest."""
    if name in NAMES:
        return NAMES[name]
    first, colon, rest = name.partition(": ")
    return f"{NAMES[first]} {rest}" if colon and first in NAMES else name


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
