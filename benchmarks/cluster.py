"""What workers bring: two against one on this machine, how many one driver can feed, and what a run costs on GPUs.

    OMP_NUM_THREADS=1 python -m benchmarks.cluster --model GGUF   # all of it, into benchmarks/results/cluster.md
    python -m benchmarks.cluster --only driver --workers 8 --each 1
    python -m benchmarks.cluster --only kills --kills 50   # at random moments; every cell is compared
    python -m benchmarks.cluster --only cost           # prints the table of docs/cluster.md; runs nothing

Wants a quiet machine. Without OMP_NUM_THREADS=1 a single worker takes all processors, and two share them.

Of the driver all is real but the workers: the model's cut into pieces, the schedule, judging, the store on disk. A
simulated worker answers each request with a likelihood after a drawn delay.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from editkit.api import load
from editkit.cluster.schedule import Answered, Event, Ready, Schedule
from editkit.cluster.workers import Workers
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source
from editkit.models.placement import Placement
from editkit.models.pool import Arrived, Asked, Piece
from editkit.planning.pool_cost import shared
from editkit.planning.run_cost import Plan, duration
from editkit.planning.run_cost import plan as planned
from editkit.planning.study_cost import STEP, Gpu, Size, gpu_named
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Likelihood, examples_of

RESULT = Path(__file__).parent / "results" / "cluster.md"
HEAD = "# Workers\n\n`OMP_NUM_THREADS=1 python -m benchmarks.cluster --model GGUF` (docs/cluster.md); two cores.\n"
DRIVEN = ((64, 1.0, 16_384), (64, 5.0, 16_384), (512, 5.0, 4_096), (512, 10.0, 16_384), (512, 5.0, 16_384))
"""Workers, seconds of a piece, tokens of a piece. A request here has some 30 tokens: with 4,096 a piece has as many
cells as where requests are of 120."""
ROUNDS = 15
"""Pieces for each worker: the first wait for the driver, the last for nobody."""


@dataclass
class Drawn:
    """Workers that answer after a delay, in real time.

    Args:
        seconds: of a piece, on average; drawn from half to three halves of it.
    """

    workers: int
    seconds: float
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    busy: float = 0.0
    _due: list[tuple[float, int, Event]] = field(default_factory=list)
    _free: dict[str, float] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        for number in range(self.workers):
            self._tell(self.now(), Ready(f"w{number}", 1.0, 1.0))

    def send(self, worker: str, number: int, piece: Piece) -> None:
        assert isinstance(piece, Asked)
        delay = self.seconds * self.rng.uniform(0.5, 1.5)
        self._free[worker] = max(self.now(), self._free.get(worker, 0.0)) + delay
        self.busy += delay
        result = [Likelihood(-self.rng.random(), len(continuation), True) for _, continuation in piece.encoded]
        self._tell(self._free[worker], Answered(worker, number, result))

    def wait(self, seconds: float | None) -> Sequence[Event]:
        if self._due:
            time.sleep(max(0.0, self._due[0][0] - self.now()))
        events = []
        while self._due and self._due[0][0] <= self.now():
            events.append(heapq.heappop(self._due)[2])
        return events

    def end(self, worker: str) -> str:
        raise AssertionError(f"{worker} does not hang")

    def now(self) -> float:
        return time.perf_counter()

    def _tell(self, when: float, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, event))


@dataclass
class Simulated:
    """A pool of drawn workers, which knows where the driver's time goes."""

    tokens: int
    crew: Drawn
    judged: float = 0.0
    cut: float = 0.0
    pieces: int = 0

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.crew)

    @property
    def workers(self) -> int:
        return self.crew.workers

    def run(self, work: object) -> None:
        self.schedule.run(self._timed(iter(work)))  # type: ignore[call-overload]

    def _timed(self, work):  # type: ignore[no-untyped-def]
        while True:
            began = time.perf_counter()
            pair: tuple[Piece, Arrived] | None = next(work, None)
            self.cut += time.perf_counter() - began
            if pair is None:
                return
            self.pieces += 1
            yield pair[0], self._judging(pair[1])

    def _judging(self, arrived: Arrived) -> Arrived:
        def timed(result: object) -> None:
            began = time.perf_counter()
            arrived(result)
            self.judged += time.perf_counter() - began

        return timed


