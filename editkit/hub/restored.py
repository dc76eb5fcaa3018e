"""Read a published weights file once: are the stated slices zero, and what is its hash with the removed bytes put back?

    read_restored(pieces, "model.safetensors", undo.read(folder))
    Reading(sha256="0c3d...", base_sha256="9f2c...", base_git="41ab...", zeroed=524288, nonzero=None)

Constant memory: one piece of the file at a time, and the removed slices of that file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from editkit.writing.slices import Runs, Slice, runs_of, shares
from editkit.writing.undo import Undo, removed_runs


@dataclass(frozen=True)
class Reading:
    """One file, read to its end.

    Args:
        sha256: of the file as it is.
        base_sha256, base_git: of the file with the removed bytes put back, as sha256 and as git's blob name.
        zeroed: bytes of the stated slices that were zero.
        nonzero: the first place inside a stated slice that was not zero; None when all were.
    """

    sha256: str
    base_sha256: str
    base_git: str
    zeroed: int
    nonzero: int | None


def read_restored(pieces: Iterable[bytes], file: str, size: int, back: Undo) -> Reading:
    """Read a file of ``size`` bytes that arrives in ``pieces``; ``back`` holds the slices that were removed from it."""
    removed = [(runs_of(piece), _rows(back, piece)) for piece in back.slices if piece.tensor.file == file]
    edited, restored = hashlib.sha256(), hashlib.sha256()
    blob = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    place, zeroed, nonzero = 0, 0, None
    for content in pieces:
        edited.update(content)
        window = np.frombuffer(content, np.uint8).copy()
        for runs, rows in removed:
            covered, wrong = _restore(window, place, runs, rows)
            zeroed += covered
            nonzero = wrong if nonzero is None else nonzero
        restored.update(window.data)
        blob.update(window.data)
        place += len(content)
    return Reading(edited.hexdigest(), restored.hexdigest(), blob.hexdigest(), zeroed, nonzero)


def _rows(back: Undo, piece: Slice) -> np.ndarray:
    """The removed bytes of a slice, uint8[count, length]."""
    runs = runs_of(piece)
    return np.frombuffer(b"".join(removed_runs(back, piece)), np.uint8).reshape(runs.count, runs.length)


def _restore(window: np.ndarray, start: int, runs: Runs, rows: np.ndarray) -> tuple[int, int | None]:
    """Fill what the runs cover of a window of the file; how many of its bytes were zero, and the first that was not."""
    zeroed, nonzero = 0, None
    for number, offset, share in shares(window, start, runs):
        wrong = np.flatnonzero(share)
        zeroed += len(share) - len(wrong)
        if len(wrong) and nonzero is None:
            nonzero = runs.first + number * runs.stride + offset + int(wrong[0])
        share[:] = rows[number, offset : offset + len(share)]
    return zeroed, nonzero
