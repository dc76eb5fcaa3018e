"""Copy a file with some runs of bytes zeroed, in constant memory, and prove the copy while it is on its way.

    with Crew() as crew:
        copying = copy(base, out, runs, crew)         # the bytes are handed over window by window
        ...                                           # the next file, while threads hash, compare and flush this one
    copying.result() -> Copied(before="9f2c...", after="41ab...", differing=())

What follows the copying reads the files again: the hashes are of what the files hold, not of what was meant.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from editkit.staging import flush
from editkit.weights.slices import Runs, touches, zero

CHUNK = 1 << 20
"""Bytes that are read at a time: few enough to stay in a core's cache while they are hashed or compared."""
WINDOW = 8 << 20
"""Bytes that are copied before those who follow are told."""
FLUSHED = 32 * WINDOW
"""Bytes after which a file that is still being copied is flushed, so that the disk never idles."""
LAG = 96
"""Pieces of work that may wait: the copying never runs so far ahead that what it wrote must be read from disk."""

_FICLONE = 0x40049409
"""ioctl of Linux: share the extents of another file until one of them is written to."""


@dataclass(frozen=True)
class Copied:
    """sha256 of the base's file and of the copy, and the byte places where the copy is not what it should be."""

    before: str
    after: str
    differing: tuple[int, ...] = ()


