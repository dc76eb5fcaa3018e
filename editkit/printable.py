"""Text of others in messages: without characters that a terminal would obey.

printable("a\\x1b[2Jb\\nc")   "a\\\\x1b[2Jb\\\\x0ac"     a name, in a sentence: one line, and short
visible("a\\x1b[2Jb\\nc")     "a\\\\x1b[2Jb" and "c"   what is printed, whole: lines stay
"""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]")
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Of these, what moves the cursor or turns the text, or cannot be written; not what only joins letters."""


def is_printable(text: str) -> bool:
    """No control characters, no invisible or direction-changing ones, no line breaks."""
    return _UNPRINTABLE.search(text) is None


def printable(text: str) -> str:
    """The text for a message: short, and without characters that a terminal would obey."""
    shown = _UNPRINTABLE.sub(_named, text)
    return shown if len(shown) <= 200 else shown[:200] + "..."


def visible(text: str) -> str:
    """The text as it is printed in the end, tabs and line breaks kept: the last gate of everything that is shown."""
    return _OBEYED.sub(_named, text)


def _named(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"
