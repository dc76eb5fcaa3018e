"""The short card of an output that was baked without being measured: what was removed, from what, how to go back."""

from __future__ import annotations

import json

from editkit.checkpoints.base_card import base_model
from editkit.checkpoints.source import Source
from editkit.edit import Edit
from editkit.units import show

_HOW = {
    "checkpoint": "The weights are the base's, byte for byte, with the input slices of these units set to zero.",
    "lora": "This is an adapter: loaded on the base, it subtracts what these units add.",
}


def plain_card(edit: Edit, base: Source, form: str, *, extra: str = "") -> str:
    """Markdown with YAML front matter. Names are quoted in both, whatever they hold."""
    units = ", ".join(show(edit.units)) or "none"
    name = json.dumps(edit.base.model, ensure_ascii=False)
    front = [f"base_model: {name}"] if not base.bundled and "sha256:" not in (edit.base.revision or "") else []
    carried = base_model(base, dtype="")
    for key in ("license", "license_name", "license_link"):
        value = getattr(carried, key)
        front += [f"{key}: {json.dumps(value)}"] if value else []
    library = "peft" if form == "lora" else "transformers"
    lines = ["---", *front, f"library_name: {library}", "tags:", "- editkit", "---", "", "# Edited model", ""]
    lines += [
        f"Removed units ({edit.kind}s): {units}.",
        f"Base: `{edit.base.model}`, revision `{edit.base.revision}`.",
        "",
        *(line for notice in carried.notices for line in (f"{notice}.", "")),
        _HOW[form],
        "What this removal does to the model was not measured"
        + ("; `editkit evaluate` measures it." if form == "checkpoint" else "."),
        "",
        "`editkit verify .` checks every file. `editkit undo . -o ../unedited` gives the base back."
        if form == "checkpoint"
        else "`editkit verify .` checks every file. The base itself is unchanged.",
        "",
    ]
    return "\n".join(lines) + (f"\n{extra}\n" if extra else "")
