"""Is a generated text a real answer, or has the model collapsed?

A removal that turns answers into noise is damage, not removal, so every scorer of text asks here first.

    degeneration("68")                              -> ""            (a short answer is an answer)
    degeneration("the the the the the the")         -> "one word repeated"
    degeneration("")                                -> "empty"

All thresholds are conventions of this kit, set so that lists, verses and code pass and loops do not.
"""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_RUN = re.compile(r"([^\s\-=_*.#~])\1{19,}")
GARBLED_SHARE = 0.05
"""More than this share of replacement or control characters is a broken byte stream."""
REPEATED_SHARE = 0.5
"""More than half of the four-word windows seen before: a chorus repeats less, a loop repeats nearly all."""
LONG_TEXT = 12
"""Words from which four-word windows say something."""


def degeneration(text: str) -> str:
    """The reason why ``text`` is no answer at all, or "" if it is one. Never judges whether it is right."""
    if not any(character.isalnum() for character in text):
        return "empty"
    if _garbled(text) > GARBLED_SHARE:
        return "garbled characters"
    if _RUN.search(text):
        return "one character repeated"
    words = [word.lower() for word in _WORD.findall(text)]
    distinct = len(set(words))
    if len(words) >= 4 and distinct == 1:
        return "one word repeated"
    if len(words) >= 8 and distinct == 2:
        return "two words repeated"
    if len(words) >= LONG_TEXT and _repeated(words, 4) > REPEATED_SHARE:
        return "phrases repeated"
    letters = "".join(words)
    if len(letters) >= 80 and _repeated(list(letters), 8) > 0.7:
        return "letters repeated"
    return ""


def _garbled(text: str) -> float:
    """The share of characters that no writer types: U+FFFD and control or unassigned code points."""
    broken = sum(c == "�" or (unicodedata.category(c) in ("Cc", "Cn", "Co", "Cs") and c not in "\n\r\t") for c in text)
    return broken / len(text)


def _repeated(items: list[str], width: int) -> float:
    """The share of windows of ``width`` items that occurred before."""
    windows = [tuple(items[i : i + width]) for i in range(len(items) - width + 1)]
    return 1 - len(set(windows)) / len(windows) if windows else 0.0
