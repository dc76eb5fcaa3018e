"""What was found: units in order of effect, each with an interval, and diagnostics that say whether to believe it.

Localization(method="auto", order=(Effect(L3H8, -.31, low=-.38, high=-.24, p=.0003, selectivity=.97), ...), found=True)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from editkit.units import Unit, parse


@dataclass(frozen=True)
class Effect:
    """One unit of a localization. ``selectivity`` = target drop / (target drop + mean drop of the retained tasks)."""

    unit: Unit
    effect: float
    low: float
    high: float
    p: float
    selectivity: float
    given: tuple[Unit, ...] = ()
    """Where not empty: the effect is what this unit adds to the knockout of these, not what it does alone."""
    stability: float = math.nan
    """The share of random halves of the masks (css, csb) or of the examples (all others) in which the unit shows."""


@dataclass(frozen=True)
class Localization:
    """Effects and an order of units, strongest first, with diagnostics (see CONTRACT: ``localization.json``)."""

    method: str
    seed: int
    evaluations: float
    order: tuple[Effect, ...]
    universal: tuple[Unit, ...]
    found: bool
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    formats: tuple[Unit, ...] = ()
    """Format heads among the found: letter choices fail without them, the same questions asked as text do not."""

    def __repr__(self) -> str:
        first = ", ".join(f"{effect.unit} {effect.effect:+.2f}" for effect in self.order[:5])
        more = f", and {len(self.order) - 5} more" if len(self.order) > 5 else ""
        said = "" if self.found else "not localized; "
        return f"<Localization by {self.method}, {self.evaluations:.0f} passes: {said}{first}{more}>"

    def top(self, count: int) -> frozenset[Unit]:
        """The ``count`` units with the strongest effect; universal heads are never among them."""
        special = [effect.unit for effect in self.order if effect.unit not in self.universal]
        return frozenset(special[:count])

    def to_json(self) -> str:
        value = asdict(self)
        value["order"] = [
            asdict(effect) | {"unit": str(effect.unit), "given": [str(unit) for unit in effect.given]}
            for effect in self.order
        ]
        for name in ("universal", "formats"):
            value[name] = [str(unit) for unit in getattr(self, name)]
        return json.dumps(_finite(value), indent=2, default=float) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Localization:
        value = json.loads(text)
        order = tuple(
            Effect(
                parse(row["unit"]),
                *(_number(row[key]) for key in ("effect", "low", "high", "p", "selectivity")),
                given=tuple(parse(name) for name in row.get("given", ())),
                stability=_number(row.get("stability")),
            )
            for row in value["order"]
        )
        universal, formats = (tuple(parse(name) for name in value.get(key, ())) for key in ("universal", "formats"))
        method, seed, evaluations = (value[key] for key in ("method", "seed", "evaluations"))
        return cls(method, seed, evaluations, order, universal, value["found"], value["diagnostics"], formats)


def _finite(value: Any) -> Any:
    """NaN has no JSON form: unknown numbers are null."""
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(child) for child in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
