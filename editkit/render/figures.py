"""The figures: changes with intervals, the dose curve, the random-heads null; and how every figure is drawn.

    deltas_png(report) -> PNG bytes for the card
    deltas_svg(report) -> '<svg class="figure" role="img" aria-label="..." viewBox="0 0 604 252">...</svg>' for the page

Drawn by matplotlib; the same data give the same bytes. Names are data: mathematics in labels is switched off, and
hidden characters are shown.
"""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from editkit.evidence.exhibits import Dose
from editkit.evidence.report import EvalReport
from editkit.evidence.row import Row
from editkit.evidence.strong_heads import StrongHeads
from editkit.evidence.verdict import RandomHeads
from editkit.render import wording
from editkit.render.inert import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTINGS: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.parse_math": False,
    "text.usetex": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "editkit",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Theme:
    """Colours by what they mean; the page's CSS has variables of the same names."""

    ink: str = "#1b2330"
    soft: str = "#5d6878"
    line: str = "#d5dae1"
    paper: str = "#ffffff"
    accent: str = "#b5391c"
    rise: str = "#1e66a8"
    good: str = "#2a6f97"
    warn: str = "#9a6700"
    bad: str = "#b5391c"
    band: str = "#f1c9bd"


LIGHT = Theme()

VARIABLES = {f"#0{number:x}0b0c": f"var(--{field.name})" for number, field in enumerate(fields(Theme))}
"""Stand-in colour -> CSS variable: matplotlib draws with the first, ``svg`` writes the second."""

Draw = Callable[["Figure", Theme], None]


class Png(bytes):
    """The bytes of a PNG file, which a notebook shows as a picture."""

    def _repr_png_(self) -> bytes:
        return bytes(self)


def png(draw: Draw) -> Png:
    """A figure for the card, in the light theme."""
    look: dict[str, Any] = {"dpi": 160, "facecolor": LIGHT.paper, "bbox_inches": "tight", "pad_inches": 0.12}
    return Png(_drawn(draw, LIGHT, "png", metadata={"Software": None}, **look))


def deltas_png(report: EvalReport) -> bytes:
    """Every task's change with its 95 % interval; targets above, retained tasks below on their own scale."""
    return png(lambda figure, theme: _draw_deltas(figure, theme, report))


def deltas_svg(report: EvalReport) -> str:
    label = "Change of every task with its 95 % interval; the same numbers are in the table."
    return svg("deltas", label, lambda figure, theme: _draw_deltas(figure, theme, report))


def dose_svg(points: tuple[Dose, ...], chosen: int, fate: wording.Fate, goal: float = math.nan) -> str:
    """Scores against the number of heads; ``goal`` is the score to fall to, from 0 to 1."""
    label = f"Scores against the number of heads switched off; {chosen} were {fate}. The table below has the numbers."
    marked = f"{chosen} {fate}"
    return svg("dose", label, lambda figure, theme: _draw_dose(figure, theme, points, marked, chosen, goal))


def null_svg(report: EvalReport, fate: wording.Fate) -> str:
    """The changes by random heads, and the one by the ``fate`` heads."""
    label, null = wording.null_line(report) or "", report.random_heads
    assert null is not None, "the page draws the null only where there is one"
    ours = f"the {fate} {null.kind}s"
    return svg("null", label, lambda figure, theme: _draw_null(figure, theme, null, ours, "random"))


def strong_svg(report: EvalReport, fate: wording.Fate) -> str:
    """The changes by sets of strong heads, and the one by the ``fate`` heads."""
    label, strong = wording.strong_line(report) or "", report.strong_heads
    assert strong is not None, "the page draws strong heads only where they were measured"
    return svg("strong", label, lambda figure, theme: _draw_null(figure, theme, strong, f"the {fate} heads", "strong"))


