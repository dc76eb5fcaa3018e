"""What odd files do: valid inputs of every loader, changed at random, and read as the commands read them.

    make fuzz MINUTES=60
    python -m benchmarks.fuzz --minutes 5 --only recipe --only store

An input ends in success or in one clear error, within ten seconds and 2 GB, and nothing is written outside the output
folder (``tests/hostile/laws.py``). Many inputs run in one process, which may die of one. What broke a law is made
small, kept in ``tests/hostile/corpus/``, and tried again by every ``make test``.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky
from rich.console import Console
from rich.table import Table

from editkit.render import figures
from tests import small_checkpoints as checkpoints
from tests.hostile.laws import CORPUS, SECONDS, Broken, attempt, folder_of, limited, sketched, timed
from tests.hostile.loaders import LOADERS, Loader

LARGEST = 1 << 16
"""Bytes of an input that is kept."""
ROUND = 20
"""Inputs between two looks at the clock."""
DEATHS = 5
"""After so many processes that died of an input, a loader is left."""
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
RANDOM = settings(
    max_examples=ROUND, database=None, deadline=None, suppress_health_check=SLOW,
    phases=[Phase.generate, Phase.shrink], print_blob=False, report_multiple_bugs=False,
)  # fmt: skip


Faults = dict[str, tuple[str, bytes]]
"""By kind: what happened, and the smallest input of it."""


@dataclass
class Tally:
    """What became of a loader's inputs."""

    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0
    memory: int = 0
    faults: Faults = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="For all loaders together, without what it takes to prepare them."
    )
    parser.add_argument("--only", action="append", choices=LOADERS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = options.only or list(LOADERS)
    imported()
    tallies: dict[str, Tally] = {}
    for name in names:
        tallies[name] = tried(name, 60 * options.minutes / len(names), options.seed)
        print(f"{name}: {tallies[name].inputs:,} inputs", file=sys.stderr, flush=True)
        for kind, (detail, content) in tallies[name].faults.items():
            print(f"  {kind}: {detail}\n  {kept(name, content)}", file=sys.stderr, flush=True)
    Console(width=None if sys.stdout.isatty() else 120).print(table(tallies))
    sys.exit(any(tally.faults for tally in tallies.values()))


def imported() -> None:
    """What takes seconds to import, for all processes at once."""
    import matplotlib.font_manager  # noqa: F401
    import torch
    import transformers

    from editkit.models import loading  # noqa: F401

    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)


def tried(name: str, left: float, number: int) -> Tally:
    """Inputs of one loader for so many seconds, in one process after another as they die."""
    tally, deaths = Tally(), 0
    while left > 0 and deaths < DEATHS:
        with checkpoints.in_memory() as folder:
            (folder / "place").mkdir()
            here, there = get_context("fork").Pipe(duplex=False)
            process = get_context("fork").Process(target=child, args=(there, name, folder, left, number, tally.faults))
            process.start()
            there.close()
            running, taken = followed(here, tally)
            process.join()
            trace = (folder / "trace").read_text() if (folder / "trace").exists() else ""
        number, deaths, left = number + 10_000, deaths + 1, left - taken
        if running is not None:
            hung = process.exitcode == -signal.SIGPROF or "Timeout" in trace
            kind = f"no end within {SECONDS} s" if hung else f"the process ended with {process.exitcode}"
            place = re.search(r'/(editkit/[\w/]+\.py)", line \d+ in (\w+)', trace)
            tally.faults.setdefault(
                f"{kind} at {' '.join(place.groups()) if place else 'no place'}", (trace[:600], running)
            )
        elif process.exitcode:
            raise SystemExit(f"{name}: it ended with {process.exitcode}, and not of an input")
    return tally


