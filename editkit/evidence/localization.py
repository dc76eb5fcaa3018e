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

from editkit.errors import EditkitError
from editkit.evidence.typed import document, typed
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
    def from_json(cls, text: str, *, where: str = "localization.json") -> Localization:
        """Back from ``to_json``.

        Raises:
            EditkitError: naming ``where`` when the text is no localization.
        """
        try:
            told = typed(_Told, document(text))
            order = tuple(
                Effect(
                    parse(row.unit),
                    *(_number(each) for each in (row.effect, row.low, row.high, row.p, row.selectivity)),
                    given=tuple(map(parse, row.given)),
                    stability=_number(row.stability),
                )
                for row in told.order
            )
            universal, formats = (tuple(map(parse, names)) for names in (told.universal, told.formats))
        except (ValueError, TypeError, RecursionError, EditkitError) as error:
            raise EditkitError(f"{where}: expected what a search found, found something else: {error}.") from error
        return cls(told.method, told.seed, told.evaluations, order, universal, told.found, told.diagnostics, formats)


@dataclass(frozen=True)
class _Row:
    """An effect as it is in the file: units by name, unknown numbers null."""

    unit: str
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    selectivity: float | None
    given: tuple[str, ...] = ()
    stability: float | None = None


@dataclass(frozen=True)
class _Told:
    """The whole file."""

    method: str
    seed: int
    evaluations: float
    order: tuple[_Row, ...]
    found: bool
    diagnostics: dict[str, Any]
    universal: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


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
    return math.nan if value is None else value
