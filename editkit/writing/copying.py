"""Copy the files of a base with some runs of bytes zeroed: read back, compared, hashed and flushed on the way.

    copy_files(base, plan, directory) -> {"model.safetensors": Copied(before="9f2c...", after="41ab...")}

Chunk by chunk: read the base, zero, write, read the copy back through a descriptor of its own, compare. Both hashes of
an edited file are taken meanwhile, in threads, and up to the first zeroed byte they are one. The hash of a copy is of
what the copy holds, not of what was meant. Memory is constant.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from editkit.checkpoints.files import SIDE_BY_SIDE, digest_of, fill, inside, printable, stamp
from editkit.checkpoints.headers import Headers
from editkit.checkpoints.source import Source
from editkit.checkpoints.staging import flush
from editkit.errors import IntegrityError
from editkit.writing.plan import Plan
from editkit.writing.slices import Runs, zero

CHUNK = 1 << 19
"""Bytes at a time: they stay in a core's cache while they are written, read back, compared and hashed."""
FLUSHED = 1 << 26
"""Bytes after which a file that is still being copied is flushed, so that the disk never idles."""
LISTED = 16
"""Differing bytes that are listed, at most."""

_FICLONE = 0x40049409
"""ioctl of Linux: share the extents of another file until one of them is written to."""


@dataclass(frozen=True)
class Copied:
    """sha256 of a file of the base and of its copy, and the offsets of bytes in which the copy is wrong."""

    before: str
    after: str
    differing: tuple[int, ...] = ()


