"""The head map: every reachable head with its effect, certainty and role, layer by layer; as values and as a figure.

Cell(head=Head(2, 17), effect=-0.41, low=-0.47, high=-0.35, p=1e-9, selectivity=0.98, role="removed", certain=True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from editkit.edit import Edit
from editkit.evidence.localization import Effect, Localization
from editkit.evidence.outcome import Outcome
from editkit.evidence.provenance import LayerShape, Provenance
from editkit.render import figures
from editkit.render.figures import Theme
from editkit.render.wording import Fate, effect, effect_span, fate, probability
from editkit.units import Head

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Role = Fate | Literal["universal", ""]


@dataclass(frozen=True)
class Cell:
    """One head. ``effect`` is the change of the target's score when it is knocked out; NaN = not measured alone.

    ``certain``: the interval excludes zero, or p < 0.05 where there is no interval.
    """

    head: Head
    effect: float
    low: float
    high: float
    p: float
    selectivity: float
    role: Role
    certain: bool
    rank: int | None
    group: int | None
    given: tuple[str, ...] = ()
    """Shows only with these knocked out as well: then there is no effect of the head alone to draw."""

    @property
    def label(self) -> str:
        """Everything about the head in one line, for hover, keyboard and screen readers."""
        role = "universal: set aside" if self.role == "universal" else self.role
        parts = [f"{self.head}, {role}" if role else str(self.head)]
        if self.given:
            parts.append(f"shows only with {', '.join(self.given)} out as well")
        elif math.isnan(self.effect):
            parts.append("not measured")
        else:
            parts.append(f"effect {effect(self.effect)} points")
            if not math.isnan(self.low):
                parts.append(f"95 % interval {effect_span(self.low, self.high)}")
            if not math.isnan(self.p):
                parts.append(f"p {probability(self.p)}")
            if not math.isnan(self.selectivity):
                parts.append(f"selectivity {self.selectivity:.2f}")
        if self.group is not None:
            parts.append(f"KV group {self.group}")
        return "; ".join(parts)


@dataclass(frozen=True)
class MapLayer:
    layer: int
    cells: tuple[Cell, ...]


def head_map(edit: Edit, localization: Localization, provenance: Provenance) -> tuple[MapLayer, ...]:
    """The layers in order. Without a shape, only the layers and heads that the evidence names are drawn."""
    ranked = {effect.unit: (rank, effect) for rank, effect in enumerate(localization.order, start=1)}
    universal, ours = frozenset(localization.universal), fate(provenance)

    def cell(head: Head, shape: LayerShape) -> Cell:
        rank, measured = ranked.get(head, (None, None))
        measured = measured or Effect(head, math.nan, math.nan, math.nan, math.nan, math.nan)
        role: Role = ours if head in edit.heads else "universal" if head in universal else ""
        group = head.index * shape.groups // shape.heads if shape.groups else None
        return Cell(
            head,
            math.nan if measured.given else measured.effect,
            measured.low,
            measured.high,
            measured.p,
            measured.selectivity,
            role,
            is_certain(measured),
            rank,
            group,
            tuple(map(str, measured.given)),
        )

    shapes = [shape for shape in provenance.shape if shape.heads] or _shape_of_evidence(edit, localization)
    return tuple(
        MapLayer(shape.layer, tuple(cell(Head(shape.layer, index), shape) for index in range(shape.heads)))
        for shape in shapes
    )


def ranks_heads(outcome: Outcome) -> bool:
    """Whether there is anything to draw on a head map."""
    return outcome.edit.kind != "neuron" or any(isinstance(each.unit, Head) for each in outcome.localization.order)


def scale(layers: tuple[MapLayer, ...]) -> float:
    """The largest absolute effect that is known: full colour. At least one point, so that noise stays pale."""
    sizes = [abs(cell.effect) for layer in layers for cell in layer.cells if not math.isnan(cell.effect)]
    return max([0.01, *sizes])


def is_certain(effect: Effect) -> bool:
    if not math.isnan(effect.low):
        return effect.high < 0 or effect.low > 0
    return effect.p < 0.05


def _shape_of_evidence(edit: Edit, localization: Localization) -> tuple[LayerShape, ...]:
    units = {effect.unit for effect in localization.order} | set(localization.universal) | set(edit.units)
    heads = [unit for unit in units if isinstance(unit, Head)]
    width = {layer: max(head.index for head in heads if head.layer == layer) + 1 for layer in {h.layer for h in heads}}
    return tuple(LayerShape(layer, width[layer]) for layer in sorted(width))


def png(edit: Edit, localization: Localization, provenance: Provenance) -> figures.Png:
    """Layers x heads; colour = effect, full square = certain, frame = removed or tried, U = universal."""
    layers, ours = head_map(edit, localization, provenance), fate(provenance)
    return figures.png(lambda figure, theme: _draw(figure, theme, layers, ours))


def _draw(figure: Figure, theme: Theme, layers: tuple[MapLayer, ...], fate: Fate) -> None:
    widest = max((len(layer.cells) for layer in layers), default=1)
    figure.set_size_inches(8.4, min(14.0, 1.35 + max(1, len(layers)) * min(0.34, 7.2 / widest * 1.15)))
    axis = figure.subplots()
    top = scale(layers) * 100
    shade = _shade(theme, top)
    cells = [(column, row, cell) for row, layer in enumerate(layers) for column, cell in enumerate(layer.cells)]
    _squares(axis, [(x, y, 0.46) for x, y, _ in cells], facecolor=theme.paper, edgecolor=theme.line, linewidth=0.5)
    measured = [(x, y, cell) for x, y, cell in cells if not math.isnan(cell.effect)]
    _squares(
        axis,
        [(x, y, 0.46 if cell.certain else 0.22) for x, y, cell in measured],
        facecolor=shade.to_rgba(np.array([cell.effect * 100 for _, _, cell in measured])),
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
    bar.ax.xaxis.set_major_formatter(lambda value, _: effect(value / 100))
    bar.ax.tick_params(length=0, labelcolor=theme.soft, labelsize=8)
    bar.outline.set_visible(False)  # type: ignore[operator]
    _legend(axis, theme, fate, frame, shade)


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


def _legend(axis: Axes, theme: Theme, fate: Fate, frame: dict[str, Any], shade: Any) -> None:
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
