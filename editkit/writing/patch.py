"""Copy a file with some runs of bytes zeroed, in constant memory, and read the copy back while it is at hand.

    copy(base, out, runs) -> Copied(digest="41ab...", before="", differing=())

Chunk by chunk: read the base, write, read the copy back through a descriptor of its own, compare, hash. The digest is
of what the copy holds, not of what was meant; a chunk is small enough to stay in a core's cache all the while.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from editkit.checkpoints.files import fill, printable, stamp
from editkit.errors import IntegrityError
from editkit.writing.hashing import CHUNK, Aside, Here, Nowhere
from editkit.writing.slices import Runs, zero

FLUSHED = 1 << 26
"""Bytes after which a file that is still being copied may be flushed, so that the disk never idles."""
LISTED = 16
"""Differing places that are listed, at most."""

Hashing = Literal["here", "aside", "both", "no"]

_FICLONE = 0x40049409
"""ioctl of Linux: share the extents of another file until one of them is written to."""


@dataclass(frozen=True)
class Copied:
    """sha256 of the copy and of its base ("" where not asked for), and the byte places where the copy is wrong."""

    digest: str
    before: str = ""
    differing: tuple[int, ...] = ()


def copy(
    base: Path,
    out: Path,
    runs: Sequence[Runs] = (),
    *,
    hashing: Hashing = "here",
    written: Callable[[Path], object] = lambda out: None,
) -> Copied:
    """Copy ``base`` to a new file ``out`` with the runs zeroed, and read it back.

    Args:
        hashing: ``aside`` in a thread of its own, which is quicker for one large file and slower where the cores are
            busy with others; ``both``: that of ``base`` too; ``no`` where the sha256 of the copy is known: that of
            ``base``, which is not changed.
        written: called with ``out`` after every 64 MB and at the end; may flush it, or raise to give up.

    Raises:
        IntegrityError: ``base`` changed meanwhile.
    """
    differing, place, again = [], 0, bytearray(CHUNK)
    with (
        open(base, "rb", buffering=0) as source,
        open(out, "xb", buffering=0) as target,
        open(out, "rb", buffering=0) as back,
        _hasher(base, out, runs, hashing) as hasher,
    ):
        found = stamp(base)
        for chunk in _expected(source, runs, found[0]):
            _write(target, chunk)
            differing += _differing(chunk, _filled(back, again, len(chunk)), place)
            hasher.update(again)
            place += len(chunk)
            if place % FLUSHED == 0:
                written(out)
        if place % FLUSHED:
            written(out)
        differing += [place] if back.read(1) else []
        digest, before = hasher.digests()
        if stamp(base) != found or place != found[0]:
            raise IntegrityError(f"{printable(base.name)}: changed while it was copied. Nothing was kept.")
        return Copied(digest, before, tuple(differing[:LISTED]))


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
    differing, place, again = [], 0, bytearray(CHUNK)
    with open(base, "rb", buffering=0) as source, open(out, "rb", buffering=0) as back:
        for chunk in _expected(source, runs, base.stat().st_size):
            differing += _differing(chunk, _filled(back, again, len(chunk)), place)
            place += len(chunk)
            if len(differing) >= LISTED:
                return tuple(differing)
        return (*differing, place) if back.read(1) else tuple(differing)


def _expected(source: Any, runs: Sequence[Runs], size: int) -> Iterator[bytearray]:
    """The file with the runs zeroed, in chunks of one buffer; a file that grows on and on is read up to ``size``."""
    chunk, place = bytearray(CHUNK), 0
    while place < size and fill(source, chunk):
        zero(np.frombuffer(chunk, np.uint8), place, runs)
        yield chunk
        place += len(chunk)


def _hasher(
    base: Path, out: Path, runs: Sequence[Runs], hashing: Hashing
) -> contextlib.AbstractContextManager[Here | Nowhere | Aside]:
    if hashing in ("no", "here"):
        return contextlib.nullcontext(Here() if hashing == "here" else Nowhere())
    first = min((run.first for run in runs), default=base.stat().st_size)
    return Aside(base, out, first if hashing == "both" else None)


def _differing(expected: bytearray, found: bytearray, place: int) -> list[int]:
    """The first byte of a chunk that is not what it should be; where the file ends too early is one."""
    if expected == found:
        return []
    shared = min(len(expected), len(found))
    unequal = np.flatnonzero(np.frombuffer(expected, np.uint8)[:shared] != np.frombuffer(found, np.uint8)[:shared])
    return [place + (int(unequal[0]) if len(unequal) else shared)]


def _filled(file: Any, buffer: bytearray, length: int) -> bytearray:
    """``length`` bytes of the file, or what is left of it."""
    if len(buffer) != length:
        buffer[:] = bytes(length)
    fill(file, buffer)
    return buffer


def _write(file: Any, data: bytearray) -> None:
    with memoryview(data) as view:
        count = 0
        while count < len(data):
            count += file.write(view[count:])
