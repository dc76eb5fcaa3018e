"""Copy a file with some runs of bytes zeroed, in constant memory; and check that nothing else differs.

copy(base, out, runs) -> Digests(before="9f2c...", after="41ab...")
differences(base, out, runs) -> []            the byte places where out is not "base with the runs zeroed"
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from editkit.weights.slices import Runs, zero

CHUNK = 1 << 20
"""Bytes held at a time: small enough to stay in a core's cache while it is hashed, written and compared."""

_FICLONE = 0x40049409
"""ioctl of Linux: share the extents of another file until one of them is written to."""


@dataclass(frozen=True)
class Digests:
    """sha256 of a file before and after it was patched; ``before`` is None where nobody asked for it."""

    before: str | None
    after: str


def copy(base: Path, out: Path, runs: Sequence[Runs] = (), *, known: str | None = None) -> Digests:
    """Copy ``base`` to ``out`` with the runs zeroed. Hashing happens beside, in threads.

    Args:
        known: the sha256 of ``base`` if it was taken before: then it is not taken again.
    """
    if known and not runs:
        shutil.copyfile(base, out)
        return Digests(known, known)
    before = None if known else hashlib.sha256()
    after = hashlib.sha256() if runs else None
    waiting: list[Future[None]] = []
    chunk_size = min(CHUNK, base.stat().st_size or 1)
    buffers = [bytearray(chunk_size), bytearray(chunk_size)]
    with open(base, "rb", buffering=0) as source, open(out, "xb", buffering=0) as target, ThreadPoolExecutor(2) as pool:
        place = 0
        while True:
            buffer = buffers[0]
            count = source.readinto(buffer)
            if not count:
                break
            chunk, patched = memoryview(buffer)[:count], memoryview(buffer)[:count]
            if runs:
                changed = np.frombuffer(buffer, np.uint8, count).copy()
                patched = memoryview(changed.data) if zero(changed, place, runs) else chunk
            for future in waiting:
                future.result()
            waiting = [
                pool.submit(digest.update, part) for digest, part in ((before, chunk), (after, patched)) if digest
            ]
            _write(target.fileno(), patched)
            buffers.reverse()
            place += count
        for future in waiting:
            future.result()
    first = known or (before.hexdigest() if before else None)
    return Digests(first, after.hexdigest() if after else first or "")


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


def differences(base: Path, out: Path, runs: Sequence[Runs] = (), *, limit: int = 16) -> list[int]:
    """Byte places (the first in each chunk, at most ``limit``) where ``out`` is not ``base`` with the runs zeroed."""
    if os.path.samefile(base, out) and not runs:
        return []
    found: list[int] = []
    chunk_size = min(CHUNK, base.stat().st_size + 1)
    one, two = bytearray(chunk_size), bytearray(chunk_size)
    with open(base, "rb", buffering=0) as first, open(out, "rb", buffering=0) as second:
        place = 0
        while len(found) < limit:
            count, same = _fill(first, one), _fill(second, two)
            expected = np.frombuffer(one, np.uint8, count)
            zero(expected, place, runs)
            shared = min(count, same)
            if one[:shared] != two[:shared]:
                actual = np.frombuffer(two, np.uint8, shared)
                found.append(place + int(np.flatnonzero(expected[:shared] != actual)[0]))
            if count != same:
                found.append(place + shared)
            if count != same or not count:
                break
            place += count
    return found


def _fill(file, buffer: bytearray) -> int:
    count = 0
    while part := file.readinto(memoryview(buffer)[count:]):
        count += part
    return count


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
