"""Progress for people: a bar with the time left on a terminal, else a line for each stage that took time, and one every
ten seconds while it runs. On stderr.

with on_stderr()("Finding heads", 4000) as advance:
    advance(100)

Finding heads  ━━━━━━━╸━━━━━━━━ 1203/4000 30/s 01:35
Finding heads ... 1,203 of 4,000, 40 s; 30/s, 1:35 left
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from editkit.cli import streams
from editkit.progress import Advance, Stages
from editkit.render.inert import clean


def on_stderr(console: Console | None = None, *, shortest: float = 0.5, every: float = 10.0) -> Stages:
    """The way work tells people that it advances; stages may be nested, and each leaves one line.

    Args:
        shortest: away from a terminal, a stage of fewer seconds (its measurements were there already) leaves none.
        every: seconds from one line to the next there, while a stage runs.
    """
    return _stages(console, shortest, every) if console else _shared(sys.stderr, shortest, every)


@lru_cache(maxsize=1)
def _shared(stderr: TextIO | None, shortest: float, every: float) -> Stages:
    """One for all of a command, whoever asks: a stage that runs within another's is known to be so."""
    return _stages(streams.console(stderr), shortest, every)


def _stages(console: Console, shortest: float, every: float) -> Stages:
    return _bars(console) if console.is_terminal else _lines(console, shortest, every)


def _lines(console: Console, shortest: float, every: float) -> Stages:
    open_stages: list[object] = []

    @contextmanager
    def stage(title: str, total: int | None = None) -> Iterator[Advance]:
        start, done, this, ended = time.monotonic(), 0, object(), threading.Event()

        def advance(count: int) -> None:
            nonlocal done
            done += count

        def tell_now_and_then() -> None:
            while not ended.wait(every):
                if open_stages[-1:] == [this]:  # a stage within it tells for both
                    of = f" of {total:,}" if total else ""
                    number = f" {done:,}{of}," if done or total else ""
                    seconds = time.monotonic() - start
                    console.print(Text(f"{clean(title)} ...{number} {_clock(seconds)}{_pace(done, total, seconds)}"))

        open_stages.append(this)
        threading.Thread(target=tell_now_and_then, daemon=True).start()
        try:
            yield advance
        finally:
            ended.set()
            open_stages.remove(this)
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
        MofNCompleteColumn(),
        *([_Speed()] if console.width >= 72 else []),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=console,
    )


class _Speed(ProgressColumn):
    """How much is done in a second."""

    def render(self, task: Task) -> Text:
        return Text(_rate(task.speed) if task.speed and not task.finished else "", style="progress.data.speed")


def _pace(done: int, total: int | None, seconds: float) -> str:
    """How soon, and how long still: where that can be told."""
    if not (done and total):
        return ""
    return f"; {_rate(done / seconds)}, {_clock(seconds * max(0, total - done) / done)} left"


def _rate(speed: float) -> str:
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s"


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
