"""Which words of two answers differ.

differing("damn that cat", "bless that cat") -> ((("damn", True), (" that cat", False)), (("bless", True), ...))
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

Pieces = tuple[tuple[str, bool], ...]
"""Consecutive pieces of a text; True = not in the other text. Joined they are the text."""

LONGEST = 600
"""Words compared; matching takes quadratic time, and nobody reads a longer marked text."""


def differing(before: str, after: str) -> tuple[Pieces, Pieces]:
    """Split both texts into pieces that they share and pieces that only one of them has."""
    left, right = _words(before), _words(after)
    if max(len(left), len(right)) > LONGEST:
        return ((before, False),), ((after, False),)
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    pieces: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    for tag, left_start, left_end, right_start, right_end in matcher.get_opcodes():
        for side, words in ((0, left[left_start:left_end]), (1, right[right_start:right_end])):
            if words:
                pieces[side].append(("".join(words), tag != "equal"))
    return _joined(pieces[0]), _joined(pieces[1])


def _joined(pieces: list[tuple[str, bool]]) -> Pieces:
    """White space between two differing words differs with them: one mark, not one per word."""
    last = len(pieces) - 1
    changed = [
        mark or (0 < at < last and text.isspace() and pieces[at - 1][1] and pieces[at + 1][1])
        for at, (text, mark) in enumerate(pieces)
    ]
    together: list[tuple[str, bool]] = []
    for (text, _), mark in zip(pieces, changed, strict=True):
        if together and together[-1][1] == mark:
            together[-1] = (together[-1][0] + text, mark)
        else:
            together.append((text, mark))
    return tuple(together)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]", text)
