"""A published edit at one commit, fetched in parts: its records whole, its weights as headers, then piece by piece.

published.fetch_evidence()                   manifest, edit, undo file, config and headers into ``folder``
published.pieces("model.safetensors")        the bytes of one file, in order, never kept
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from editkit.checkpoints import headers
from editkit.checkpoints.files import is_relative_name, printable
from editkit.edit import Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.evidence import examples
from editkit.hub.metadata import save_hollow
from editkit.hub.remote import PIECE, RemoteFile, read_bytes
from editkit.writing import manifest, undo_file

if TYPE_CHECKING:
    from huggingface_hub import HfApi

EDIT = "editkit/edit.json"
MEASURED = (
    *("README.md", "editkit/report.html", "editkit/report.json", "editkit/provenance.json"),
    *("editkit/localization.json", examples.NAME),
)
MOST_BYTES = 64 << 20
"""Bytes of one of these files, at most. A page of a large model has a few million."""


class PublishedEdit:
    """A published edit at one commit: small files fetched once, the headers of its weights laid out in ``folder``."""

    def __init__(self, api: HfApi, repo: str, commit: str, there: Mapping[str, RemoteFile], folder: Path) -> None:
        self.api, self.repo, self.commit, self.there, self.folder = api, repo, commit, there, folder
        self.read = 0
        self._contents: dict[str, bytes] = {}

    def fetch_evidence(self) -> manifest.Manifest:
        """Fetch manifest, edit, undo file and config, and the header of every weights file.

        The weights files in ``folder`` are holes of the right size behind their headers: enough for everything that
        reads a checkpoint's metadata.
        """
        unsafe = sorted(path for path in self.there if not is_relative_name(path))
        if unsafe:
            raise IntegrityError(f"{self.repo}: {printable(unsafe[0])!r} is no name of a file of a checkpoint.")
        self._save(manifest.NAME)
        record = manifest.read(self.folder)
        if record.form != "checkpoint":
            raise EditkitError(
                f"{self.repo} is a {record.form}, not a whole checkpoint. Download it and run `editkit verify` on it."
            )
        for path in (EDIT, undo_file.NAME, "config.json"):
            self._save(path)
        if headers.INDEX in self.there:
            self._save(headers.INDEX)
        for path in self.there:
            if path.endswith(".safetensors") and "/" not in path:
                save_hollow(partial(self._fetch, path), self.there[path].size, self.folder / path)
        return record

    def fetch_record(self) -> None:
        """Fetch what was measured, and what card and page say of it.

        Raises:
            IntegrityError: a file is larger than any that a run writes.
        """
        for path in MEASURED:
            if path in self.there and self.there[path].size > MOST_BYTES:
                raise IntegrityError(f"{self.repo}: {path} is larger than any that a run writes.")
            if path in self.there:
                self._save(path)

    @property
    def edit(self) -> Edit:
        return Edit.from_json(self.content(EDIT).decode("utf-8", "replace"), where=f"{self.repo}: {EDIT}")

    def content(self, path: str) -> bytes:
        """A whole small file."""
        if path not in self._contents:
            if path not in self.there:
                raise IntegrityError(f"{self.repo}: expected {path}, found none: not a published edit.")
            self._contents[path] = self._fetch(path, 0, self.there[path].size)
        return self._contents[path]

    def sha256(self, path: str) -> str:
        """The hash of a file: of its bytes where they were fetched or are few, else the one the server lists."""
        listed = self.there[path].sha256
        if listed is not None and path not in self._contents:
            return listed
        return hashlib.sha256(self.content(path)).hexdigest()

    def pieces(self, path: str) -> Iterator[bytes]:
        """A file from its first byte to its last."""
        size = self.there[path].size
        return (self._fetch(path, at, min(at + PIECE, size)) for at in range(0, size, PIECE))

    def _fetch(self, path: str, start: int, end: int) -> bytes:
        content = read_bytes(self.api, self.repo, self.commit, path, start, end)
        self.read += len(content)
        return content

    def _save(self, path: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(self.content(path))
