"""What is wrong with a recipe or a study, a sentence per key, from what pydantic found.

validated({"goal": 1.5, "retian": [], ...}, Recipe, "mine.yaml")
EditkitError: mine.yaml: goal: Input should be less than or equal to 1, found 1.5.
              mine.yaml: unknown key 'retian' (did you mean 'retain'?). Known keys: capability, target, retain, ...
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from editkit.errors import EditkitError

Table = TypeVar("Table", bound=BaseModel)

MOST = 20
"""Mistakes that are told at once."""
_OWN = re.compile(r"str|(function-|literal\[|constrained-|dict\[).*")
"""Parts of a place that pydantic adds: which of several allowed kinds was tried."""


def validated(value: Any, table: type[Table], where: str = "") -> Table:
    """A value as a ``table``.

    Args:
        where: names the value in errors.

    Raises:
        EditkitError: a sentence per mistake.
    """
    try:
        return table.model_validate(value)
    except ValidationError as error:
        before = f"{where}: " if where else ""
        lines = [f"{before}{line}" for line in islice(_complaints(error, table), MOST)]
        more = error.error_count() - len(lines)
        raise EditkitError("\n".join(lines) + (f"\n{before}and {more} more mistakes." if more else "")) from error


def _complaints(error: ValidationError, table: type[BaseModel]) -> Iterator[str]:
    """One sentence per mistake; ``table`` is what was expected."""
    for mistake in error.errors():
        # A key that is unknown or missing is named, whatever it is called.
        keys = mistake["loc"][-1:] if mistake["type"] in ("extra_forbidden", "missing") else ()
        steps = mistake["loc"][: len(mistake["loc"]) - len(keys)]
        path = [*(step for step in steps if not _OWN.fullmatch(str(step))), *keys]
        key, actual = ".".join(map(str, path))[:200], f"found {mistake['input']!r:.60}"
        if mistake["type"] == "extra_forbidden":
            known = list(_table_at(path[:-1], table).model_fields)
            yield f"unknown key {key!r}{nearest(str(path[-1]), known)}. Known keys: {', '.join(known)}."
        elif mistake["type"] == "missing":
            yield f"the key {key!r} is missing."
        elif mistake["type"] == "value_error":
            yield f"{key}: {mistake.get('ctx', {})['error']}".removeprefix(": ")
        elif mistake["type"] == "too_short":
            yield f"{key}: expected at least {mistake.get('ctx', {})['min_length']} in this list, {actual}."
        else:
            yield f"{key}: {mistake['msg']}, {actual}."


def nearest(name: str, known: Iterable[str]) -> str:
    """What may have been meant, in brackets; nothing if nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _table_at(path: list[Any], table: type[BaseModel]) -> type[BaseModel]:
    for step in path:
        field = table.model_fields.get(step) if isinstance(step, str) else None
        table = next(_tables(field.annotation), table) if field else table
    return table


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _tables(argument)
