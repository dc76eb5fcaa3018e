"""What the found heads do as a set, in words.

joint({"together": {"drop": .80, ...}})
-> {"together": "−80.0 points without all 6; on 10 examples −90.0, at most 0.0 without any of 19 random sets ..."}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from editkit.render.inert import clean
from editkit.render.wording import points, probability


def joint(diagnostics: Mapping[str, Any]) -> dict[str, str]:
    """Name and sentence, for the terminal; empty where the set was not measured."""
    found = diagnostics.get("together")
    if not isinstance(found, Mapping):
        return {}
    random, units = found["random sets"], found["units"]
    number = "the head" if len(units) == 1 else f"all {len(units)}"
    said = {
        "together": f"{points(-found['drop'])} points without {number}; on {random['examples']} examples "
        f"{points(-random['found drop'])}, and {points(-random['largest drop'])} at most without any of "
        f"{random['sets']} random sets from the same layers (p = {probability(random['p'])})"
    }
    if clusters := found["in one KV group"]:
        said["one KV group"] = clean("; ".join(", ".join(cluster) for cluster in clusters), limit=400)
    return said