def svg(name: str, label: str, draw: Draw) -> str:
    """A figure for the page: real text, colours from the page's CSS, so that light and dark both work."""
    quiet = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    text = _drawn(draw, Theme(*VARIABLES), "svg", transparent=True, metadata=quiet).decode()
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text[text.index("<svg ") :], count=1, flags=re.DOTALL)
    # In tags only: a name is text, in which < and > are escaped.
    text = re.sub(r"<[^<>]*>", lambda tag: _restyled(tag[0], name), text)
    return text.replace("<svg ", f'<svg class="figure" role="img" aria-label="{html.escape(label)}" ', 1)


def _restyled(tag: str, name: str) -> str:
    """Variables for colours; ids that are unique on a page with several figures, and none for groups."""
    tag = re.sub(r"#0[0-9a-f]0b0c", lambda colour: VARIABLES[colour[0]], " ".join(tag.split()))
    tag = re.sub(r'^(<g) id="[^"]*"', r"\1", tag).replace("xlink:href", "href")
    return re.sub(r'( id="| href="#|url\(#)', rf"\g<1>{name}-", tag)


def _drawn(draw: Draw, theme: Theme, kind: str, **save: Any) -> bytes:
    """Run a drawing and return the file's bytes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with rc_context(SETTINGS), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; that is no reason to print warnings.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(layout="constrained")
        draw(figure, theme)
        figure.savefig(buffer, format=kind, **save)
    return buffer.getvalue()


def _draw_deltas(figure: Figure, theme: Theme, report: EvalReport) -> None:
    retained = wording.retained(report)
    blocks = [rows for rows in ((*wording.targets(report), *wording.transfers(report)), retained) if rows]
    figure.set_size_inches(8.4, 0.8 + 0.29 * len(report.rows) + 0.55 * len(blocks))
    if not blocks:
        return
    axes = figure.subplots(len(blocks), 1, squeeze=False, height_ratios=[len(rows) + 0.6 for rows in blocks])[:, 0]
    for axis, rows in zip(axes, blocks, strict=True):
        _forest(axis, theme, rows, [_row_colour(row, report, theme) for row in rows])
        budget = report.criteria.damage_each * 100
        if rows is retained:
            low = min([-1.4 * budget, *(row.delta.low * 100 for row in rows if math.isfinite(row.delta.low))])
            high = max([budget, *(row.delta.high * 100 for row in rows if math.isfinite(row.delta.high))])
            axis.set_xlim(low * 1.12, high * 1.15)
            axis.axvline(-budget, color=theme.warn, linewidth=1, linestyle=(0, (4, 3)))
            beyond = abs(low) > 8 * budget  # no room between the budget and zero
            label(axis, "damage budget", (-budget, -0.72), -4 if beyond else 4, theme.warn)
        else:
            axis.set_xlim(-104, max([5.0, *(row.delta.high * 115 for row in rows if math.isfinite(row.delta.high))]))
        removed = "To be removed, the formats searched first: change in points"
        removed = removed if wording.transfers(report) else "To be removed: change in points"
        title = "To be kept: change in points" if rows is retained else removed
        axis.set_title(title, loc="left", color=theme.ink, fontsize=9.5, fontweight="bold")


def _draw_dose(figure: Figure, theme: Theme, dose: tuple[Dose, ...], marked: str, chosen: int, goal: float) -> None:
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
    for number, values in enumerate(known):
        named = "each retained task" if number == 0 else None
        # Measured only where the target has fallen far enough: what lies between is not known.
        axis.plot(heads, values, color=theme.rise, linewidth=1, alpha=0.8, marker="o", markersize=3.5, label=named)
    axis.plot(heads, means, color=theme.accent, linewidth=2.2, marker="o", markersize=4.5, label="to be removed")
    axis.axvline(chosen, color=theme.ink, linewidth=1, linestyle=(0, (2, 2)))
    side = -5 if heads and chosen > (heads[0] + heads[-1]) / 2 else 5
    label(axis, marked, (chosen, 108), side, theme.ink)
    if math.isfinite(goal):
        mark_goal(axis, theme, goal)
    axis.set_ylim(-3, 104)
    if max(heads, default=0) <= 16:
        axis.set_xticks(heads)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(nbins=16, integer=True))
    axis.set_xlabel("heads knocked out, strongest first", color=theme.soft)
    axis.set_ylabel("score, %", color=theme.soft)
    calm(axis, theme, grid="y")
    axis.legend(frameon=False, labelcolor=theme.ink, fontsize=9, loc="best")


def _draw_null(figure: Figure, theme: Theme, null: RandomHeads | StrongHeads, ours: str, drawn: str) -> None:
    """``ours`` names the heads of the edit: the removed, or the tried ones; ``drawn`` the others: random or strong."""
    from matplotlib.ticker import MaxNLocator

    figure.set_size_inches(8.4, 2.2)
    axis = figure.subplots()
    observed = null.delta * 100
    values = [delta * 100 for delta in null.deltas if math.isfinite(delta)]
    low, high = min([observed, *values]), max([0.0, observed, *values])
    room = max(high - low, 1.0) * 0.04
    axis.hist(values, bins=60, range=(low - room, high + room), color=theme.rise)
    axis.set_xlim(low - room, high + room)
    top = axis.get_ylim()[1] * 1.2
    axis.set_ylim(0, top)
    axis.axvline(observed, color=theme.accent, linewidth=2.2)
    beside = 5 if observed < (low + high) / 2 else -5
    label(axis, f"{ours}: {wording.points(null.delta)}", (observed, top * 0.9), beside, theme.accent)
    label(axis, f"{null.sets} {drawn} sets", (high, top * 0.9), -5, theme.rise)
    axis.set_xlabel("change of the score, points", color=theme.soft)
    axis.set_ylabel(f"{drawn} sets", color=theme.soft)
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    calm(axis, theme, grid="y")


def _row_colour(row: Row, report: EvalReport, theme: Theme) -> str:
    colours = {"kept": theme.good, "not shown": theme.warn, "lost": theme.bad}
    return colours.get(wording.standing(row, report), theme.accent)


def _forest(axis: Axes, theme: Theme, rows: tuple[Row, ...], colours: list[str]) -> None:
    for height, (row, colour) in enumerate(zip(rows, colours, strict=True)):
        low, mean, high = (100 * change for change in (row.delta.low, row.delta.mean, row.delta.high))
        axis.plot([low, high], [height, height], color=colour, linewidth=2.4, solid_capstyle="round")
        axis.plot([mean], [height], marker="o", markersize=6.5, color=colour)
        _beside(axis, f"{wording.points(row.delta.mean)}  [{wording.span(row.delta)}]", height, theme.ink)
    axis.axvline(0, color=theme.soft, linewidth=1)
    axis.set_yticks(range(len(rows)), [f"{clean(row.task, limit=28)}  (n={row.n})" for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.9)
    calm(axis, theme, grid="x")
    axis.tick_params(axis="y", labelcolor=theme.ink)


def mark_goal(axis: Axes, theme: Theme, goal: float) -> None:
    """A dashed line at ``goal``, a share from 0 to 1, where the axis is in percent."""
    axis.axhline(goal * 100, color=theme.warn, linewidth=1, linestyle=(0, (4, 3)))
    _beside(axis, f"goal: {wording.percent(goal)} %", goal * 100, theme.warn)


def _beside(axis: Axes, text: str, height: float, colour: str) -> None:
    """Text to the right of the axis, at a height in the data."""
    axis.annotate(text, (1.01, height), xycoords=("axes fraction", "data"), va="center", color=colour, fontsize=9)


def label(axis: Axes, text: str, point: tuple[float, float], beside: float, colour: str) -> None:
    """Text ``beside`` typographic points to the right (negative: left) of a point in the data."""
    side = "left" if beside > 0 else "right"
    axis.annotate(
        text,
        point,
        (beside, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        color=colour,
        fontsize=9,
        annotation_clip=False,
    )


def calm(axis: Axes, theme: Theme, grid: Any) -> None:
    axis.set_facecolor("none")
    axis.grid(axis=grid, color=theme.line, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(length=0, labelcolor=theme.soft)
    axis.spines["bottom"].set_color(theme.line)