def followed(pipe: Connection, tally: Tally) -> tuple[bytes | None, float]:
    """Count what a process tells, until it ends; the input that it died of, if it did, and how long it tried."""
    running, ready = None, time.monotonic()
    with suppress(EOFError):
        while True:
            what, *told = pipe.recv()
            if what == "ready":
                ready = time.monotonic()
            elif what == "begin":
                running = told[0]
            elif what == "end":
                running, (refused, seconds, memory) = None, told
                tally.inputs += 1
                tally.refused += refused
                tally.slowest, tally.memory = max(tally.slowest, seconds), max(tally.memory, memory)
            else:
                kind, detail, content = told
                tally.faults[kind] = (detail, content)
    return running, time.monotonic() - ready


def child(pipe: Connection, name: str, folder: Path, left: float, number: int, known: Mapping[str, object]) -> None:
    """Try inputs in rounds, until the time is up."""
    loader, place = LOADERS[name], folder / "place"
    settled(place)
    figures._drawn = sketched
    loader.prepare(place)
    inputs = loader.inputs(place)
    if refusal := attempt(loader, place, (place / loader.file).read_bytes()):
        raise SystemExit(f"{name}: the valid input was refused: {refusal}")
    pipe.send(("ready",))
    until, found = time.monotonic() + left, set(known)
    with open(folder / "trace", "w") as trace, silent(folder / "noise"), limited():
        faulthandler.enable(trace)
        while time.monotonic() < until:
            number += 1
            faults: Faults = {}
            one = trial(pipe, loader, place, until, trace, found, faults)
            with suppress(Broken, Flaky, BaseExceptionGroup):
                seed(number)(RANDOM(given(inputs)(one)))()
            for kind, (detail, content) in faults.items():
                pipe.send(("fault", kind, detail, content))
            found |= faults.keys()


def trial(
    pipe: Connection, loader: Loader, place: Path, until: float, trace: IO[str], found: Collection[str], faults: Faults
) -> Callable[[bytes], None]:
    """What tries one input: told before, because it may be the last; raises while it is the smallest of its kind."""

    def one(content: bytes) -> None:
        if time.monotonic() > until:
            return
        pipe.send(("begin", content))
        start, refused, broken = time.process_time(), False, None
        with timed(trace):
            try:
                refused = bool(attempt(loader, place, content))
            except Broken as error:
                broken = error
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        pipe.send(("end", refused, time.process_time() - start, memory))
        if broken is None or broken.kind in found:
            return
        if broken.kind not in faults or len(content) <= len(faults[broken.kind][1]):
            faults[broken.kind] = (broken.detail, content)
            raise broken

    return one


@contextmanager
def silent(noise: Path) -> Iterator[None]:
    """What libraries say of odd files goes to a file."""
    before = [os.dup(stream) for stream in (1, 2)]
    with open(noise, "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        for stream, own in zip((1, 2), before, strict=True):
            os.dup2(own, stream)


def settled(place: Path) -> None:
    """Make the place the current folder, and keep all that is temporary in it."""
    os.chdir(place)
    for each in ("tmp", "cache"):
        (place / each).mkdir()
    caches = ("EDITKIT_CACHE", "TORCHINDUCTOR_CACHE_DIR", "HOME")
    os.environ |= dict.fromkeys(caches, str(place / "cache"))
    tempfile.tempdir = str(place / "tmp")


def kept(name: str, content: bytes) -> Path:
    """Keep an input that broke a law; large ones in the current folder's ``build``."""
    root = CORPUS if len(content) <= LARGEST else Path("build") / "fuzz"
    path = root / folder_of(name) / hashlib.sha256(content).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def table(tallies: dict[str, Tally]) -> Table:
    made = Table("loader", box=None)
    for title in ("inputs", "refused", "accepted", "slowest", "most memory", "failures"):
        made.add_column(title, justify="right")
    for name, tally in tallies.items():
        counts = (tally.inputs, tally.refused, tally.inputs - tally.refused)
        ends = (f"{tally.slowest:.2f} s", f"{tally.memory / 1e6:.0f} MB", str(len(tally.faults)))
        made.add_row(name, *(f"{count:,}" for count in counts), *ends)
    return made


if __name__ == "__main__":
    main()
