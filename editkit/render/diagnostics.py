"""A localizer's diagnostics as lines of a table, whatever the method recorded; what is known has a plain name.

facts({"finalists": 8, "design": {"masks": 240}, "mine": [1, 2, 3]})
-> (("Finalists, measured on all examples", "8"), ("Design: masks", "240"), ("mine", "1, 2, 3"))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from editkit.render.inert import clean
from editkit.render.wording import points, probability

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
    "evaluations: format": "Passes: the same questions as text",
    "evaluations: random sets": "Passes: random sets",
    "evaluations: ways to fail": "Passes: ways to fail",
    "scores": "Scores that were searched",
    "together": "All that were found, together",
    "one KV group": "Found in one KV group",
    "universal: required tasks": "Universal heads: tasks that must break",
    "universal: median drop": "Universal heads: drop of a typical head",
    "universal: candidates": "Universal heads: candidates",
    "universal: examples": "Universal heads: examples per task",
    "universal: format tested": "Universal heads: answer formats tested apart",
    "universal: heads": "Universal heads: without",
    "universal: untested": "Universal heads: not looked for",
}
"""What the localizers of this package record, in words. A name ends where the recorded one goes on."""

LISTED = 12
"""Numbers of a list that are written out."""


def facts(diagnostics: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    sentences = joint(diagnostics)
    rest = {name: value for name, value in diagnostics.items() if not (sentences and name == "together")}
    lines = [(_named(name), shown) for name, shown in _lines("", rest | sentences, depth=0)]
    more = len(lines) - SHOWN
    return tuple(lines[:SHOWN]) + ((("…", f"{more} more in localization.json"),) if more > 0 else ())


def joint(diagnostics: Mapping[str, Any]) -> dict[str, str]:
    """Name and sentence, for the terminal; empty where the set was not measured."""
    together = diagnostics.get("together")
    if not isinstance(together, Mapping):
        return {}
    random, units = together["random sets"], together["units"]
    number = "the head" if len(units) == 1 else f"all {len(units)}"
    said = {
        "together": f"{points(-together['drop'])} points without {number}; on {random['examples']} examples "
        f"{points(-random['found drop'])}, and {points(-random['largest drop'])} at most without any of "
        f"{random['sets']} random sets from the same layers (p = {probability(random['p'])})"
    }
    if clusters := together["in one KV group"]:
        said["one KV group"] = clean("; ".join(", ".join(cluster) for cluster in clusters), limit=400)
    return said


def _lines(prefix: str, value: Any, *, depth: int) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and depth < 4:
        lines = []
        for name, inner in value.items():
            shown = str(name).replace("_", " ")
            lines += _lines(f"{prefix}: {shown}" if prefix else shown, inner, depth=depth + 1)
        return lines
    return [] if value is None or (isinstance(value, Sequence) and not value) else [(prefix, _shown(value))]


def _named(name: str) -> str:
    """The plain name; for ``coefficients: L1H5`` that of ``coefficients``, followed by the rest."""
    for known in (name, *(name[:end] for end in range(len(name), 0, -1) if name[end:].startswith(": "))):
        if known in NAMES:
            return NAMES[known] + name[len(known) + 1 :]
    return name


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
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    if isinstance(value, Sequence):
        listed = ", ".join(_shown(item) for item in value[:LISTED])
        return listed + (f", … ({len(value)} in all)" if len(value) > LISTED else "")
    return str(value)
