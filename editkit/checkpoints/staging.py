"""Write beside, then rename: a crash at any instant leaves either nothing at OUT or the finished directory.

    build/.no-swear.partial-myhost-4711-4711/    while process and thread 4711 write it
    build/no-swear/                              once it is whole

What a killed run left behind is cleared away by the next run for the same OUT.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from editkit.checkpoints.files import is_printable, printable
from editkit.errors import EditkitError

if TYPE_CHECKING:
    import torch

_MARGIN = 16 << 20
"""Bytes kept free beyond what will be written: the card, the report, the file system's own blocks."""


def default_out(model: str, capability: str) -> Path:
    """The output directory where the user names none: ``Llama-3.2-1B-no-swear`` here."""
    return Path(f"{Path(model).name.removesuffix('.gguf')}-no-{capability}")


def check_free(out: Path, *, needed: int = 0) -> None:
    """Refuse early what would fail late: OUT exists, its folder cannot be written, the disk is too full.

    Raises:
        EditkitError: saying which of these it is.
    """
    where = printable(str(out))
    if not is_printable(str(out)):
        raise EditkitError(f"{where}: a directory name with control characters is refused. Choose another.")
    try:
        out.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise EditkitError(f"{where[:60]}: {error.strerror}. Choose another output directory.") from error
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise EditkitError(f"{where} already exists. Choose another output directory, or remove it first.")
    parent = existing(out.absolute().parent)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise EditkitError(f"{where}: {printable(str(parent))} cannot be written to. Choose another output directory.")
    if out.is_dir() and (os.path.samefile(out, os.curdir) or os.path.ismount(out)):
        raise EditkitError(
            f"{where}: the finished directory cannot take the place of the current one, or of one that a disk is "
            "mounted on. Name a new directory inside it."
        )
    free = shutil.disk_usage(parent).free
    if needed and free < needed + _MARGIN:
        raise EditkitError(
            f"{where}: needs {size(needed + _MARGIN)} of disk, {size(free)} are free on {printable(str(parent))}. "
            "Free some space, or write to another disk."
        )


def check_apart(out: Path, read: Iterable[Path], what: str) -> None:
    """Refuse an ``out`` inside a directory that is read: that one is to stay as it is.

    Raises:
        EditkitError: naming ``what`` it is.
    """
    inner = out.absolute().resolve()
    if any(inner.is_relative_to(folder.resolve()) for folder in read):
        raise EditkitError(f"{printable(str(out))} is inside {what}. Choose a directory outside it.")


@contextlib.contextmanager
def beside(out: Path) -> Iterator[Path]:
    """A new directory next to ``out``; on a clean exit it is flushed to disk and becomes ``out``, else it vanishes.

    Raises:
        EditkitError: if ``out`` exists, or for anything the disk refuses (full, read-only), with nothing left behind.
    """
    out = Path(out).absolute()
    with _staged(out) as partial:
        yield partial
        _flush_all(partial)
        if out.is_dir():
            out.rmdir()  # refuses if somebody filled it meanwhile
        partial.rename(out)


@contextlib.contextmanager
def files_beside(out: Path) -> Iterator[Path]:
    """A new directory next to the file ``out``; on a clean exit the files in it move out of it, ``out`` as the last.

    Raises:
        EditkitError: if one of the files is there already, else as ``beside``.
    """
    out = Path(out).absolute()
    with _staged(out) as partial:
        yield partial
        _flush_all(partial)
        names = sorted((path.name for path in partial.iterdir()), key=lambda name: (name == out.name, name))
        for name in names:
            check_free(out.with_name(name))
        for name in names:
            (partial / name).rename(out.with_name(name))


@contextlib.contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """The directory in which something is made that is to be ``out``; what is left of it at the end vanishes."""
    check_free(out)
    partial = out.with_name(f".{out.name}.partial-{_host()}-{os.getpid()}-{threading.get_native_id()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _clear_dead(out)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        flush(out.parent)
    except OSError as error:
        unread = _unread(error, out, partial)
        reason = f"{printable(unread)} cannot be read ({error.strerror})" if unread else _reason(error)
        raise EditkitError(f"{printable(str(out))}: {reason}. Nothing was written there.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _unread(error: OSError, out: Path, partial: Path) -> str | None:
    """The file that may not be read, where it is none of those that are written."""
    if error.errno not in (errno.EACCES, errno.EPERM) or not isinstance(error.filename, str):
        return None
    unread = Path(error.filename).resolve()
    is_written = unread.is_relative_to(partial.resolve()) or out.resolve().is_relative_to(unread)
    return None if is_written else error.filename


def save(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write a safetensors file.

    Raises:
        OSError: for what the disk refuses; the library says it in an error of its own.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"os error ([0-9]+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return f"the disk is full or a size limit was met ({error.strerror}); free some space or choose another disk"
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"it cannot be written to ({error.strerror}); choose another output directory"
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        return "it was filled by somebody else meanwhile; choose another output directory"
    if error.errno == errno.EBUSY:
        return "a disk is mounted on it, or another program holds it; choose a directory inside it"
    return f"writing failed ({printable(str(error))})"


def existing(path: Path) -> Path:
    """The nearest folder above ``path`` (or itself) that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:32] or "host"


def _clear_dead(out: Path) -> None:
    """Remove what runs of this host that are no longer alive left behind for the same OUT."""
    prefix = f".{out.name}.partial-{_host()}-"
    for path in out.parent.iterdir():
        number = path.name.removeprefix(prefix).partition("-")[0]
        if path.name.startswith(prefix) and number.isdigit() and not _is_alive(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (PermissionError, OverflowError):  # somebody else's, or no number of a process: not ours to clear away
        pass
    except ProcessLookupError:
        return False
    return True


def _flush_all(directory: Path) -> None:
    """Files side by side, so that the file system commits many at once; then the folders that name them."""
    with ThreadPoolExecutor(8) as pool:
        folders = [Path(folder) for folder, _, _ in os.walk(directory)]
        list(pool.map(flush, [path for folder in folders for path in folder.iterdir() if path.is_file()]))
        list(pool.map(flush, folders))


def flush(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size(count: int) -> str:
    """Bytes for people: ``92.6 MB``."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
