"""The head map: every reachable head with its effect, certainty and role, layer by layer.

Cell(head=Head(2, 17), effect=-0.41, low=-0.47, high=-0.35, p=1e-9, selectivity=0.98, role="removed", certain=True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from editkit.edit import Edit
from editkit.evidence.localization import Effect, Localization
from editkit.evidence.provenance import LayerShape, Provenance
from editkit.render.wording import Fate, effect, effect_span, fate, probability
from editkit.units import Head

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
        rank, found = ranked.get(head, (None, None))
        found = found or Effect(head, math.nan, math.nan, math.nan, math.nan, math.nan)
        role: Role = ours if head in edit.heads else "universal" if head in universal else ""
        group = head.index * shape.groups // shape.heads if shape.groups else None
        return Cell(
            head,
            math.nan if found.given else found.effect,
            found.low,
            found.high,
            found.p,
            found.selectivity,
            role,
            is_certain(found),
            rank,
            group,
            tuple(map(str, found.given)),
        )

    shapes = provenance.shape or _shape_of_evidence(edit, localization)
    return tuple(
        MapLayer(shape.layer, tuple(cell(Head(shape.layer, index), shape) for index in range(shape.heads)))
        for shape in shapes
    )


def scale(layers: tuple[MapLayer, ...]) -> float:
    """The largest absolute effect that is known: full colour. At least one point, so that noise stays pale."""
    known = [abs(cell.effect) for layer in layers for cell in layer.cells if not math.isnan(cell.effect)]
    return max([0.01, *known])


def is_certain(effect: Effect) -> bool:
    if not math.isnan(effect.low):
        return effect.high < 0 or effect.low > 0
    return effect.p < 0.05


def _shape_of_evidence(edit: Edit, localization: Localization) -> tuple[LayerShape, ...]:
    units = {effect.unit for effect in localization.order} | set(localization.universal) | set(edit.units)
    heads = [unit for unit in units if isinstance(unit, Head)]
    width = {layer: max(head.index for head in heads if head.layer == layer) + 1 for layer in {h.layer for h in heads}}
    return tuple(LayerShape(layer, width[layer]) for layer in sorted(width))
