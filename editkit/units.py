"""The units an edit removes: attention heads (``L16H21``) and MLP neurons (``L3N4012``), counted from 0."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from editkit.errors import EditkitError

_UNIT = re.compile(r"L(\d{1,5})([HN])(\d{1,7})")


@dataclass(frozen=True, order=True)
class Head:
    """A query head. ``str(Head(16, 21)) == "L16H21"``."""

    layer: int
    index: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"


@dataclass(frozen=True, order=True)
class Neuron:
    """One coordinate of the down projection's input. ``str(Neuron(3, 4012)) == "L3N4012"``."""

    layer: int
    index: int

    def __str__(self) -> str:
        return f"L{self.layer}N{self.index}"


Unit = Head | Neuron


def parse(text: str) -> Unit:
    """Read ``L16H21`` or ``L3N4012``.

    Raises:
        EditkitError: if the text is anything else.
    """
    match = _UNIT.fullmatch(text.strip())
    if match is None:
        raise EditkitError(
            f"{text.strip()!r} names no head and no neuron: expected a form like L16H21 or L3N4012, counted from 0."
        )
    layer, kind, index = match.groups()
    return (Head if kind == "H" else Neuron)(int(layer), int(index))


def parse_all(text: str) -> frozenset[Unit]:
    """Read a comma- or space-separated list: ``L11H2,L26H7``."""
    return frozenset(parse(part) for part in re.split(r"[,\s]+", text.strip()) if part)


def units(named: Iterable[Unit | str]) -> frozenset[Unit]:
    """Units as they are, names read: ``units([Head(1, 3), "L2H17"])``."""
    return frozenset(unit if isinstance(unit, Head | Neuron) else parse(str(unit)) for unit in named)


def show(chosen: Iterable[Unit]) -> list[str]:
    """The units' names, heads first, then by layer and index: the one order used in files and on screen."""
    return [str(unit) for unit in sorted(chosen, key=lambda unit: (isinstance(unit, Neuron), unit.layer, unit.index))]
