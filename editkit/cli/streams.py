"""Where results and notes go, and what a stream can carry.

console(sys.stdout).print(table)      a pipe gets the whole table, a stream without Unicode "-" for a minus sign
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import IO

from rich.console import Console, RenderableType
from rich.text import Text

PIPED_WIDTH = 160
"""Columns when the output is no terminal and nobody said how wide it is: enough that no table is cut."""

NEAREST = {"−": "-", "–": "-", "→": "->", "…": "...", "✓": "+", "✗": "x", "█": "#", "’": "'"}


def show(result: RenderableType) -> None:
    """Print a result to stdout: in a file or a pipe without the blanks that fill a line up."""
    place = console(sys.stdout)
    if place.is_terminal:
        place.print(result)
        return
    with place.capture() as captured:
        place.print(result)
    place.file.write("\n".join(line.rstrip() for line in captured.get().split("\n")))


def say(text: str) -> None:
    """Print a sentence to stdout: on a terminal lines end between words, elsewhere it is one line."""
    if console(sys.stdout).is_terminal:
        show(Text(text))
    else:
        print(text)


def console(stream: IO[str] | None) -> Console:
    """A console on ``stream`` that honours NO_COLOR and COLUMNS, and never fails on a character it cannot write.

    Args:
        stream: None where it was closed before the program began: what is printed is lost, as was wished.
    """
    if stream is None:
        stream = io.StringIO()
    if hasattr(stream, "reconfigure"):
        codecs.register_error("editkit", _nearest)
        stream.reconfigure(errors="editkit")  # type: ignore[attr-defined]
    piped = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(file=stream, width=PIPED_WIDTH if piped else None, highlight=False, emoji=False)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """What a stream without Unicode shows: a minus sign must not become a question mark."""
    assert isinstance(error, UnicodeEncodeError), "only writing can fail so"
    found = error.object[error.start : error.end]
    return "".join(NEAREST.get(character, "?") for character in found), error.end
