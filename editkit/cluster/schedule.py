"""Who does which piece of work: pieces out to workers, results in, whatever dies or hangs on the way. Pure.

    Schedule(crew).run((piece, arrived) for ...)      # each piece is done once, ``arrived`` called here

Nothing here knows what a worker is: a ``Crew`` sends pieces and tells what happened. What a piece is and how it is cut
never depends on the crew, so no result does.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from editkit.errors import EditkitError
from editkit.models.pool import Arrived, Piece

DEADLY = 3
"""Different workers that may die of a piece before it is taken for the cause."""
PATIENCE = 10.0
"""A piece may take so many times what the slowest one took so far, token for token, and as many times as loading."""


@dataclass(frozen=True)
class Ready:
    """A worker has loaded the model.

    Args:
        seconds: that loading took.
        pace: seconds a token took in a first try, alone: no batch is slower.
    """

    worker: str
    seconds: float
    pace: float


@dataclass(frozen=True)
class Answered:
    """A worker did a piece."""

    worker: str
    number: int
    result: Any


@dataclass(frozen=True)
class Failed:
    """A worker is well, but a piece raised an error, as it would on any worker."""

    worker: str
    number: int
    error: Exception


@dataclass(frozen=True)
class Died:
    """A worker is gone, and what it had been sent with it.

    Args:
        why: for a message: what is known, and the end of its log.
    """

    worker: str
    why: str


Event = Ready | Answered | Failed | Died


class Crew(Protocol):
    """Workers that come and go. A name is never used again: who comes back is another worker."""

    def send(self, worker: str, number: int, piece: Piece) -> None:
        """Put a piece behind what the worker has to do."""
        ...

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """What happened, in order; empty where nothing did for so many seconds.

        Raises:
            EditkitError: nobody is left, and nobody will come.
        """
        ...

    def end(self, worker: str) -> str:
        """Make a worker stop; nothing is heard of it any more. Returns the end of its log."""
        ...

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""
        ...


@dataclass(eq=False)
class _Task:
    """One piece, who hears of its result, and who died of it.

    Args:
        wanted: not any more, where the run that sent it has ended.
        harmless: none of its requests kills alone; that has been tried.
    """

    piece: Piece
    arrived: Arrived
    deaths: dict[str, str] = field(default_factory=dict)
    wanted: bool = True
    harmless: bool = False

    @cached_property
    def tokens(self) -> int:
        """Counted once: after each event it is asked of all that are under way."""
        return self.piece.tokens


@dataclass
class _Bench:
    """What one worker has been sent, first in first out: number -> task; and since when it is at the first."""

    pace: float
    loading: float
    since: float = 0.0
    sent: dict[int, _Task] = field(default_factory=dict)


@dataclass
class Schedule:
    """Every piece is done once. Keeps from run to run who is there and what they are still at."""

    crew: Crew
    pace: float = 0.0
    """Seconds that a token took at most, of all pieces so far."""
    _benches: dict[str, _Bench] = field(default_factory=dict)
    _waiting: deque[_Task] = field(default_factory=deque)
    _numbers: int = 0

    @property
    def workers(self) -> int:
        """How many have loaded the model and are there."""
        return len(self._benches)

    def run(self, work: Iterable[tuple[Piece, Arrived]]) -> None:
        """Do every piece; ``work`` is drawn from as workers become free.

        Raises:
            EditkitError: a piece failed, three workers died of one request, or nobody is left.
            Exception: what a piece, ``work`` or ``arrived`` raised. What has arrived stays; the rest is forgotten.
        """
        source = (_Task(piece, arrived) for piece, arrived in work)
        try:
            while self._hand_out(source) or self._flying:
                for event in self.crew.wait(self._patience()):
                    self._heard(event)
                self._end_hung()
        finally:
            self._waiting.clear()
            for task in (task for bench in self._benches.values() for task in bench.sent.values()):
                task.wanted = False

    def open(self) -> None:
        """Wait for the first worker."""
        while not self._benches:
            for event in self.crew.wait(None):
                self._heard(event)

    @property
    def _flying(self) -> bool:
        return any(task.wanted for bench in self._benches.values() for task in bench.sent.values())

    def _hand_out(self, source: Iterator[_Task]) -> bool:
        """Give each worker something to do; whether anything still waits.

        A second piece each, so that nobody waits for this process, as long as there is one more for everybody: else
        the last pieces would queue behind others while workers are idle.
        """
        for depth in (0, 1):
            for name, bench in self._benches.items():
                wanted = 1 if depth == 0 else len(self._benches)
                while len(self._waiting) < wanted and (task := next(source, None)) is not None:
                    self._waiting.append(task)
                if len(self._waiting) < wanted:
                    return bool(self._waiting)
                if len(bench.sent) == depth:
                    self._send(name, bench, self._waiting.popleft())
        if not self._waiting and (task := next(source, None)) is not None:
            self._waiting.append(task)
        return bool(self._waiting)

    def _send(self, name: str, bench: _Bench, task: _Task) -> None:
        self._numbers += 1
        if not bench.sent:
            bench.since = self.crew.now()
        bench.sent[self._numbers] = task
        self.crew.send(name, self._numbers, task.piece)

    def _heard(self, event: Event) -> None:
        if isinstance(event, Ready):
            self._benches[event.worker] = _Bench(event.pace, event.seconds)
        elif event.worker not in self._benches:
            return  # one that was ended
        elif isinstance(event, Died):
            self._lost(event.worker, event.why)
        else:
            bench = self._benches[event.worker]
            task, now = bench.sent.pop(event.number), self.crew.now()
            if task.wanted and isinstance(event, Failed):
                raise event.error
            if isinstance(event, Answered):
                self.pace = max(self.pace, (now - bench.since) / max(1, task.tokens))
            if task.wanted and isinstance(event, Answered):
                task.arrived(event.result)
            bench.since = self.crew.now()

    def _lost(self, worker: str, why: str) -> None:
        """The first of what it had may have been the cause; all goes to others, first in line."""
        bench = self._benches.pop(worker)
        tasks = list(bench.sent.values())
        for task in tasks[:1]:
            task.deaths[worker] = why
        back = [part for task in tasks if task.wanted for part in self._isolated(task)]
        self._waiting.extendleft(reversed(back))
        warnings.warn(f"A worker is gone, {self.workers} are there: {why}", stacklevel=2)

    def _isolated(self, task: _Task) -> list[_Task]:
        """The task; where too many workers died of it, its requests one by one, to see which of them kills.

        If none does, the task is done again: the bits of a float depend on the batch, so answers one by one are others.

        Raises:
            EditkitError: it is one request, or requests that kill together only.
        """
        if len(task.deaths) < DEADLY:
            return [task]
        singles, died = task.piece.singles(), f"{len(task.deaths)} workers died of {task.piece.told()}"
        *_, why = task.deaths.values()
        if len(singles) == 1:
            raise EditkitError(
                f"{died}; the last one: {why} Leave it out, or see what ends a worker there. What was measured is kept."
            )
        if task.harmless:
            raise EditkitError(
                f"{died}, and none of each alone; the last one: {why} Give each worker more memory, or start fewer on "
                "a machine. What was measured is kept."
            )
        left = len(singles)

        def survived(result: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._waiting.append(_Task(task.piece, task.arrived, harmless=True))

        return [_Task(single, survived) for single in singles]

    def _bound(self, bench: _Bench) -> float:
        """Seconds that the first piece of a worker may take: by what was measured, on this worker and on all."""
        tokens = next(iter(bench.sent.values())).tokens
        return PATIENCE * (bench.loading + max(self.pace, bench.pace) * tokens)

    def _patience(self) -> float | None:
        """Seconds until the first worker will have hung."""
        ends = [bench.since + self._bound(bench) for bench in self._benches.values() if bench.sent]
        return max(0.0, min(ends) - self.crew.now()) if ends else None

    def _end_hung(self) -> None:
        """First everything is heard that has happened: while an answer is judged here, others arrive."""
        while self._patience() == 0 and (events := self.crew.wait(0)):
            for event in events:
                self._heard(event)
        now = self.crew.now()
        for name, bench in list(self._benches.items()):
            if bench.sent and now >= bench.since + (bound := self._bound(bench)):
                log = self.crew.end(name)
                self._lost(name, f"{name} gave no answer for {bound:.0f} s, which no piece should take. {log}".strip())
