"""Evidence of others as values of ours: every field is there and of its kind, every number finite.

typed(Interval, document('{"mean": 0.5, "low": 0.4, "high": 0.6}'))     Interval(0.5, 0.4, 0.6)
typed(Interval, document('{"mean": "high"}'))                          TypeError: mean: Input should be a valid number
document('{"mean": 1e999}')                                            ValueError: 1e999 is no finite number
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

Kind = TypeVar("Kind")


def document(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError, RecursionError: it is none.
    """
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def typed(kind: type[Kind], value: Any) -> Kind:
    """The value of ``document`` as a dataclass, or as what else a type names.

    Raises:
        TypeError: naming the first field that is missing, unknown or of another kind.
    """
    if is_dataclass(kind) and isinstance(value, dict):
        unknown = sorted(value.keys() - {field.name for field in fields(kind)})
        if unknown:
            raise TypeError(f"{unknown[0]!r:.60} is no field of it")
    try:
        made = _adapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise TypeError(f"{'.'.join(map(str, first['loc']))[:200]}: {first['msg']}".removeprefix(": ")) from error
    try:
        json.dumps(_adapter(kind).dump_python(made), allow_nan=False)
    except ValueError as error:  # a whole number may be as long as it likes, but not where a fraction may stand
        raise TypeError("a number is too large") from error
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.20} is no finite number")
    return number
