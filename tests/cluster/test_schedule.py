"""Each piece of work is done once, whoever dies, hangs or comes on the way; what kills workers is found and named.

If one fails: a measurement is lost or counted twice, a run waits for ever, or a request that kills ends the whole run.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from editkit.cluster.schedule import DEADLY, PATIENCE, Answered, Died, Event, Failed, Ready, Schedule
from editkit.errors import EditkitError
from editkit.models.language_model import LanguageModel
from editkit.models.pool import Arrived, Piece

pytestmark = pytest.mark.filterwarnings("ignore:A worker is gone")


@dataclass(frozen=True)
class Numbers:
    """A piece whose result is its numbers; whoever does a deadly one dies, or more than ``most`` at once."""

    numbers: tuple[int, ...]
    deadly: frozenset[int] = frozenset()
    most: float = float("inf")

    @property
    def kills(self) -> bool:
        return bool(self.deadly & set(self.numbers)) or len(self.numbers) > self.most

    @property
    def tokens(self) -> int:
        return len(self.numbers)

    def run(self, model: LanguageModel) -> list[int]:
        raise AssertionError("there is no model")

    def singles(self) -> list[Numbers]:
        return [replace(self, numbers=(number,)) for number in self.numbers]

    def told(self) -> str:
        return f"the numbers {self.numbers}"


@dataclass
class Virtual:
    """Workers that need no time: the clock goes from one event to the next.

    Args:
        slow: seconds a token takes, drawn anew for each piece: not more than ten times the least.
        death, hang: how likely a piece ends in one.
    """

    seed: int
    death: float = 0.0
    hang: float = 0.0
    newcomers: int = 10**6
    merciful: bool = False
    """Nothing kills."""
    clock: float = 0.0
    came: int = 0
    sent: list[tuple[str, int]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    _events: list[tuple[float, int, Event]] = field(default_factory=list)
    _free: dict[str, float] = field(default_factory=dict)
    """Until when each worker is busy; endless: it hangs."""
    _count: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def come(self, seconds: float = 2.0) -> None:
        if self.came < self.newcomers:
            self.came += 1
            self._free[f"w{self.came}"] = self.clock + seconds
            self._tell(self.clock + seconds, Ready(f"w{self.came}", seconds, 1.0))

    def _tell(self, when: float, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))

    def send(self, worker: str, number: int, piece: Piece) -> None:
        assert isinstance(piece, Numbers)
        self.sent.append((worker, number))
        if worker not in self._free:
            return
        begun = max(self.clock, self._free[worker])
        done = begun + piece.tokens * self.rng.uniform(0.1, 1.0)
        self._free[worker] = done
        if self.rng.random() < self.hang:
            self._free[worker] = float("inf")
        elif (piece.kills and not self.merciful) or self.rng.random() < self.death:
            self._tell(done, Died(worker, f"{worker} was killed"))
        elif done < float("inf"):
            self._tell(done, Answered(worker, number, list(piece.numbers)))

    def wait(self, seconds: float | None) -> Sequence[Event]:
        if not self._events and not self._free:
            raise EditkitError("nobody is left")
        if not self._events or (seconds is not None and self._events[0][0] > self.clock + seconds):
            assert seconds is not None, "waits for ever"
            self.clock += seconds
            return []
        when, _, event = heapq.heappop(self._events)
        self.clock = max(self.clock, when)
        if event.worker not in self._free:
            return []
        if isinstance(event, Died):
            del self._free[event.worker]
            self.come()
        return [event]

    def end(self, worker: str) -> str:
        self.ended.append(worker)
        del self._free[worker]
        self.come()
        return "its log"

    def now(self) -> float:
        return self.clock


def _pieces(count: int, seed: int) -> list[Numbers]:
    rng = random.Random(seed)
    starts = sorted(rng.sample(range(1, 20 * count), count - 1)) if count > 1 else []
    return [Numbers(tuple(range(*span))) for span in zip([0, *starts], [*starts, 20 * count], strict=True)]


def _run(schedule: Schedule, pieces: Sequence[Numbers]) -> dict[int, list[int]]:
    """The results by the number of the piece."""
    results: dict[int, list[int]] = {}

    def heard(number: int) -> Arrived:
        def arrived(result: list[int]) -> None:
            assert number not in results, "a piece was counted twice"
            results[number] = result

        return arrived

    schedule.run((piece, heard(number)) for number, piece in enumerate(pieces))
    return results


@given(
    *(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 9)),
    *(st.sampled_from([0, 0.1, 0.3]), st.sampled_from([0, 0.1, 0.3])),
)
def test_each_piece_is_done_once_whoever_dies_or_hangs(
    seed: int, count: int, workers: int, death: float, hang: float
) -> None:
    """Deaths of single requests are left out here: three in a row would be taken for the request's own doing."""
    crew = Virtual(seed, death, hang)
    for _ in range(workers):
        crew.come(crew.rng.uniform(0, 9))
    pieces = _pieces(count, seed)
    try:
        results = _run(Schedule(crew), pieces)
    except EditkitError as error:
        assert f"{DEADLY} workers died of" in str(error) and death + hang > 0
        return
    assert results == {number: list(piece.numbers) for number, piece in enumerate(pieces)}


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(0, 199))
@example(776, 1, 0)
def test_the_request_that_kills_is_named_and_no_other(seed: int, workers: int, deadly: int) -> None:
    """Else a user leaves out the wrong prompt, or a thousand good ones with it; the others are done all the same."""
    crew, pieces = Virtual(seed), [replace(piece, deadly=frozenset({deadly})) for piece in _pieces(10, seed)]
    for _ in range(workers):
        crew.come()
    with pytest.raises(EditkitError, match=rf"^3 workers died of the numbers \({deadly},\); .* was killed"):
        _run(Schedule(crew), pieces)
    [held] = [piece for piece in pieces if deadly in piece.numbers]
    deaths = DEADLY if len(held.numbers) == 1 else 2 * DEADLY  # of the batch, then of the request alone
    assert len(crew.ended) == 0 and crew.came == workers + deaths