def driver(workers: int, each: float, tokens: int) -> list[str]:
    """One row: what a driver does with so many workers, whose pieces take ``each`` seconds, on average.

    In a process of its own: the memory is the most that the process had.
    """
    organism = load()
    pool = Simulated(tokens, Drawn(workers, each))
    model = replace(organism, pool=pool)
    examples = examples_of(TASKS["swear"], "locate", limit=60)
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "measurements.sqlite") as store:
        measure = likelihood_measure(Ledger(organism, store), TASKS["swear"], examples)
        measure = replace(measure, ledger=Ledger(model, store))
        heads = len(model.architecture.heads)
        count = max(1, ROUNDS * workers * (tokens // 30) // measure.examples)
        masks = np.random.default_rng(0).random((count, heads)) < 0.1
        began, before = time.perf_counter(), time.process_time()
        measure(masks)
        wall, used = time.perf_counter() - began, time.process_time() - before
        cells = store.count()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    parts = {"cutting": pool.cut, "judging and storing": pool.judged, "the schedule": used - pool.cut - pool.judged}
    first = max(parts, key=lambda part: parts[part])
    numbers = (f"{workers}", f"{each:g} s", f"{cells / pool.pieces:.0f}", f"{cells:,}", f"{cells / wall:,.0f}")
    efficiency = pool.crew.busy / (workers * wall)
    return [
        *numbers,
        f"{efficiency:.2f}",
        f"{used / wall:.0%}",
        f"{memory:,.0f} MB",
        f"{first} ({parts[first] / wall:.0%})",
    ]


def sweep(model: LanguageModel, task: str, masks: int) -> float:
    """Seconds of a sweep over random masks, after a first short one."""
    with opened(None) as store:
        ledger = Ledger(model, store)
        measure = likelihood_measure(ledger, TASKS[task], examples_of(TASKS[task], "locate", limit=40))
        drawn = np.random.default_rng(0).random((masks + 4, len(model.architecture.heads))) < 0.05
        measure(drawn[:4])
        began = time.perf_counter()
        measure(drawn[4:])
        return time.perf_counter() - began


def kills(count: int) -> list[list[str]]:
    """Sweeps of the organism by two workers, until so many were killed, whoever is ready, now and then."""
    alone = load()
    pool = Workers(2).opener()(alone)
    schedule, rng = pool.schedule, random.Random(0)  # type: ignore[attr-defined]
    model, crew = replace(alone, pool=pool), schedule.crew
    done, ended = 0, threading.Event()

    def kill() -> None:
        nonlocal done
        while not ended.wait(rng.uniform(0.2, 6.0)):
            ready = [actor.where for name, actor in list(crew.actors.items()) if name in schedule._benches]
            processes = [where.process for where in ready if where is not None]
            if processes and done < count:
                with suppress(ProcessLookupError):  # killed before, and not heard of yet
                    os.kill(rng.choice(processes), signal.SIGKILL)
                    done += 1

    examples, sweeps, differ, began = examples_of(TASKS["swear"], "locate", limit=40), 0, 0, time.perf_counter()
    threading.Thread(target=kill, daemon=True).start()
    while done < count or not sweeps:
        found = []
        masks = np.random.default_rng(sweeps).random((200, len(alone.architecture.heads))) < 0.05
        for each in (alone, model):
            with opened(None) as store:
                found.append(likelihood_measure(Ledger(each, store), TASKS["swear"], examples)(masks))
        sweeps, differ = sweeps + 1, differ + int((found[0] != found[1]).sum())
    ended.set()
    minutes = f"{(time.perf_counter() - began) / 60:.0f} min"
    return [[f"{done}", f"{sweeps}", f"{sweeps * 200 * found[0].shape[1]:,}", f"{differ}", minutes]]


def efficiency(path: Path | None, task: str, masks: int) -> list[str]:
    """One worker, and two, of one thread each."""
    source = load(path).source
    seconds = {}
    for count in (1, 2):
        model = load_source(source, Placement(pool=Workers(count).opener()))
        schedule = model.pool.schedule  # type: ignore[union-attr]
        while schedule.workers < count:  # the sweep begins when all are there
            model.answer([], None)
            for event in schedule.crew.wait(1.0):
                schedule._heard(event)
        seconds[count] = sweep(model, task, masks)
        del model, schedule
    share = seconds[1] / (2 * seconds[2])
    name = source.base.model.rpartition("/")[2]
    return [name, f"{masks}", *(f"{seconds[count]:.1f} s" for count in (1, 2)), f"{share:.2f}"]


def _alone(function: Callable[..., list[str]], *arguments: Any) -> list[str]:
    """The function's result, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


SIZES = {
    "Llama 3.1 8B": Size(32, 1024, 8_030_261_248, 16_060_522_496),
    "Llama 3.1 70B": Size(80, 5120, 70_553_706_496, 141_107_412_992),
    "Llama 3.1 405B": Size(126, 16128, 405_853_388_800, 811_706_777_600),
}
"""From their model cards: layers, heads, parameters, bytes in bfloat16."""
H200 = Gpu("H200", 989e12, 141e9)
"""By its data sheet: dense bfloat16, memory. Seven tenths of a terabyte more than eight H100 of one machine have."""
PRICE = {"H100 SXM": 3.0, "H200": 4.0}
"""Dollars a GPU-hour; our assumption: put in your own."""


def cost(recipe: str) -> str:
    """The table of docs/cluster.md."""
    own = planned(recipe)
    lines = []
    for name, size in SIZES.items():
        gpu = gpu_named("h100") if size.memory <= 8 * gpu_named("h100").memory else H200
        copy = -(-size.memory // int(gpu.memory))
        copy = next(count for count in (1, 2, 4, 8) if count >= copy)  # a machine has eight
        run = replace(own, search_tokens=_search(own, recipe, size), parameters=size.parameters)
        alone = (
            2 * size.parameters * (run.search_tokens + run.answer_tokens) / (0.4 * gpu.operations) + STEP * run.steps
        )
        for gpus in (1, 2, 4, 8, 16, 32, 64):
            copies = gpus // copy
            if copies == 0:
                continue
            seconds = alone if copies == 1 else shared(run, copies, alone=alone).seconds
            price = PRICE[gpu.name] * gpus * seconds / 3600
            lines.append([name, f"{gpus} {gpu.name}", f"{copies} of {copy}", duration(seconds), f"${price:,.2f}"])
    return table(["model", "GPUs", "copies, of GPUs each", "time", "price"], lines)


def _search(own: Plan, recipe: str, size: Size) -> int:
    from editkit.localizers.adaptive import usual_budget

    return int(own.search_tokens * usual_budget(size.heads) / max(1.0, own.evaluations))


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["driver", "two", "kills", "cost"])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--workers", type=int, help="simulated, in one row of its own; default: all rows")
    parser.add_argument("--each", type=float, default=1.0, help="seconds of a piece in that row")
    parser.add_argument("--tokens", type=int, default=16_384, help="of a piece in that row")
    parser.add_argument("--model", type=Path, help="for two workers, besides the organism")
    parser.add_argument("--task", default="addition", help="of that model")
    parser.add_argument("--masks", type=int, default=30, help="for that model; the organism gets 600")
    options = parser.parse_args()
    if options.only == "cost":
        print(cost("swear"))
        return
    driven = [(options.workers, options.each, options.tokens)] if options.workers else DRIVEN
    pairs = [(None, "swear", 600), *([(options.model, options.task, options.masks)] if options.model else [])]
    parts: dict[str, Callable[[], str]] = {
        "two": lambda: (
            "Two workers of one thread against one\n\n"
            + table(
                ["model", "masks", "one worker", "two workers", "efficiency"],
                [efficiency(*pair) for pair in pairs],
            )
        ),
        "driver": lambda: (
            "One driver, simulated workers\n\nReal: the cut, the schedule, judging, the store. "
            "Efficiency: the share of the workers' time in which they had work, start and end included.\n"
            f"{ROUNDS} pieces for each worker, of half to three halves of the time given.\n\n"
            + table(
                [
                    "workers",
                    "a piece takes",
                    "has cells",
                    "cells",
                    "cells/s",
                    "efficiency",
                    "driver's CPU",
                    "memory",
                    "most of it",
                ],
                [_alone(driver, *row) for row in driven],
            )
        ),
    }
    parts["kills"] = lambda: (
        "Workers killed at random moments\n\n"
        + table(["kills", "sweeps", "cells", "that differ from one process", "time"], kills(options.kills))
    )
    known = RESULT.read_text("utf-8").split("\n## ")[1:] if RESULT.exists() else []
    sections = {section.partition("\n")[0]: section for section in known}
    for name, part in parts.items():
        if options.only in (None, name):
            section = part()
            print(f"## {section}", flush=True)
            sections[section.partition("\n")[0]] = section
    if not options.workers:
        RESULT.write_text("\n## ".join([HEAD, *sections.values()]), "utf-8")


if __name__ == "__main__":
    main()
