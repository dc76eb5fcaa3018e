"""The figures: changes with intervals, the head map, the dose curve, the random-heads null.

    head_map(edit, localization, provenance) -> PNG bytes for the card       svg.deltas(report) -> text for the page

They go through ``drawing.py``. Names are data: hidden characters are shown.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from editkit.edit import Edit
from editkit.evidence.exhibits import Dose
from editkit.evidence.localization import Localization
from editkit.evidence.provenance import Provenance
from editkit.evidence.report import EvalReport, Interval, Row
from editkit.render import headmap, map_figure, wording
from editkit.render.drawing import Theme, png
from editkit.render.inert import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def head_map(edit: Edit, localization: Localization, provenance: Provenance) -> bytes:
    """Layers x heads; colour = effect, full square = certain, frame = removed or tried, U = universal. PNG."""
    layers, fate = headmap.head_map(edit, localization, provenance), wording.fate(provenance)
    return png(lambda figure, theme: map_figure.draw(figure, theme, layers, fate))


def deltas(report: EvalReport) -> bytes:
    """Every task's change with its 95 % interval; targets above, retained tasks below on their own scale. PNG."""
    return png(lambda figure, theme: draw_deltas(figure, theme, report))


def draw_deltas(figure: Figure, theme: Theme, report: EvalReport) -> None:
    targets, retained = wording.targets(report), wording.retained(report)
    parts = [rows for rows in (targets, retained) if rows]
    figure.set_size_inches(8.4, 0.8 + 0.29 * len(report.rows) + 0.55 * len(parts))
    if not parts:
        return
    axes = figure.subplots(len(parts), 1, squeeze=False, height_ratios=[len(rows) + 0.6 for rows in parts])[:, 0]
    standing = wording.standing(report)
    for axis, rows in zip(axes, parts, strict=True):
        colours = [_row_colour(row, standing, theme) for row in rows]
        _forest(axis, theme, rows, colours)
        budget = report.criteria.damage_each * 100
        if rows is retained:
            low = min([-1.4 * budget, *(row.delta.low * 100 for row in rows if math.isfinite(row.delta.low))])
            high = max([budget, *(row.delta.high * 100 for row in rows if math.isfinite(row.delta.high))])
            axis.set_xlim(low * 1.12, high * 1.15)
            axis.axvline(-budget, color=theme.warn, linewidth=1, linestyle=(0, (4, 3)))
            beyond = abs(low) > 8 * budget  # no room between the budget and zero
            _label(axis, "damage budget", (-budget, -0.72), -4 if beyond else 4, theme.warn)
        else:
            axis.set_xlim(-104, max([5.0, *(row.delta.high * 115 for row in rows if math.isfinite(row.delta.high))]))
        title = "To be kept: change in points" if rows is retained else "To be removed: change in points"
        axis.set_title(title, loc="left", color=theme.ink, fontsize=9.5, fontweight="bold")


def draw_dose(figure: Figure, theme: Theme, dose: tuple[Dose, ...], marked: str, chosen: int, goal: float) -> None:
    """``marked`` names the number of heads that is ``chosen``; ``goal`` is the score to fall to."""
    from matplotlib.ticker import MaxNLocator

    figure.set_size_inches(8.4, 3.3)
    axis = figure.subplots()
    heads = [point.heads for point in dose]
    means = [point.target.mean * 100 for point in dose]
    axis.fill_between(
        heads,
        [point.target.low * 100 for point in dose],
        [point.target.high * 100 for point in dose],
        color=theme.band,
        linewidth=0,
    )
    tasks = sorted({task for point in dose for task in point.retain})
    curves = [[point.retain.get(task, math.nan) * 100 for point in dose] for task in tasks]
    known = [values for values in curves if sum(map(math.isfinite, values)) > 1]
    for place, values in enumerate(known):
        label = "each retained task" if place == 0 else None
        # Measured only where the target has fallen far enough: what lies between is not known.
        axis.plot(heads, values, color=theme.rise, linewidth=1, alpha=0.8, marker="o", markersize=3.5, label=label)
    axis.plot(heads, means, color=theme.accent, linewidth=2.2, marker="o", markersize=4.5, label="to be removed")
    axis.axvline(chosen, color=theme.ink, linewidth=1, linestyle=(0, (2, 2)))
    side = -5 if heads and chosen > (heads[0] + heads[-1]) / 2 else 5
    _label(axis, marked, (chosen, 108), side, theme.ink)
    if math.isfinite(goal):
        axis.axhline(goal * 100, color=theme.warn, linewidth=1, linestyle=(0, (4, 3)))
        axis.annotate(
            f"goal: {wording.percent(goal)} %",
            (1.01, goal * 100),
            xycoords=("axes fraction", "data"),
            va="center",
            color=theme.warn,
            fontsize=9,
        )
    axis.set_ylim(-3, 104)
    if max(heads, default=0) <= 16:
        axis.set_xticks(heads)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(nbins=16, integer=True))
    axis.set_xlabel("heads knocked out, strongest first", color=theme.soft)
    axis.set_ylabel("score, %", color=theme.soft)
    _calm(axis, theme, grid="y")
    axis.legend(frameon=False, labelcolor=theme.ink, fontsize=9, loc="best")


