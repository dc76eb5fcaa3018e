"""What is decided before a byte is written: the edit placed in the files of a base, and where each file goes.

    plan.runs      {"model.safetensors": (Runs(first=1874, length=128, stride=4096, count=2048),)}
    plan.copied    {"config.json": "config.json", "README.md": "editkit/base/README.md", ...}   in the base -> in OUT
    plan.left_out  [LeftOut("pytorch_model.bin", "another copy of the unedited weights"), ...]

The base's own card, and the ``editkit`` folder of a base that was edited before, move to ``editkit/base/``: OUT has its
own, and undo puts them back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from editkit.checkpoints import architecture, headers
from editkit.checkpoints.files import is_relative_name, printable, walk
from editkit.checkpoints.headers import Headers
from editkit.checkpoints.source import Source, check_name, runs_code
from editkit.checkpoints.unshipped import DESKTOP, NOT_MODEL, SERVERS_OWN, why
from editkit.edit import Base, Edit
from editkit.errors import EditkitError
from editkit.writing.slices import Runs, Slice, by_file, slices_of

KEPT = "editkit/base/"
"""Where OUT keeps the files of the base whose place it needs for its own."""
_DULL = (*SERVERS_OWN, *DESKTOP, ".git", ".cache", "__pycache__")
_NAMED = 20


@dataclass(frozen=True)
class LeftOut:
    """A file of the base that does not go into OUT, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """An edit placed in a base. Every file of the base is in ``copied`` or in ``left_out``."""

    edit: Edit
    headers: Headers
    slices: tuple[Slice, ...]
    runs: Mapping[str, tuple[Runs, ...]]
    copied: Mapping[str, str]
    left_out: tuple[LeftOut, ...]

    @property
    def recorded(self) -> list[dict[str, str]]:
        """What is left out, for the record: what else lay in the base's folder is told, and not written down."""
        return [asdict(row) for row in self.left_out if row.reason != NOT_MODEL]


def plan_of(edit: Edit, base: Source) -> Plan:
    """Read the base's metadata and place the edit in its files.

    Raises:
        EditkitError: if the edit was made for other weights, or does not fit these; for a file name with control
            characters, or a linked folder.
    """
    check_name(edit.base.model)
    if not _may_be_the_same(edit.base, base.base):
        raise EditkitError(
            f"The edit is for {printable(edit.base.model)} at revision {edit.base.revision}, the base given is at "
            f"{base.base.revision}: these are other weights. Give the revision that the edit names."
        )
    if edit.base != base.base:  # a commit here, a digest there, a folder that was moved: say what was really read
        edit = Edit(base.base, edit.units)
    stored = headers.read(base.directory)
    sites = architecture.read(base.directory)
    if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,64}", sites.model_type):
        raise EditkitError(f"config.json: {printable(repr(sites.model_type))} is no model type: letters, digits, _ . -")
    slices = slices_of(edit, sites, stored)
    return Plan(edit, stored, slices, by_file(slices), *_sorted_files(base, stored.files))


def place_of(name: str) -> str:
    """Where OUT keeps a file of the base."""
    return KEPT + name if name == "README.md" or name.startswith("editkit/") else name


def left_behind(base: Source) -> str:
    """A sentence that names what lies beside the model and does not go along; "" where nothing does."""
    return told(_sorted_files(base, headers.read(base.directory).files)[1])


def told(left_out: Sequence[LeftOut]) -> str:
    """The same for files that were sorted. Folders go by name; what servers and file managers add is not named."""
    names = (row.file for row in left_out if row.reason == NOT_MODEL)
    tops = {top + slash for top, slash, _ in (name.partition("/") for name in names) if top.lower() not in _DULL}
    if not tops:
        return ""
    listed = ", ".join(map(printable, sorted(tops)[:_NAMED])) + (" ..." if len(tops) > _NAMED else "")
    return f"left behind, as no part of a model: {listed}"


def _may_be_the_same(one: Base, other: Base) -> bool:
    """False where two revisions can only mean different weights (a commit says nothing about a digest)."""
    kinds = {(base.revision or "").startswith("sha256:") for base in (one, other)}
    return one.revision in (None, other.revision) or (len(kinds) == 2 and other.revision is not None)


def _sorted_files(base: Source, weights: Collection[str]) -> tuple[dict[str, str], tuple[LeftOut, ...]]:
    """The files that go along, and those that do not: ``weights`` hold the model, every other weights file stays."""
    copied, left_out, code = {}, [], runs_code(base.directory)
    names = set(walk(base.directory))
    absent = set(walk(base.original)) - names if base.original and not base.gguf else set()  # from its conversion
    for name in sorted(names | absent):
        if not is_relative_name(name):
            raise EditkitError(f"{printable(name)!r}: a file name with control characters is refused. Rename the file.")
        reason = why(name, weights, code=code)
        if reason is None and name in names:
            copied[name] = place_of(name)
        elif reason is not None:
            left_out.append(LeftOut(name, reason))
    if base.gguf is not None:
        left_out.append(LeftOut(base.gguf.name, f"the quantized base ({base.quantization}): dequantized here"))
    return copied, tuple(left_out)
