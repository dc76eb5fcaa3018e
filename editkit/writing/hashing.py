"""sha256 of a copy while it is written, and of its base: up to the first byte that is zeroed they are the same.

    with Aside(base, out, fork=4096) as taken:
        taken.update(chunk)                              # the chunk is in ``out`` now
        taken.digests()                                  -> ("41ab...", "9f2c...")

The two hashes of an edited file take longer than all the rest of a bake. From the fork on each has a thread of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from editkit.checkpoints.files import fill

CHUNK = 1 << 18
"""Bytes at a time: they stay in a core's cache while they are written, read back, compared and hashed."""
STRIDE = 1 << 22
"""Bytes after which a hash that is taken aside goes on."""


class Here:
    """The copy's digest, taken where it is copied."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def update(self, chunk: bytearray) -> None:
        self._digest.update(chunk)

    def digests(self) -> tuple[str, str]:
        """Of the copy and of its base; "" is one that was not taken."""
        return self._digest.hexdigest(), ""


class Nowhere:
    """No digest: it is known."""

    def update(self, chunk: bytearray) -> None:
        pass

    def digests(self) -> tuple[str, str]:
        return "", ""


class Aside:
    """The digest of ``out``, taken in another thread by reading what is written, and from ``fork`` on that of ``base``.

    Args:
        fork: up to this byte both files are the same; None: the base's digest is known.
    """

    def __init__(self, base: Path, out: Path, fork: int | None) -> None:
        self._digest = hashlib.sha256()
        self._base, self._out, self._fork, self._size = base, out, fork, base.stat().st_size
        self._written = self._hashed = 0
        self._before: Future[str] | None = None
        self._left = False
        self._threads = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, *_: object) -> None:
        self._left = True
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)

    def update(self, chunk: bytearray) -> None:
        self._written += len(chunk)
        if self._written // STRIDE > (self._written - len(chunk)) // STRIDE:
            self._threads[0].submit(self._follow)

    def digests(self) -> tuple[str, str]:
        self._threads[0].submit(self._follow).result()
        copied = self._digest.hexdigest()
        if self._fork is None:
            return copied, ""
        return copied, self._before.result() if self._before else copied

    def _follow(self) -> None:
        """Hash what is written by now."""
        for chunk in self._chunks(self._out, self._hashed):
            if self._fork is not None and self._before is None and self._hashed + len(chunk) > self._fork:
                self._before = self._threads[1].submit(self._rest, self._digest.copy(), self._hashed)
            self._digest.update(chunk)
            self._hashed += len(chunk)

    def _rest(self, digest: Any, place: int) -> str:
        """The base's digest, from a place on; one that grows on and on is read up to its size at the start."""
        for chunk in self._chunks(self._base, place):
            digest.update(chunk)
            place += len(chunk)
            if place >= self._size:
                break
        return digest.hexdigest()

    def _chunks(self, path: Path, place: int) -> Iterator[bytearray]:
        buffer = bytearray(CHUNK)
        with open(path, "rb", buffering=0) as file:
            file.seek(place)
            while fill(file, buffer):
                if self._left:
                    raise CancelledError
                yield buffer