def draw_null(figure: Figure, theme: Theme, report: EvalReport, ours: str) -> None:
    """``ours`` names the heads of the edit: the removed, or the tried ones."""
    from matplotlib.ticker import MaxNLocator

    null = report.random_heads
    assert null is not None, "the page draws the null only where there is one"
    figure.set_size_inches(8.4, 2.2)
    axis = figure.subplots()
    observed = null.delta * 100
    values = [delta * 100 for delta in null.deltas if math.isfinite(delta)]
    low, high = min([observed, *values]), max([0.0, observed, *values])
    room = max(high - low, 1.0) * 0.04
    axis.hist(values, bins=60, range=(low - room, high + room), color=theme.rise, label="random heads")
    axis.set_xlim(low - room, high + room)
    top = axis.get_ylim()[1] * 1.2
    axis.set_ylim(0, top)
    axis.axvline(observed, color=theme.accent, linewidth=2.2)
    beside = 5 if observed < (low + high) / 2 else -5
    _label(axis, f"{ours}: {wording.points(null.delta)}", (observed, top * 0.9), beside, theme.accent)
    _label(axis, f"{null.sets} random sets", (high, top * 0.9), -5, theme.rise)
    axis.set_xlabel("change of the score, points", color=theme.soft)
    axis.set_ylabel("random sets", color=theme.soft)
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _calm(axis, theme, grid="y")


def _row_colour(row: Row, standing: wording.Standing, theme: Theme) -> str:
    if row.role == "target":
        return theme.accent
    return theme.bad if row in standing.degraded else theme.warn if row in standing.uncertain else theme.good


def _forest(axis: Axes, theme: Theme, rows: tuple[Row, ...], colours: list[str]) -> None:
    places = range(len(rows))
    for place, row, colour in zip(places, rows, colours, strict=True):
        delta = _in_points(row.delta)
        axis.plot([delta.low, delta.high], [place, place], color=colour, linewidth=2.4, solid_capstyle="round")
        axis.plot([delta.mean], [place], marker="o", markersize=6.5, color=colour)
        axis.annotate(
            f"{wording.points(row.delta.mean)}  [{wording.span(row.delta)}]",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            color=theme.ink,
            fontsize=9,
        )
    axis.axvline(0, color=theme.soft, linewidth=1)
    axis.set_yticks(list(places), [f"{clean(row.task, limit=28)}  (n={row.n})" for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.9)
    _calm(axis, theme, grid="x")
    axis.tick_params(axis="y", labelcolor=theme.ink)


def _label(axis: Axes, text: str, place: tuple[float, float], beside: float, colour: str) -> None:
    """Text ``beside`` typographic points to the right (negative: left) of a place in the data."""
    side = "left" if beside > 0 else "right"
    axis.annotate(
        text,
        place,
        (beside, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        color=colour,
        fontsize=9,
        annotation_clip=False,
    )


def _in_points(interval: Interval) -> Interval:
    return replace(interval, mean=interval.mean * 100, low=interval.low * 100, high=interval.high * 100)


def _calm(axis: Axes, theme: Theme, grid: Any) -> None:
    axis.set_facecolor("none")
    axis.grid(axis=grid, color=theme.line, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(length=0, labelcolor=theme.soft)
    axis.spines["bottom"].set_color(theme.line)
