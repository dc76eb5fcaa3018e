"""The shapes that results have on the terminal: pairs of names and values, tables that fit their width."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from editkit.render.inert import clean


def pairs(facts: Mapping[str, Any]) -> RenderableType:
    """Names and values, aligned; values are wrapped, not cut."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(clean(str(name), limit=80)), Text(clean(str(value), limit=2000)))
    return table


@dataclass(frozen=True)
class Fitting:
    """Builds for the width at hand: the number of columns that are left to it."""

    build: Callable[[int], RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions):
        yield self.build(options.max_width)


def columns(*titles: str, caption: str = "") -> Table:
    """A plain table; a title with a leading # is a column of numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), header_style="dim", show_edge=False, caption_justify="left")
    table.caption = Text(f" {caption}", "dim") if caption else None
    for title in titles:
        number = title.startswith("#")
        table.add_column(title[1:] if number and len(title) > 1 else title, justify="right" if number else "left")
    return table
