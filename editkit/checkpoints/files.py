"""Files of a checkpoint: what they may be called, where a link may lead, and what they hash to.

    inside(Path("snapshots/9213176"), "model.safetensors") -> Path("blobs/2c1f...")
    inside(Path("downloads/model"), "model.safetensors")   -> EditkitError: a link that leads out of the checkpoint

Checkpoints are downloads: a name may hold control characters, and a link may point at any file of this machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from editkit.errors import EditkitError
from editkit.printable import is_printable, printable

_STORED = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}")

SIDE_BY_SIDE = max(2, min(4, os.cpu_count() or 1))
"""Files that are read or copied at once: one a core, but two to four."""


def inside(directory: Path, name: str) -> Path:
    """The real path of the file ``name`` of a checkpoint.

    A file may be a symbolic link only if it ends inside the checkpoint itself or, where the checkpoint is a snapshot
    of a Hub cache (``models--*/snapshots/REVISION``), where the cache keeps its files: in the ``blobs`` folder beside
    ``snapshots``, or under its hash in the store that all repositories of the cache share.

    Raises:
        EditkitError: if the file is missing, leads outside, or is not a regular file (a pipe, a device, a folder).
    """
    root = directory.resolve()
    try:
        real = (directory / name).resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError) as error:
        raise EditkitError(
            f"{printable(name)}: missing from {printable(str(directory))} (or a link that leads nowhere). "
            "Download the checkpoint again."
        ) from error
    if not real.is_relative_to(root) and not _is_cached(root, real):
        raise EditkitError(
            f"{printable(name)}: a link that leads out of the checkpoint. "
            "Put the file itself in the directory, or give the directory that holds the real files."
        )
    if not stat.S_ISREG(mode):
        raise EditkitError(
            f"{printable(name)}: expected a file, found a folder or device. Remove it from the checkpoint."
        )
    return real


def _is_cached(root: Path, real: Path) -> bool:
    if root.parent.name != "snapshots":
        return False
    blobs = root.parent.parent / "blobs"
    if real.is_relative_to(blobs):  # which a blobs folder that is itself a link never holds: ``real`` is resolved
        return True
    shared = root.parents[2] / "blobs"
    is_stored = real.is_relative_to(shared) and _STORED.fullmatch(real.relative_to(shared).as_posix()) is not None
    return is_stored and root.parent.parent.name.startswith("models--")


def is_file_name(text: str) -> bool:
    """A plain name, without a folder, that every file system takes."""
    return is_printable(text) and text not in ("", ".", "..") and not set(text) & set('/\\:<>"|?*') and len(text) < 256


def is_relative_name(text: str) -> bool:
    """``folder/name`` inside a checkpoint: relative, no ``..``, printable, in its shortest form."""
    parts = text.split("/")
    return is_printable(text) and "\\" not in text and not {"", ".", ".."} & set(parts) and len(text) < 1024


def digest_of(path: Path) -> str:
    """sha256 of a file, in constant memory."""
    try:
        with open(path, "rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EditkitError(f"{printable(path.name)}: cannot be read ({error.strerror}).") from error


def fill(file: Any, buffer: bytearray) -> bool:
    """Read as much as the buffer holds; at the end of the file the buffer shrinks to what is left. False if nothing."""
    count = 0
    with memoryview(buffer) as view:
        while count < len(buffer) and (read := file.readinto(view[count:])):
            count += read
    del buffer[count:]
    return count > 0


def stamp(path: Path) -> tuple[int, int]:
    """Size and time of last change: what differs when a file was written again."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def digests_of(paths: Sequence[Path]) -> list[str]:
    """sha256 of each file, some side by side."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(digest_of, paths))


def _unread(error: OSError) -> None:
    raise EditkitError(f"{printable(str(error.filename))}: this folder cannot be read ({error.strerror}).") from error


def walk(directory: Path) -> list[str]:
    """Every file of a checkpoint, ``folder/name``, sorted. A linked folder is refused: it may lead anywhere."""
    names: list[str] = []
    for folder, folders, files in os.walk(directory, onerror=_unread):
        here = Path(folder)
        linked = sorted(name for name in folders if (here / name).is_symlink())
        if linked:
            raise EditkitError(f"{printable(linked[0])}: a linked folder inside a checkpoint is refused. Copy it in.")
        names += [(here / name).relative_to(directory).as_posix() for name in files]
    return sorted(names)