def copy_files(base: Source, plan: Plan, directory: Path, *, link: bool = False) -> dict[str, Copied]:
    """Copy every file of the plan into ``directory``, some side by side; returned by their names there.

    Args:
        link: link the weights files that are not edited, where the file system can.

    Raises:
        IntegrityError: what was read back is not what was written, or the base changed meanwhile.
    """
    futures: dict[str, Future[Copied]] = {}
    flushes: list[Future[None]] = []
    stopped = Event()

    def written(path: Path) -> None:
        if stopped.is_set():
            raise CancelledError
        if path.stat().st_size >= FLUSHED:  # small ones are left to the end, where all are flushed
            flushes.append(flushing.submit(flush, path))

    with ThreadPoolExecutor(1) as flushing, ThreadPoolExecutor(SIDE_BY_SIDE) as pool, contextlib.ExitStack() as leaving:
        leaving.callback(stopped.set)
        for name, at in sorted(plan.copied.items(), key=lambda pair: pair[0] not in plan.runs):
            real, target, known = inside(base.directory, name), directory / at, base.digests.get(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if base.stamps.get(name, now := stamp(real)) != now:
                raise IntegrityError(f"{name}: changed since the model was looked up. Nothing was kept; run it again.")
            if link and name in plan.headers.files and name not in plan.runs and _link(real, target):
                futures[name] = pool.submit(_linked, target, known)
            else:
                runs = plan.runs.get(name, ())
                futures[name] = pool.submit(copy, real, target, runs, known=known, written=written)
        copied = {plan.copied[name]: _right(name, future.result(), plan.headers) for name, future in futures.items()}
        for done in flushes:
            done.result()
    return copied


def _right(name: str, copied: Copied, headers: Headers) -> Copied:
    for offset in copied.differing[:1]:
        tensors = (each for each in headers.tensors.values() if each.file == name)
        where = next((each.name for each in tensors if each.start <= offset < each.end), f"byte {offset}")
        raise IntegrityError(
            f"{name}: read back, it is not what was written ({where} differs). "
            "The disk or another program changed it while it was copied; nothing was kept."
        )
    return copied


def copy(
    base: Path,
    out: Path,
    runs: Sequence[Runs] = (),
    *,
    known: str | None = None,
    written: Callable[[Path], object] = lambda out: None,
) -> Copied:
    """Copy ``base`` to a new file ``out`` with the runs zeroed, and read it back.

    Args:
        known: sha256 of ``base``, which is then not taken again.
        written: called with ``out`` after every 64 MB and at the end; may flush it, or raise to give up.

    Raises:
        IntegrityError: ``base`` changed meanwhile.
    """
    first, offset = stamp(base), 0
    after, before = (None if known and not runs else hashlib.sha256()), None
    differing, hashing, buffers = [], [], [bytearray(CHUNK), bytearray(CHUNK)]
    with (
        open(base, "rb", buffering=0) as source,
        open(out, "xb", buffering=0) as target,
        open(out, "rb", buffering=0) as back,
        ThreadPoolExecutor(2) as threads,
    ):
        for chunk, zeroed in _chunks(source, runs, first[0]):
            _write(target, zeroed)
            again = _filled(back, buffers[0], len(zeroed))
            differing += _differing(zeroed, again, offset)
            for done in hashing:
                done.result()
            if after and before is None and zeroed is not chunk and not known:
                before = after.copy()
            pairs = ((after, again), (before, chunk))
            hashing = [threads.submit(digest.update, data) for digest, data in pairs if digest]
            buffers.reverse()
            offset += len(chunk)
            if offset % FLUSHED == 0:
                written(out)
        if offset % FLUSHED:
            written(out)
        differing += [offset] if back.read(1) else []
    if stamp(base) != first or offset != first[0]:
        raise IntegrityError(f"{printable(base.name)}: changed while it was copied. Nothing was kept.")
    whole = after.hexdigest() if after else known or ""
    return Copied(known or (before.hexdigest() if before else whole), whole, tuple(differing[:LISTED]))


def differences(base: Path, out: Path, runs: Sequence[Runs] = ()) -> tuple[int, ...]:
    """Offsets (the first in each chunk, few of many) at which ``out`` is not ``base`` with the runs zeroed."""
    if os.path.samefile(base, out) and not runs:
        return ()
    differing, offset, buffer = [], 0, bytearray(CHUNK)
    with open(base, "rb", buffering=0) as source, open(out, "rb", buffering=0) as back:
        for _, zeroed in _chunks(source, runs, base.stat().st_size):
            differing += _differing(zeroed, _filled(back, buffer, len(zeroed)), offset)
            offset += len(zeroed)
            if len(differing) >= LISTED:
                return tuple(differing)
        return (*differing, offset) if back.read(1) else tuple(differing)


def _chunks(source: Any, runs: Sequence[Runs], size: int) -> Iterator[tuple[bytearray, bytearray]]:
    """A file in chunks, as it is and with the runs zeroed: the same object where no run is.

    A chunk is good until the next but one is asked for. A file that grows on and on is read up to ``size``.
    """
    offset, buffers = 0, [bytearray(CHUNK), bytearray(CHUNK)]
    waiting, near = sorted(runs, key=lambda each: each.first, reverse=True), []
    while offset < size and fill(source, chunk := buffers[0]):
        while waiting and waiting[-1].first < offset + len(chunk):
            near.append(waiting.pop())
        near = [each for each in near if each.end > offset]
        zeroed = bytearray(chunk) if near else chunk
        if near and not zero(np.frombuffer(zeroed, np.uint8), offset, near):
            zeroed = chunk
        yield chunk, zeroed
        offset += len(chunk)
        buffers.reverse()


def _differing(expected: bytearray, actual: bytearray, start: int) -> list[int]:
    """The first byte of a chunk that is not what it should be; where the file ends too early is one."""
    if expected == actual:
        return []
    shared = min(len(expected), len(actual))
    unequal = np.flatnonzero(np.frombuffer(expected, np.uint8)[:shared] != np.frombuffer(actual, np.uint8)[:shared])
    return [start + (int(unequal[0]) if len(unequal) else shared)]


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


def _link(base: Path, out: Path) -> bool:
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


def _linked(out: Path, known: str | None) -> Copied:
    digest = known or digest_of(out)
    return Copied(digest, digest)
