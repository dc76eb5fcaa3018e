"""The laws of every loader, and one input tried under them.

    attempt(LOADERS["recipe"], place, b"goal: [")     "recipe.yaml is not YAML: ..."    refused; "" where it is accepted
    attempt(...)                                      Broken("RecursionError at tasks/strict_yaml.py, load", "...")

An input is accepted, or refused with an ``EditkitError`` whose message a person can read. It takes at most ``SECONDS``
of a processor and ``BYTES``, starts no program, calls nobody, and changes nothing but ``out*``, the caches and itself.
"""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from editkit.errors import EditkitError
from editkit.render.figures import Draw, Theme
from editkit.tasks.scoring import COMPILE
from tests.hostile.loaders import Loader

SECONDS = 10
WAITING = 60
"""Seconds by the clock: a machine may be busy with other things."""
BYTES = 2 << 30
LONGEST = 16_000
"""Characters of a message: ``verify`` lists up to fifty places, a line each."""
KEPT = ("out", "cache", "tmp")
"""What a loader may write to, by the beginning of its name."""

CORPUS = Path(__file__).parent / "corpus"
"""Inputs that once broke a law, by loader."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
_CALLS = {"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "socket.getaddrinfo"}


@dataclass
class Broken(Exception):
    """A law was broken. ``kind`` is the same for inputs that fail at the same place."""

    kind: str
    detail: str


def folder_of(name: str) -> str:
    """A loader's folder in the corpus."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower())


def sketched(draw: Draw, theme: Theme, kind: str, **_: Any) -> bytes:
    """In place of ``figures._drawn``: a picture is drawn and not written, which takes most of its time."""
    from matplotlib.figure import Figure

    draw(Figure(layout="constrained"), theme)
    return {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<svg ></svg>"}[kind]


def attempt(loader: Loader, place: Path, content: bytes) -> str:
    """Load an input in a prepared place, which is the current folder; the refusal, empty where there is none.

    Raises:
        Broken: naming the law.
    """
    for beside in place.glob(f"{loader.file}-*"):  # the journal of a database that was there before
        beside.unlink()
    (place / loader.file).write_bytes(content)
    before = present(place, loader)
    try:
        with watched(place) as strayed:
            message = _loaded(loader, place)
        if strayed:
            raise Broken(f"reaches out: {strayed[0].split()[0]}", strayed[0])
        if (after := present(place, loader)) != before:
            raise Broken("changes files beside its output", str(sorted(before.items() ^ after.items())[:4]))
        return message
    finally:
        for path in place.glob("*"):
            if path.name.startswith(KEPT[0]) or path.name.startswith(f".{KEPT[0]}"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _loaded(loader: Loader, place: Path) -> str:
    try:
        loader.load(place)
    except EditkitError as error:
        if not str(error).strip() or len(str(error)) > LONGEST or "Traceback (most recent" in str(error):
            raise Broken(
                f"a message of no use at {_raised(error)}", f"{len(str(error))} characters: {error!s:.300}"
            ) from error
        return str(error)
    except BaseException as error:  # some libraries' panics are no Exception
        if isinstance(error, KeyboardInterrupt | TimeoutError):
            raise
        raise Broken(f"{type(error).__name__} at {_raised(error)}", f"{error!s:.300}") from error
    return ""


@contextmanager
def timed(trace: IO[str]) -> Iterator[None]:
    """The process ends itself after ``SECONDS`` of work, or ``WAITING`` seconds; ``trace`` gets where it was then."""
    faulthandler.register(signal.SIGPROF, trace, chain=True)
    faulthandler.dump_traceback_later(WAITING, exit=True, file=trace)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()


def _raised(error: BaseException) -> str:
    """The innermost place of editkit that an error passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/editkit/" in frame.filename]
    if not frames:
        return "no place of editkit"
    return f"{frames[-1].filename.rpartition('/editkit/')[2]}, {frames[-1].name}"


def present(place: Path, loader: Loader) -> dict[str, tuple[int, int]]:
    """Size and time of every file that a load must leave alone."""
    names = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    kept = {path.relative_to(place).as_posix(): path.stat() for path in names}
    own = (*KEPT, *(f".{name}" for name in KEPT), loader.file)
    return {name: (state.st_size, state.st_mtime_ns) for name, state in kept.items() if not name.startswith(own)}


_place: Path | None = None
_strayed: list[str] = []


@contextmanager
def watched(place: Path) -> Iterator[list[str]]:
    """What Python is told to write outside the place, to start or to call, while it is open."""
    global _place
    if not _hooked:
        sys.addaudithook(_noted)
        _hooked.append(True)
    _strayed.clear()
    _place, compiled = place, sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # what Python keeps of the modules that it imports is no loader's doing
    try:
        yield _strayed
    finally:
        _place, sys.dont_write_bytecode = None, compiled


_hooked: list[bool] = []


def _noted(event: str, arguments: tuple[Any, ...]) -> None:
    if _place is None:
        return
    if event == "open":
        path, _, flags = arguments
        if not isinstance(path, int) and flags & _WRITING:
            _check(event, path)
    elif event in _CHANGES:
        for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
            _check(event, path)
    elif event in _CALLS and not (event == "subprocess.Popen" and COMPILE in arguments[1]):
        _strayed.append(f"{event} {arguments!r:.200}")


def _check(event: str, path: Any) -> None:
    try:
        full = os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return
    if _place is not None and full != str(_place) and not full.startswith((f"{_place}/", "/dev/null")):
        _strayed.append(f"{event} {full}")


@contextmanager
def limited() -> Iterator[None]:
    """At most ``BYTES`` of memory more than now."""
    used = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
