"""The head map as a figure: layers x heads; colour = effect, full square = certain, frame = removed or tried.

draw(figure, theme, headmap.head_map(edit, localization, provenance), "removed")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from editkit.render import headmap, wording
from editkit.render.drawing import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(figure: Figure, theme: Theme, layers: tuple[headmap.MapLayer, ...], fate: wording.Fate) -> None:
    widest = max((len(layer.cells) for layer in layers), default=1)
    figure.set_size_inches(8.4, min(14.0, 1.35 + max(1, len(layers)) * min(0.34, 7.2 / widest * 1.15)))
    axis = figure.subplots()
    top = headmap.scale(layers) * 100
    shade = _shade(theme, top)
    cells = [(column, place, cell) for place, layer in enumerate(layers) for column, cell in enumerate(layer.cells)]
    _squares(axis, [(x, y, 0.46) for x, y, _ in cells], facecolor=theme.paper, edgecolor=theme.line, linewidth=0.5)
    known = [(x, y, cell) for x, y, cell in cells if not math.isnan(cell.effect)]
    _squares(
        axis,
        [(x, y, 0.46 if cell.certain else 0.22) for x, y, cell in known],
        facecolor=shade.to_rgba(np.array([cell.effect * 100 for _, _, cell in known])),
        linewidth=0,
    )
    ringed = [(x, y, 0.46) for x, y, cell in cells if cell.role == fate]
    frame: dict[str, Any] = {"facecolor": "none", "edgecolor": theme.ink, "linewidth": 1.8}
    frame |= {"linestyle": "-" if fate == "removed" else (0, (1.6, 0.8))}
    _squares(axis, ringed, **frame)
    for x, y, cell in cells:
        if cell.role == "universal":
            axis.text(x, y + 0.03, "U", ha="center", va="center", fontsize=7.5, color=theme.soft)
        if x and cell.group != layers[y].cells[x - 1].group:
            axis.plot([x - 0.5] * 2, [y - 0.5, y + 0.5], color=theme.soft, linewidth=0.5)
    axis.set_xlim(-0.6, widest - 0.4)
    axis.set_ylim(len(layers) - 0.4, -0.6)
    axis.set_aspect("equal" if widest <= 40 else "auto")
    axis.set_yticks(range(len(layers)), [f"L{layer.layer}" for layer in layers])
    step = math.ceil(widest / 24)
    axis.set_xticks(range(0, widest, step), [str(index) for index in range(0, widest, step)])
    axis.tick_params(length=0, labelcolor=theme.soft, labelsize=8)
    axis.set_xlabel("head", color=theme.soft)
    axis.spines["bottom"].set_visible(False)
    bar = figure.colorbar(shade, ax=axis, orientation="horizontal", shrink=0.36, aspect=34, pad=0.02, anchor=(1, 1))
    bar.set_label("effect of switching off this head alone, points", color=theme.soft, fontsize=8)
    bar.ax.set_xticks([-top, -top / 4, 0, top / 4, top])
    bar.ax.xaxis.set_major_formatter(lambda value, _: wording.effect(value / 100))
    bar.ax.tick_params(length=0, labelcolor=theme.soft, labelsize=8)
    bar.outline.set_visible(False)  # type: ignore[operator]
    _map_legend(axis, theme, fate, frame, shade)


def _shade(theme: Theme, top: float) -> Any:
    """Colours by the square root of the effect, as on the page: a small but certain one must not look like none."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import FuncNorm, LinearSegmentedColormap

    def root(values: np.ndarray) -> np.ndarray:
        return np.sign(values) * np.sqrt(np.abs(values))

    def square(values: np.ndarray) -> np.ndarray:
        return np.sign(values) * np.square(values)

    colours = LinearSegmentedColormap.from_list("effect", [theme.accent, theme.paper, theme.rise])
    return ScalarMappable(FuncNorm((root, square), -top, top), colours)


def _map_legend(axis: Axes, theme: Theme, fate: wording.Fate, frame: dict[str, Any], shade: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.textpath import TextPath

    letter: Any = TextPath((-3, -3), "U", size=8)
    tint = shade.cmap(0.12)
    square: dict[str, Any] = {"linestyle": "none", "marker": "s", "color": tint}
    handles = [
        Patch(label=fate, **frame),
        Line2D([], [], linestyle="none", marker=letter, color=theme.soft, label="universal, set aside", markersize=7),
        Line2D([], [], label="certain: the interval excludes zero", markersize=10, **square),
        Line2D([], [], label="not certain", markersize=5, **square),
    ]
    axis.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(handles),
        frameon=False,
        fontsize=8,
        labelcolor=theme.soft,
        handlelength=1.1,
        handleheight=1.1,
        borderpad=0.2,
        borderaxespad=0.3,
        columnspacing=1.6,
    )


def _squares(axis: Axes, squares: Sequence[tuple[float, float, float]], **look: Any) -> None:
    """Squares by centre and half side, as one artist: a large model has thousands."""
    from matplotlib.collections import PolyCollection

    corners = [[(x - h, y - h), (x + h, y - h), (x + h, y + h), (x - h, y + h)] for x, y, h in squares]
    if corners:
        axis.add_collection(PolyCollection(corners, **look))
