"""The units an edit removes: attention heads (``L16H21``) and MLP neurons (``L3N4012``), counted from 0.

In a mixture of experts a neuron belongs to an expert: ``L3E7N120``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from editkit.errors import EditkitError

_UNIT = re.compile(r"L(\d{1,5})(?:H(\d{1,7})|(?:E(\d{1,5}))?N(\d{1,7}))")
PLAIN = -1
"""The expert of a neuron that belongs to none."""


@dataclass(frozen=True, order=True)
class Head:
    """A query head. ``str(Head(16, 21)) == "L16H21"``."""

    layer: int
    index: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"


@dataclass(frozen=True, order=True)
class Neuron:
    """One coordinate of the input of an MLP's down projection. ``str(Neuron(3, 4012)) == "L3N4012"``.

    Of the layer's own MLP, or of one routed expert: ``str(Neuron(3, 120, expert=7)) == "L3E7N120"``.
    """

    layer: int
    index: int
    expert: int = PLAIN

    def __str__(self) -> str:
        return f"L{self.layer}N{self.index}" if self.expert == PLAIN else f"L{self.layer}E{self.expert}N{self.index}"


Unit = Head | Neuron
SomeUnit = TypeVar("SomeUnit", Head, Neuron, Unit)


def parse(text: str) -> Unit:
    """Read ``L16H21``, ``L3N4012`` or ``L3E7N120``.

    Raises:
        EditkitError: if the text is anything else.
    """
    match = _UNIT.fullmatch(text.strip())
    if match is None:
        raise EditkitError(
            f"{text.strip()!r:.60} names no head and no neuron: expected a form like L16H21 or L3N4012, counted from 0."
        )
    layer, head, expert, neuron = match.groups()
    if head is not None:
        return Head(int(layer), int(head))
    return Neuron(int(layer), int(neuron), PLAIN if expert is None else int(expert))


def parse_all(text: str) -> frozenset[Unit]:
    """Read a comma- or space-separated list, as a person types it: ``L11H2,l26h7``."""
    return frozenset(parse(name.upper()) for name in re.split(r"[,\s]+", text.strip()) if name)


def units(named: Iterable[Unit | str]) -> frozenset[Unit]:
    """Units as they are, names read: ``units([Head(1, 3), "L2H17"])``."""
    return frozenset(unit if isinstance(unit, Head | Neuron) else parse(str(unit)) for unit in named)


def kind(chosen: Iterable[Unit]) -> Literal["head", "neuron", "unit"]:
    """What they are called: ``unit`` where there are both."""
    heads = {isinstance(unit, Head) for unit in chosen}
    return "unit" if len(heads) > 1 else "neuron" if heads == {False} else "head"


def in_order(chosen: Iterable[SomeUnit]) -> list[SomeUnit]:
    """Heads first, then by layer, expert and index: the one order used in files and on screen."""
    return sorted(chosen, key=_rank)


def show(chosen: Iterable[Unit]) -> list[str]:
    """The units' names, in order."""
    return [str(unit) for unit in in_order(chosen)]


def _rank(unit: Unit) -> tuple[bool, int, int, int]:
    return isinstance(unit, Neuron), unit.layer, unit.expert if isinstance(unit, Neuron) else PLAIN, unit.index
