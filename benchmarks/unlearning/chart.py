"""How much fine-tuning it takes to have half of it back, against what other tasks lost: one point per method.

(RESULTS / "unlearning-peers-real.png").write_bytes(chart(bench, findings))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.unlearning.attacked import Finding
from benchmarks.unlearning.bench import Bench
from benchmarks.unlearning.page import course, most, name_of
from editkit.evidence.attacks import steps_to_half
from editkit.render.figures import Theme, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def chart(bench: Bench, findings: Sequence[Finding]) -> bytes:
    """PNG. Up is slower to come back; left is what costs least; the colour is what a begun answer brings back."""
    last = max(bench.budget.steps)

    def draw(figure: Figure, theme: Theme) -> None:
        figure.set_size_inches(7.2, 4.2)
        axes = figure.add_subplot()
        [size] = {max(row.lessons for row in finding.attacks.of("relearning")) for finding in findings}
        above = 0
        for finding in sorted(findings, key=lambda each: each.worst.delta.mean):
            half = steps_to_half(course(finding, size))
            row = most(finding, "prefill")
            back = None if row is None or row.recovered is None else min(1.0, max(0.0, row.recovered.share))
            at = -100 * finding.worst.delta.mean, last * 1.35 if half is None else half
            colour = theme.soft if back is None else theme.good if back <= 0.1 else theme.bad
            axes.scatter(*at, s=55, color=colour, marker="o" if finding.peer.edit else "s", zorder=3)
            said = f"{name_of(finding)}{'' if back is None else f', begun answer {100 * back:.0f} %'}"
            up = 4 if half is not None else 8 + 13 * above  # those that did not come back are in one line
            above += half is None
            line = {"arrowstyle": "-", "color": theme.line, "shrinkB": 3}
            axes.annotate(said, at, (7, up), textcoords="offset points", fontsize=8, color=theme.ink, arrowprops=line)
        axes.set_yscale("log")
        ticks = [step for step in bench.budget.steps if step <= last]
        axes.set_yticks([*ticks, last * 1.35], [*map(str, ticks), f"> {last}"])
        axes.minorticks_off()
        axes.axhline(last, color=theme.line, linewidth=1, zorder=0)
        axes.set_xlabel("worst loss of a retained task on fresh examples, in points")
        axes.set_ylabel(f"steps on {size} answers until half is back")
        axes.margins(x=0.25)
        axes.grid(color=theme.line, linewidth=0.5, zorder=0)

    return png(draw)
