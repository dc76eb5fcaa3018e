"""The frontier of a set search: what could be had at which damage, as rows for tables and as a figure.

svg(outcome) -> '<svg class="figure" role="img" aria-label="Share of the target that is left against ...'
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.outcome import Outcome
from editkit.render import figures, wording
from editkit.units import Head, Neuron, Unit, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure


READABLE = 4
"""Neurons that are named in a row."""


@dataclass(frozen=True)
class FrontierRow:
    """One set: what is left of the target in its worst format, and what others lose; from 0 to 1.

    ``tried`` is the same by real answers, None where there are none: left, worst, mean. A set that cost too much was
    asked no further: its worst is the worst that was seen, its mean is NaN.
    """

    units: str
    left: float
    worst: float
    task: str
    mean: float
    tried: tuple[float, float, float] | None
    chosen: bool


def rows(outcome: Outcome) -> list[FrontierRow]:
    """The sets from the least damage to the most, without the empty one."""
    chance = {row.task: row.chance for row in outcome.report.rows}
    return [
        FrontierRow(
            _named(point.units),
            point.left,
            point.worst,
            max(point.lost, key=lambda task: point.lost[task]),
            point.mean,
            _tried(point, chance),
            frozenset(point.units) == outcome.edit.units,
        )
        for point in outcome.exhibits.frontier
        if point.units
    ]


def _named(units: Sequence[Unit]) -> str:
    """The units, or how many where they are too many to read."""
    heads, neurons = ([unit for unit in units if isinstance(unit, kind)] for kind in (Head, Neuron))
    more = f"{len(neurons)} neurons" if len(neurons) > READABLE else " ".join(show(neurons))
    return " ".join([*show(heads), *([more] if more else [])])


def _tried(point: FrontierPoint, chance: Mapping[str, float]) -> tuple[float, float, float] | None:
    if not point.answers:
        return None
    left = []
    for task in point.kept:
        before, after = point.answers[task]
        above = before - chance.get(task, 0.0)
        left.append(max(0.0, after - chance.get(task, 0.0)) / above if above > 0 else 1.0)
    lost = [before - after for task, (before, after) in point.answers.items() if task in point.lost]
    return max(left), max(lost), sum(lost) / len(lost) if len(lost) == len(point.lost) else math.nan


def png(outcome: Outcome) -> bytes:
    return figures.png(lambda figure, theme: _draw(figure, theme, outcome))


def svg(outcome: Outcome) -> str:
    label = (
        "Share of the target that is left against the worst loss of a retained task, set by set; the table has it all."
    )
    return figures.svg("frontier", label, lambda figure, theme: _draw(figure, theme, outcome))


def undominated(sets: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """(loss, left) of the sets that leave less than all that lose as little: parts of a set may be beaten."""
    best: list[tuple[float, float]] = []
    for loss, left in sorted(sets):
        if not best or left < best[-1][1]:
            best.append((loss, left))
    return best


def _draw(figure: Figure, theme: figures.Theme, outcome: Outcome) -> None:
    figure.set_size_inches(8.4, 3.6)
    axis, sets = figure.subplots(), rows(outcome)
    criteria = outcome.report.criteria
    by_search = [(0.0, 100.0), *((100 * max(0.0, row.worst), 100 * row.left) for row in sets)]
    axis.step(*zip(*undominated(by_search), strict=True), where="post", color=theme.rise, linewidth=1.4)
    axis.plot(
        *zip(*by_search, strict=True), "o", color=theme.rise, markersize=4.5, label="by likelihood, in the search"
    )
    tried = [(100 * max(0.0, row.tried[1]), 100 * row.tried[0], row) for row in sets if row.tried]
    if tried:
        points = ([x for x, _, _ in tried], [y for _, y, _ in tried])
        axis.plot(*points, "s", color=theme.accent, markersize=6, label="by real answers, to choose")
    for x, y, row in tried:
        if row.chosen:
            axis.plot([x], [y], "s", markersize=12, markerfacecolor="none", color=theme.accent)
            figures.label(axis, wording.fate(outcome.provenance), (x, y), 11, theme.accent)
    edge = max([2.2 * 100 * criteria.damage_each, *(x for x, _ in by_search), *(x for x, _, _ in tried)])
    axis.set_xlim(-0.03 * edge, edge * 1.08)
    axis.set_ylim(-4, 112)
    axis.axvline(100 * criteria.damage_each, color=theme.warn, linewidth=1, linestyle=(0, (4, 3)))
    figures.label(axis, "damage budget", (100 * criteria.damage_each, 107), 5, theme.warn)
    figures.mark_goal(axis, theme, criteria.goal)
    axis.set_xlabel("worst loss of a retained task, points", color=theme.soft)
    axis.set_ylabel("target left, %", color=theme.soft)
    figures.calm(axis, theme, grid="both")
    axis.legend(frameon=False, labelcolor=theme.ink, fontsize=9, loc="upper right")
