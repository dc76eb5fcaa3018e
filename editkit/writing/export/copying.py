"""Every file of a base, copied or linked side by side: read back and hashed on the way, flushed meanwhile.

with Crew() as crew:
    copy_files(base, {"model.safetensors": "model.safetensors"}, headers, runs, directory, crew, link=False)
    -> {"model.safetensors": Digests(before="9f2c...", after="41ab...")}
    crew.finish()                                 # what was copied is on the disk
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from editkit.checkpoints.files import SIDE_BY_SIDE, digest_of, inside, stamp
from editkit.checkpoints.headers import Headers
from editkit.checkpoints.source import Source
from editkit.checkpoints.staging import flush
from editkit.errors import IntegrityError
from editkit.writing import patch
from editkit.writing.slices import Runs

T = TypeVar("T")


@dataclass(frozen=True)
class Digests:
    """sha256 of a file of the base, and of what became of it."""

    before: str
    after: str


class Crew:
    """Threads that copy and hash side by side, and one that flushes what they wrote. Leaving early stops them."""

    def __init__(self) -> None:
        self._copying = ThreadPoolExecutor(SIDE_BY_SIDE)
        self._flushing = ThreadPoolExecutor(1)
        self._flushes: list[Future[None]] = []
        self._left = False

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._left = True
        for pool in (self._copying, self._flushing):
            pool.shutdown(cancel_futures=True)

    def do(self, work: Callable[..., T], *arguments: Any, **options: Any) -> Future[T]:
        return self._copying.submit(work, *arguments, **options)

    def flush(self, path: Path) -> None:
        """Flush a file, later; small ones are left to the end, where all are flushed."""
        if self._left:
            raise CancelledError
        if path.stat().st_size >= patch.FLUSHED:
            self._flushes.append(self._flushing.submit(flush, path))

    def finish(self) -> None:
        """Wait until what was copied is flushed; raise what went wrong."""
        for done in self._flushes:
            done.result()


def copy_files(
    base: Source,
    names: Mapping[str, str],
    found: Headers,
    zeroed: Mapping[str, Sequence[Runs]],
    directory: Path,
    crew: Crew,
    *,
    link: bool,
) -> dict[str, Digests]:
    """Copy, or link where nothing changes, every file of ``names``: name in the base -> name in ``directory``.

    Returns the digests by name in ``directory``.

    Raises:
        IntegrityError: what was read back is not what was written, or the base changed meanwhile.
    """
    copied: dict[str, Future[patch.Copied]] = {}
    for name, at in sorted(names.items(), key=lambda pair: pair[0] not in zeroed):
        real, target = inside(base.directory, name), directory / at
        target.parent.mkdir(parents=True, exist_ok=True)
        runs, known = zeroed.get(name, ()), base.digests.get(name)
        if base.stamps.get(name, now := stamp(real)) != now:
            raise IntegrityError(f"{name}: changed since the model was looked up. Nothing was kept; run it again.")
        if link and not runs and name in found.files and patch.link(real, target):
            copied[at] = crew.do(_linked, target, known)
            continue
        hashing = ("aside" if known else "both") if runs else "no" if known else "here"
        copied[at] = crew.do(patch.copy, real, target, runs, hashing=hashing, written=crew.flush)
    digests = {}
    for name, at in names.items():
        result = copied[at].result()
        for place in result.differing[:1]:
            raise IntegrityError(
                f"{name}: read back, it is not what was written ({_tensor_at(found, name, place)} differs). "
                "The disk or another program changed it while it was copied; nothing was kept."
            )
        unedited = base.digests.get(name) or result.before or result.digest
        digests[at] = Digests(unedited, result.digest or unedited)
    return digests


def _linked(target: Path, known: str | None) -> patch.Copied:
    return patch.Copied(known or digest_of(target))


def _tensor_at(found: Headers, file: str, place: int) -> str:
    tensors = (tensor for tensor in found.tensors.values() if tensor.file == file)
    return next((tensor.name for tensor in tensors if tensor.start <= place < tensor.end), f"byte {place}")
