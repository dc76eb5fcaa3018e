"""A study's predicted cost as a Markdown table.

| model | heads | searches | evaluations | tokens read | memory, at least | memory, full batches | H100 SXM |
|---|---|---|---|---|---|---|---|
| `meta-llama/Llama-3.1-8B-Instruct` | 1,024 | 4 | 1,270 | 170 M | 20 GB | 45 GB | 3.1 h |

(The numbers here only show the form.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editkit.planning.gpu_costs import EFFICIENCY, STEP, TRAFFIC, full_memory, least_memory
from editkit.render.inert import code

if TYPE_CHECKING:
    from editkit.planning.study_cost import StudyPlan

TITLES = ("heads", "searches", "cells", "evaluations", "tokens read", "memory, at least", "memory, full batches")


def table(found: StudyPlan) -> str:
    """One line per model, the sum, and what the prediction rests on."""
    lines = [["model", *TITLES, found.gpu.name]]
    for part in found.models:
        counts = [part.shape.heads, part.searches, part.cells, round(part.evaluations)]
        lines.append(
            [
                code(part.model),
                *(f"{count:,}" for count in counts),
                f"{part.usage.read / 1e6:,.0f} M",
                f"{least_memory(part.shape) / 1e9:.0f} GB",
                f"{full_memory(part.shape) / 1e9:.0f} GB",
                _hours(part.seconds),
            ]
        )
    tight = [part.model for part in found.models if least_memory(part.shape) > found.gpu.memory]
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    text = "\n".join([rows[0], "|" + "---|" * len(lines[0]), *rows[1:]])
    together = _hours(sum(part.seconds for part in found.models))
    text += (
        f"\n\n{found.study}: {together} on one {found.gpu.name}, {found.disk / 1e9:.0f} GB on disk for weights and "
        f"measurements. Assumed: {EFFICIENCY:.0%} of {found.gpu.operations / 1e12:.0f} TFLOP/s, {TRAFFIC:.0%} of "
        f"{found.gpu.traffic / 1e12:.2g} TB/s, {1000 * STEP:.0f} ms for a step of generation. Shared layers and "
        "prefixes make it shorter; batches shrink where memory is short."
    )
    if tight:
        text += f"\n\n**Does not fit into {found.gpu.memory / 1e9:.0f} GB:** {', '.join(code(name) for name in tight)}."
    return text + "\n"


def _hours(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
