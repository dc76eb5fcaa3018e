"""Where results and notes go, and what a stream can carry.

console(sys.stdout).print(table)      a pipe gets the whole table, a stream without Unicode "-" for a minus sign
"""

from __future__ import annotations

import codecs
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from editkit.printable import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

PIPED_WIDTH = 160
"""Columns when the output is no terminal and nobody said how wide it is: enough that no table is cut."""

NEAREST = {"−": "-", "–": "-", "→": "->", "…": "...", "✓": "+", "✗": "x", "█": "#", "’": "'"}


def show(result: RenderableType) -> None:
    """Print a result to stdout: in a file or a pipe without the blanks that fill a line up."""
    stdout = console(sys.stdout)
    if stdout.is_terminal:
        stdout.print(Visible(result))
        return
    with stdout.capture() as captured:
        stdout.print(Visible(result))
    stdout.file.write("\n".join(line.rstrip() for line in captured.get().split("\n")))


@dataclass(frozen=True)
class Visible:
    """A drawing without characters that a terminal would obey: names and answers in it come from others."""

    result: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.result, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def say(text: str) -> None:
    """Print a sentence to stdout: on a terminal lines end between words, elsewhere it is one line."""
    from rich.text import Text

    if console(sys.stdout).is_terminal:
        show(Text(text))
    else:
        print(visible(text))


AS_JSON, DOCUMENT = "editkit.json", "editkit.document"
"""In a click context's ``meta``: whether JSON was asked for; what a command has to say."""


def print_json(value: Mapping[str, Any] | str) -> None:
    """Keep what a command says for its end: an error that follows goes into the same document.

    Args:
        value: an object, or the text of one.
    """
    click.get_current_context().meta[DOCUMENT] = json.loads(value) if isinstance(value, str) else dict(value)


def print_document(ctx: click.Context, error: Mapping[str, Any] | None = None) -> None:
    """Print the one JSON object of a command that was asked for it: what it said, and the error that it ended in.

    Nothing is printed twice, and nothing where there is neither.
    """
    document = ctx.meta.pop(DOCUMENT, {})
    if error is not None and ctx.meta.get(AS_JSON):
        document = {**document, **error}
    if document:
        text = json.dumps(document, indent=2, ensure_ascii=False)
        click.echo(text if visible(text) == text else json.dumps(document, indent=2))


def note(text: str) -> None:
    """A sentence for the person, on stderr."""
    click.secho(fitting(text), dim=True, err=True)


def fitting(text: str) -> str:
    """Text for stderr: on a terminal lines end between words; elsewhere they stay whole."""
    text = visible(text)
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return "\n".join(textwrap.fill(line, width, **options) for line in text.split("\n"))


def console(stream: IO[str] | None) -> Console:
    """A console on ``stream`` that honours NO_COLOR and COLUMNS, and never fails on a character it cannot write.

    Args:
        stream: None where it was closed before the program began: what is printed is lost, as was wished.
    """
    from rich.console import Console

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
    unwritable = error.object[error.start : error.end]
    return "".join(NEAREST.get(character, "?") for character in unwritable), error.end
