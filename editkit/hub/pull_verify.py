"""Check a published edit against its base, without trusting its publisher and without downloading the base.

    pull_verify("alice/no-swear")
    Verification(repo="alice/no-swear", commit="8d03...", base=Base("meta-llama/Llama-3.2-1B-Instruct", "9213176..."),
                 units=("L11H2", "L26H7"), edited=("model.safetensors",), unchanged=11, zeroed=524288, read=2489103211)

The proof: an edited file is read once; the stated slices must be zero there; with the published undo slices put back,
its hash must be the hash that the Hub lists for the base's file. So nothing but those slices differs. Every other file
must have the base's hash. The undo file is not trusted either: wrong bytes in it give another hash.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from editkit.checkpoints import architecture, headers
from editkit.checkpoints.files import digest_of, printable, walk
from editkit.checkpoints.source import BUNDLED, local, resolve
from editkit.checkpoints.unshipped import CODE_CONFIGS, SERVERS_OWN, is_record, names_code, why
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.hub.changes import git_sha1
from editkit.hub.published import PublishedEdit
from editkit.hub.remote import RemoteFile, connect, head_of, listing
from editkit.render.evidence_check import check
from editkit.units import show
from editkit.writing import manifest, undo_file
from editkit.writing.plan import place_of
from editkit.writing.slices import Runs, key_of, runs_of, slices_of
from editkit.writing.undo_file import Undo, removed_bytes

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_OWN = ("README.md", *SERVERS_OWN)
"""Files that need not be the base's, beside those in ``editkit/``: loading the model reads none of them."""


@dataclass(frozen=True)
class Verification:
    """What was confirmed: exactly ``units`` differ from ``base``, and they are zero.

    Args:
        edited: the files that hold them, read byte by byte.
        unchanged: how many files are the base's, by hash.
        zeroed: bytes seen to be zero.
        read: bytes downloaded in all.
        evidence: what of its numbers was computed again, in words; empty where nothing was measured.
    """

    repo: str
    commit: str
    base: Base
    units: tuple[str, ...]
    edited: tuple[str, ...]
    unchanged: int
    zeroed: int
    read: int
    evidence: str = ""


@dataclass(frozen=True)
class Reading:
    """One file, read to its end.

    Args:
        sha256: of the file as it is.
        base_sha256, base_git: of the file with the removed bytes put back, as sha256 and as git's blob name.
        zeroed: bytes of the stated slices that were zero.
        nonzero: the offset of the first byte of a stated slice that was not zero; None when all were.
    """

    sha256: str
    base_sha256: str
    base_git: str
    zeroed: int
    nonzero: int | None


def pull_verify(
    repo: str,
    *,
    revision: str | None = None,
    base: str | Path | None = None,
    api: HfApi | None = None,
) -> Verification:
    """Confirm that a published checkpoint is its base with exactly the stated slices zeroed.

    Args:
        revision: a commit, branch, tag or ``refs/pr/N``; default ``main``.
        base: the base to compare with: a directory, or ``owner/name`` or ``owner/name@revision`` on the same server.
            Default: what the published edit names.
        api: the Hub to ask; default: the one that huggingface_hub is set to, with the stored token.

    Raises:
        IntegrityError: listing every file that is not what it should be.
    """
    api = connect(api)
    commit = head_of(api, repo, revision)
    if commit is None:
        raise EditkitError(f"{repo} is empty: there is nothing to verify.")
    there = listing(api, repo, commit)
    with tempfile.TemporaryDirectory(prefix="editkit-") as folder:
        published = PublishedEdit(api, repo, commit, there, Path(folder))
        return _verify(published, base)


def _verify(published: PublishedEdit, base: str | Path | None) -> Verification:
    record = published.fetch_evidence()
    published.fetch_record()
    edit = published.edit
    back = undo_file.read(published.folder)
    if not edit.base == record.base == back.base:
        raise IntegrityError(f"{published.repo}: edit, manifest and undo file do not name the same base.")
    _check_slices(published, edit, back)
    shelf = _base_listing(published.api, edit.base, base)
    wrong = _against_manifest(published, record)
    edited = sorted({piece.tensor.file for piece in back.slices})
    readings = {file: read_restored(published.pieces(file), file, published.there[file].size, back) for file in edited}
    for file, reading in readings.items():
        wrong += _against_reading(file, reading, record)
    wrong += _against_base(published, back, readings, shelf, edit.base.model)
    if wrong:
        lines = "".join(f"\n  {line}" for line in sorted(set(wrong)))
        raise IntegrityError(f"{published.repo} at {published.commit} is not what it says:{lines}")
    evidence = check(published.folder)
    return Verification(
        repo=published.repo,
        commit=published.commit,
        base=edit.base,
        units=tuple(show(edit.units)),
        edited=tuple(edited),
        unchanged=sum(kept.at not in edited for kept in back.files.values()),
        zeroed=sum(reading.zeroed for reading in readings.values()),
        read=published.read,
        evidence=evidence.note,
    )


def _check_slices(published: PublishedEdit, edit: Edit, back: Undo) -> None:
    """The undo file must hold the slices of the stated units, no more and no fewer."""
    folder = published.folder
    stated = {key_of(piece) for piece in slices_of(edit, architecture.read(folder), headers.read(folder))}
    held = {key_of(piece) for piece in back.slices}
    if stated != held:
        raise IntegrityError(
            f"{published.repo}: the undo file does not hold the slices of {', '.join(show(edit.units))}: "
            f"{printable(', '.join(sorted(stated ^ held)))}."
        )