class Crew:
    """The threads that follow a copying: one hashes the base, one the copy, one compares, one flushes to disk."""

    def __init__(self) -> None:
        self.hashing, self.rehashing, self.comparing, self.flushing = (ThreadPoolExecutor(1) for _ in range(4))
        self._waiting: deque[Future[Any]] = deque()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self.hashing, self.rehashing, self.comparing, self.flushing):
            pool.shutdown(cancel_futures=True)

    def submit(self, pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Do ``work`` after what ``pool`` was given before; waits, if too much else is waiting already."""
        future = pool.submit(work, *arguments)
        self._waiting.append(future)
        while len(self._waiting) > LAG:
            self._waiting.popleft().result()
        return future

    def finish(self) -> None:
        """Wait for everything; raise what went wrong."""
        while self._waiting:
            self._waiting.popleft().result()


def copy(base: Path, out: Path, runs: Sequence[Runs], crew: Crew, *, known: str | None = None) -> Future[Copied]:
    """Copy ``base`` to a new file ``out`` with the runs zeroed; the result comes once the copy was read again.

    Args:
        known: the sha256 of ``base`` if it was taken before: then it is not taken again.
    """
    size = base.stat().st_size
    before = None if known else _Digest(base)
    after = _Digest(out) if runs else None
    comparison = _Comparison(base, out, runs, size=size)
    with open(base, "rb", buffering=0) as source, open(out, "xb", buffering=0) as target:
        for place in range(0, size, WINDOW):
            end = min(place + WINDOW, size)
            _transfer(source.fileno(), target.fileno(), place, end, runs)
            crew.submit(crew.comparing, comparison.advance, end)
            if before:
                crew.submit(crew.hashing, before.advance, end)
            if after:
                crew.submit(crew.rehashing, after.advance, end)
            if end % FLUSHED == 0:
                crew.submit(crew.flushing, flush, out)
    if size > WINDOW:  # small ones are flushed side by side at the end
        crew.submit(crew.flushing, flush, out)
    first = crew.submit(crew.hashing, before.finish) if before else None
    last = crew.submit(crew.rehashing, after.finish) if after else None

    def finish() -> Copied:
        differing = comparison.finish()
        found = first.result() if first else known or ""
        return Copied(found, last.result() if last else found, differing)

    return crew.submit(crew.comparing, finish)


def link(base: Path, out: Path) -> bool:
    """Make ``out`` share the bytes of ``base``: a reflink where the file system can, else a hard link, else False."""
    try:
        import fcntl  # not on Windows, where a hard link is all there is

        with open(base, "rb") as source, open(out, "xb") as target:
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
        return True
    except (OSError, ImportError):
        with contextlib.suppress(FileNotFoundError):
            out.unlink()
    try:
        os.link(base, out)
    except OSError:
        return False
    return True


def differences(base: Path, out: Path, runs: Sequence[Runs] = ()) -> tuple[int, ...]:
    """Byte places (the first in each chunk, few of many) where ``out`` is not ``base`` with the runs zeroed."""
    if os.path.samefile(base, out) and not runs:
        return ()
    size = base.stat().st_size
    comparison = _Comparison(base, out, runs, size=size)
    comparison.advance(size)
    return comparison.finish()


def _transfer(source: int, target: int, place: int, end: int, runs: Sequence[Runs]) -> None:
    """Copy a window; inside the system where nothing in it is zeroed."""
    if touches(place, end - place, runs):
        buffer = np.frombuffer(os.pread(source, end - place, place), np.uint8).copy()
        zero(buffer, place, runs)
        _write(target, memoryview(buffer.data))
        place += len(buffer)
    while place < end:
        sent = _send(source, target, place, end - place)
        if not sent:
            return  # the base became shorter: the comparison says so
        place += sent


def _send(source: int, target: int, place: int, count: int) -> int:
    if sys.platform.startswith("linux"):
        try:
            return os.sendfile(target, source, place, count)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):  # a file system without it
                raise
    part = os.pread(source, min(count, CHUNK), place)
    _write(target, memoryview(part))
    return len(part)


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class _Digest:
    """The sha256 of a file that is still growing."""

    def __init__(self, path: Path) -> None:
        self._path, self._place, self._digest = path, 0, hashlib.sha256()

    def advance(self, end: int) -> None:
        with open(self._path, "rb", buffering=0) as file:
            self._place = file.seek(self._place)
            buffer = memoryview(bytearray(min(CHUNK, end - self._place)))
            while self._place < end and (count := file.readinto(buffer[: end - self._place])):
                self._digest.update(buffer[:count])
                self._place += count

    def finish(self) -> str:
        return self._digest.hexdigest()


class _Comparison:
    """Whether a file that is still growing, up to ``size``, is another one with the runs zeroed."""

    def __init__(self, base: Path, out: Path, runs: Sequence[Runs], *, size: int, limit: int = 16) -> None:
        self._base, self._out, self._runs, self._size, self._limit = base, out, runs, size, limit
        self._place = 0
        self._found: list[int] = []

    def advance(self, end: int) -> None:
        with open(self._base, "rb", buffering=0) as first, open(self._out, "rb", buffering=0) as second:
            for file in (first, second):
                file.seek(self._place)
            one, two = bytearray(min(CHUNK, end - self._place)), bytearray(min(CHUNK, end - self._place))
            while self._place < end and len(self._found) < self._limit:
                del one[end - self._place :], two[end - self._place :]
                self._compare(one, _fill(first, one), two, _fill(second, two))

    def finish(self) -> tuple[int, ...]:
        """The places found; where a file ends too early or too late is one of them."""
        sizes = {self._base.stat().st_size, self._out.stat().st_size, self._size}
        if len(sizes) > 1 and len(self._found) < self._limit:
            self._found.append(min(sizes))
        return tuple(self._found)

    def _compare(self, one: bytearray, count: int, two: bytearray, same: int) -> None:
        expected = np.frombuffer(one, np.uint8)
        zero(expected, self._place, self._runs)
        if one != two or count != same:
            shared = min(count, same)
            unequal = np.flatnonzero(expected[:shared] != np.frombuffer(two, np.uint8)[:shared])
            self._found += [self._place + int(unequal[0])] if len(unequal) else []
        self._place += len(one)


def _fill(file: Any, buffer: bytearray) -> int:
    count = 0
    while part := file.readinto(memoryview(buffer)[count:]):
        count += part
    return count
