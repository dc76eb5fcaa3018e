"""An edit says *what* was removed from which model, never *how*: a few hundred bytes of JSON.

{"format": 1, "base": {"model": "meta-llama/Llama-3.2-1B-Instruct", "revision": "9213176..."},
 "kind": "head", "units": ["L3H5", "L11H2"]}
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from editkit.errors import EditkitError
from editkit.units import Head, Neuron, Unit, kind, parse, show

FORMAT = 1


@dataclass(frozen=True)
class Base:
    """The unedited model. ``revision`` is a Hub commit, or ``sha256:`` of the weights for a local directory."""

    model: str
    revision: str | None = None


@dataclass(frozen=True)
class Edit:
    """Base model and the units to knock out: heads, neurons, or both. The empty edit is allowed."""

    base: Base
    units: frozenset[Unit]

    @property
    def kind(self) -> Literal["head", "neuron", "unit"]:
        """What its units are called: ``unit`` where there are both."""
        return kind(self.units)

    @property
    def heads(self) -> frozenset[Head]:
        return frozenset(unit for unit in self.units if isinstance(unit, Head))

    @property
    def neurons(self) -> frozenset[Neuron]:
        return frozenset(unit for unit in self.units if isinstance(unit, Neuron))

    @property
    def digest(self) -> str:
        """sha256 of the JSON form: the name of this edit."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        value = {
            "format": FORMAT,
            "base": {"model": self.base.model, "revision": self.base.revision},
            "kind": self.kind,
            "units": show(self.units),
        }
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str = "edit.json") -> Edit:
        """Read an edit.

        Raises:
            EditkitError: naming ``where`` and the offending field, for anything that is not an edit of this format.
        """
        try:
            value: Any = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise EditkitError(f"{where} is not JSON: {error}.") from error
        if not isinstance(value, dict):
            raise EditkitError(f"{where}: expected a JSON object, found {type(value).__name__}.")
        if value.get("format") != FORMAT:
            raise EditkitError(
                f"{where}: expected format {FORMAT}, found {value.get('format')!r:.60}; another editkit wrote it."
            )
        base, names = value.get("base"), value.get("units")
        if not isinstance(base, dict) or not isinstance(base.get("model"), str) or not _is_text(base["model"]):
            raise EditkitError(f'{where}: "base" must be an object with the name of a "model", found {base!r:.60}.')
        revision = base.get("revision")
        if revision is not None and not (isinstance(revision, str) and _is_text(revision)):
            raise EditkitError(f'{where}: "base.revision" must be text or null, found {revision!r:.60}.')
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise EditkitError(f'{where}: "units" must be a list of names like "L3H5", found {names!r:.60}.')
        edit = cls(Base(base["model"], revision), frozenset(parse(name) for name in names))
        if names and value.get("kind") != edit.kind:
            raise EditkitError(f'{where}: "kind" is {value.get("kind")!r:.60} but the units are of kind {edit.kind!r}.')
        return edit


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise ValueError(f"{twice!r} appears twice")
    return value


def _is_text(value: str) -> bool:
    """JSON can smuggle in half a character, which no file or name can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
