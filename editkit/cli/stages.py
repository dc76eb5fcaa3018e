"""Progress for people: a bar with the time left on a terminal, else a line for each stage that took time. On stderr.

with stages()("Finding heads", 4000) as advance:
    advance(100)

Finding heads  ━━━━━━━╸━━━━━━━━  1,203/4,000  0:00:41  0:01:35 left
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from editkit.cli import streams
from editkit.progress import Advance, Stages
from editkit.render.inert import clean


def stages(console: Console | None = None, *, shortest: float = 0.5) -> Stages:
    """The way work tells people that it advances; stages may be nested, and each leaves one line.

    Args:
        shortest: away from a terminal, a stage of fewer seconds (its measurements were there already) leaves none.
    """
    place = console or streams.console(sys.stderr)
    return _bars(place) if place.is_terminal else _lines(place, shortest)


def _lines(console: Console, shortest: float) -> Stages:
    @contextmanager
    def stage(title: str, total: int | None = None) -> Iterator[Advance]:
        start, done = time.monotonic(), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count

        yield advance
        seconds, number = time.monotonic() - start, f" {done:,}," if done else ""
        if seconds >= shortest:
            console.print(Text(f"{clean(title)}:{number} {_clock(seconds)}"))

    return stage


def _bars(console: Console) -> Stages:
    open_bars: list[Progress] = []

    @contextmanager
    def stage(title: str, total: int | None = None) -> Iterator[Advance]:
        # One live display at a time: a nested stage is a further line of the outer one.
        outer = open_bars[-1] if open_bars else None
        bars = outer or _progress(console)
        if outer is None:
            bars.start()
            open_bars.append(bars)
        task = bars.add_task(clean(title, limit=40), total=total)
        try:
            yield lambda count: bars.advance(task, count)
            done = bars.tasks[bars.task_ids.index(task)].completed
            bars.update(task, total=done or 1, completed=done or 1)
        finally:
            bars.stop_task(task)
            if outer is None:
                open_bars.remove(bars)
                bars.stop()

    return stage


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓[/green]"),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=20)),
        BarColumn(bar_width=24 if console.width >= 72 else 8),
        _Count(),
        _Time(),
        console=console,
    )


class _Count(ProgressColumn):
    def render(self, task: Task) -> Text:
        if task.total is None or task.finished:
            return Text(f"{task.completed:,.0f}" if task.completed > 1 else "", "dim", justify="right")
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}", justify="right")


class _Time(ProgressColumn):
    """Elapsed when done or when the total is unknown; else the time left."""

    def render(self, task: Task) -> Text:
        if task.finished or task.total is None:
            return Text(_clock(task.elapsed or 0.0), "dim")
        left = task.time_remaining
        return Text("…" if left is None else f"{_clock(left)} left", "cyan")


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
