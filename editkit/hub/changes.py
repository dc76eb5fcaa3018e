"""What a push will do, file by file, decided before anything is sent.

    Operation("copy", "model-00002-of-00004.safetensors", 4999802720)   on the server, from the base
    Operation("upload", "model-00001-of-00004.safetensors", 4976698672)
    Operation("keep", "tokenizer.json", 9085657)                        already there with the same content
    Operation("delete", "old.safetensors", 1024)                        left over from an earlier push

Pure: listings in, operations out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from editkit.checkpoints.unshipped import SERVERS_OWN
from editkit.hub.remote import RemoteFile

Kind = Literal["upload", "copy", "keep", "delete"]


@dataclass(frozen=True)
class LocalFile:
    """A file to publish: where it goes, and its content as a path or, if it was made for this push, as bytes."""

    path: str
    size: int
    sha256: str
    content: Path | bytes

    def read(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


@dataclass(frozen=True)
class Operation:
    """One change to the repository. ``source`` is the path in the base repository that a copy comes from."""

    kind: Kind
    path: str
    bytes: int
    source: str | None = None


def needed(
    files: Iterable[LocalFile],
    remote: Mapping[str, RemoteFile],
    base: Mapping[str, RemoteFile],
    earlier: Mapping[str, tuple[str, int]],
) -> tuple[Operation, ...]:
    """The operations that bring ``files`` to ``remote``, by path, and take away what an earlier push left over.

    Args:
        remote: what the repository holds now; empty for a new one.
        base: what the base repository on the same server holds; empty where nothing can be copied.
        earlier: sha256 and size of each file of the manifest that is there: nothing else is ever deleted.
    """
    wanted = {file.path: file for file in files}
    operations = [_for_file(file, remote, base) for file in wanted.values()]
    gone = [there for path, there in remote.items() if path not in wanted and _is_listed(there, earlier)]
    operations += [Operation("delete", there.path, there.size) for there in gone]
    return tuple(sorted(operations, key=lambda operation: operation.path))


def sent_again(
    operations: Iterable[Operation], files: Mapping[str, LocalFile], base: Mapping[str, RemoteFile]
) -> tuple[str, ...]:
    """What is uploaded although the base on the same server holds the same content, because it cannot be copied."""
    known = {there.sha256 for there in base.values() if there.sha256 and not there.copyable}
    return tuple(each.path for each in operations if each.kind == "upload" and files[each.path].sha256 in known)


def strangers(operations: Iterable[Operation], remote: Collection[str]) -> tuple[str, ...]:
    """What is there and stays, because no push of editkit put it there."""
    return tuple(sorted(set(remote) - {operation.path for operation in operations} - {*SERVERS_OWN}))


def _is_listed(there: RemoteFile, earlier: Mapping[str, tuple[str, int]]) -> bool:
    digest, size = earlier.get(there.path, ("", -1))
    return there.size == size and there.sha256 in (None, digest)


def is_same(file: LocalFile, there: RemoteFile) -> bool:
    """Whether a remote file has the local file's content, as far as its listing tells."""
    if there.size != file.size:
        return False
    return there.sha256 == file.sha256 if there.sha256 else there.blob == git_sha1(file.read())


def git_sha1(content: bytes) -> str:
    """The name git gives a small file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _for_file(file: LocalFile, remote: Mapping[str, RemoteFile], base: Mapping[str, RemoteFile]) -> Operation:
    there = remote.get(file.path)
    if there is not None and is_same(file, there):
        return Operation("keep", file.path, file.size)
    candidates = [base[file.path]] if file.path in base else []
    candidates += [other for other in base.values() if other.path != file.path]
    for other in candidates:
        if other.copyable and other.sha256 == file.sha256:
            return Operation("copy", file.path, file.size, source=other.path)
    return Operation("upload", file.path, file.size)