def test_requests_that_kill_together_only_are_told_apart_from_one_that_kills() -> None:
    """Else a user looks for a bad prompt where memory is short. One by one is no way out: scores round otherwise."""
    crew = Virtual(0)
    crew.come()
    with pytest.raises(EditkitError, match=r"^3 workers died of .*, and none of each alone; .* more memory"):
        _run(Schedule(crew), [Numbers((1,)), Numbers(tuple(range(9)), most=5)])
    assert crew.came == 1 + 2 * DEADLY


def test_a_piece_that_workers_die_of_by_chance_is_answered_as_a_whole() -> None:
    """Else its scores round otherwise than those of one process."""
    crew, results, pieces = Virtual(0), list[list[int]](), [Numbers(tuple(range(9)), most=5)]
    crew.come()
    told = crew.wait

    def wait(seconds: float | None) -> Sequence[Event]:
        crew.merciful = crew.came > DEADLY
        return told(seconds)

    crew.wait = wait  # type: ignore
    Schedule(crew).run((piece, results.append) for piece in pieces)
    assert results == [list(range(9))]


def test_a_hung_worker_is_ended_and_an_answer_that_comes_late_is_not_counted() -> None:
    """Else one stuck GPU holds up a sweep for ever."""
    crew = Virtual(3, hang=0.2)
    for _ in range(3):
        crew.come()
    assert len(_run(Schedule(crew), _pieces(40, 3))) == 40
    assert crew.ended


def test_the_bound_follows_from_what_was_measured() -> None:
    """Else a slow model's pieces are killed in the middle, or a hung one is waited for all night."""
    crew, schedule = Virtual(0), None
    crew.come(seconds=7.0)
    schedule = Schedule(crew)
    _run(schedule, _pieces(5, 0))
    pace = schedule.pace
    assert 0.1 <= pace <= 1.0
    crew.hang, before = 1.0, crew.clock
    crew.newcomers = crew.came
    with pytest.raises(EditkitError, match="nobody is left"):
        _run(schedule, [Numbers((1, 2, 3))])
    assert crew.clock - before == pytest.approx(PATIENCE * (7.0 + 3 * max(pace, 1.0)))


def test_newcomers_are_taken_in() -> None:
    """Else a node that joins late, or a worker that was restarted, stays idle."""
    crew = Virtual(0)
    crew.come(0.0)
    crew.come(30.0)
    _run(Schedule(crew), _pieces(60, 0))
    assert {worker for worker, _ in crew.sent} == {"w1", "w2"}


def test_work_is_drawn_as_workers_become_free() -> None:
    """Else a sweep of millions of requests is all in memory before the first one is asked."""
    crew, drawn = Virtual(0), 0
    for _ in range(4):
        crew.come(0.0)
    most = 0

    def work() -> Iterator[tuple[Piece, Arrived]]:
        nonlocal drawn
        for piece in _pieces(200, 0):
            drawn += 1
            yield piece, arrived

    def arrived(result: list[int]) -> None:
        nonlocal most, drawn
        drawn -= 1
        most = max(most, drawn)

    Schedule(crew).run(work())
    assert most <= 3 * 4 + 1


def test_the_last_pieces_do_not_queue_behind_others() -> None:
    """Else workers are idle at each end of a measurement."""
    crew = Virtual(0)
    for _ in range(4):
        crew.come(0.0)
    schedule = Schedule(crew)
    schedule.open()
    while schedule.workers < 4:
        _run(schedule, [Numbers((1,))])
    crew.sent.clear()
    _run(schedule, [Numbers(tuple(range(50))) for _ in range(4)])
    assert sorted(worker for worker, _ in crew.sent) == ["w1", "w2", "w3", "w4"]


def test_an_error_of_a_piece_ends_the_run_and_the_next_one_gets_its_own_results() -> None:
    """Else after a warning about one task the answers of another are judged as its own."""
    crew = Virtual(0)
    for _ in range(3):
        crew.come(0.0)
    schedule = Schedule(crew)

    def fails(result: list[int]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        schedule.run((piece, fails) for piece in _pieces(30, 0))
    pieces = _pieces(30, 1)
    assert _run(schedule, pieces) == {number: list(piece.numbers) for number, piece in enumerate(pieces)}
    told, crew.wait = crew.wait, lambda seconds: [_as_failure(event) for event in told(seconds)]  # type: ignore
    with pytest.raises(MemoryError):
        _run(schedule, pieces)


def _as_failure(event: Event) -> Event:
    return Failed(event.worker, event.number, MemoryError()) if isinstance(event, Answered) else event