def _against_manifest(published: PublishedEdit, record: manifest.Manifest) -> list[str]:
    """Every file there must be the one the manifest lists, as far as hashes and small files tell."""
    wrong = [f"{name}: missing" for name in record.files.keys() - published.there.keys()]
    for path, file in published.there.items():
        if path == manifest.NAME or (path in SERVERS_OWN and path not in record.files):
            continue
        if path not in record.files:
            wrong.append(f"{printable(path)}: not in the manifest")
            continue
        digest, size = record.files[path]
        if (published.sha256(path), file.size) != (digest, size):
            wrong.append(f"{printable(path)}: not the file of the manifest")
    return wrong


def _against_reading(file: str, reading: Reading, record: manifest.Manifest) -> list[str]:
    if reading.nonzero is not None:
        return [f"{file}: byte {reading.nonzero} belongs to a removed unit and is not zero"]
    if file not in record.files or reading.sha256 != record.files[file][0]:
        return [f"{file}: its bytes are not those of the manifest"]
    return []


def _against_base(
    published: PublishedEdit,
    back: Undo,
    readings: Mapping[str, Reading],
    shelf: Mapping[str, RemoteFile],
    named: str,
) -> list[str]:
    """Every file of the base must be here unchanged but for the removed slices, and nothing else may be."""
    code = names_code(published.content(name) for name in CODE_CONFIGS if name in published.there)
    wrong = [
        f"{printable(name)}: a file of the base that is missing here"
        for name in shelf.keys() - back.files.keys()
        if why(name, back.files.keys(), code=code) is None
    ]
    for name, kept in back.files.items():
        at = place_of(name)
        if kept.at != at:
            wrong.append(f"{printable(name)}: expected at {printable(at)}, said to be at {printable(str(kept.at))}")
        if name not in shelf and name in readings:
            raise EditkitError(
                f"{published.repo}: its weights were converted from pickles: the base has no {name} to compare with. "
                f"Download it, and run `editkit verify DIR --base {printable(named)}`, which converts the base again."
            )
        if name not in shelf:
            wrong.append(f"{printable(name)}: said to be the base's, but the base has no such file")
        elif at not in published.there:
            wrong.append(f"{printable(at)}: missing")
        elif not _is_base_file(published, at, readings.get(at), shelf[name]):
            wrong.append(f"{printable(at)}: differs from the base's {printable(name)} in more than the removed slices")
    explained = {kept.at for kept in back.files.values()} | {*_OWN}
    for path in published.there:
        if path not in explained and not is_record(path):
            wrong.append(f"{printable(path)}: neither the base's nor the record of an edit")
    return wrong


def _is_base_file(published: PublishedEdit, at: str, reading: Reading | None, base: RemoteFile) -> bool:
    there = published.there[at]
    if there.size != base.size:
        return False
    if reading is not None:
        return reading.base_sha256 == base.sha256 if base.sha256 else reading.base_git == base.blob
    if base.sha256:
        return published.sha256(at) == base.sha256
    return git_sha1(published.content(at)) == base.blob


def _base_listing(api: HfApi, named: Base, given: str | Path | None) -> dict[str, RemoteFile]:
    """The base's files with their hashes: from a directory, or from the Hub without downloading them."""
    directory = None if given is None else local(given)
    if directory is not None:
        return _local_listing(directory)
    if given is not None:
        name, _, revision = str(given).partition("@")
        return listing(api, name, revision or (named.revision if name == named.model else None))
    if named.model == BUNDLED:
        return _local_listing(resolve(None, named.revision).directory)
    if _COMMIT.fullmatch(named.revision or "") is None:
        raise EditkitError(
            f"The edit's base is the local directory {printable(named.model)}: nobody else can ask for it. "
            "If you have that model, give its directory with --base."
        )
    return listing(api, named.model, named.revision)


def _local_listing(directory: Path) -> dict[str, RemoteFile]:
    return {
        name: RemoteFile(name, (directory / name).stat().st_size, "", digest_of(directory / name))
        for name in walk(directory)
    }


def read_restored(pieces: Iterable[bytes], file: str, size: int, back: Undo) -> Reading:
    """Read a file of ``size`` bytes that arrives in ``pieces``; ``back`` holds the slices that were removed from it."""
    removed = [
        (runs_of(piece), np.frombuffer(b"".join(removed_bytes(back, piece)), np.uint8))
        for piece in back.slices
        if piece.tensor.file == file
    ]
    edited, restored = hashlib.sha256(), hashlib.sha256()
    blob = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    start, zeroed, nonzero = 0, 0, None
    for content in pieces:
        edited.update(content)
        window = np.frombuffer(content, np.uint8).copy()
        for runs, kept in removed:
            covered, wrong = _restore(window, start, runs, kept)
            zeroed += covered
            nonzero = wrong if nonzero is None else nonzero
        restored.update(window.data)
        blob.update(window.data)
        start += len(content)
    return Reading(edited.hexdigest(), restored.hexdigest(), blob.hexdigest(), zeroed, nonzero)


def _restore(window: np.ndarray, start: int, runs: Runs, kept: np.ndarray) -> tuple[int, int | None]:
    """Fill what the runs cover of a window of the file; how many of its bytes were zero, and the first that was not."""
    at, before = np.flatnonzero(runs.covered(start, len(window))), runs.before(start)
    wrong = at[window[at] != 0]
    window[at] = kept[before : before + len(at)]
    return len(at) - len(wrong), start + int(wrong[0]) if len(wrong) else None
