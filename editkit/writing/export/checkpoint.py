"""The edited model as a Hugging Face checkpoint: files copied byte for byte, with the edited slices zeroed.

    write(edit, resolve("meta-llama/Llama-3.2-1B-Instruct"), Path("no-swear"))

The model class is never involved, so draft heads, vision towers, tied embeddings, expert names and remote code come
through as they are, in constant memory. Each file is reopened after it was written and compared with the base.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from editkit.checkpoints import architecture, headers
from editkit.checkpoints.files import inside, printable, stamp
from editkit.checkpoints.headers import Headers, TensorInfo
from editkit.checkpoints.source import Source, check_name, identified
from editkit.checkpoints.staging import beside, check_apart, check_free, existing
from editkit.checkpoints.unshipped import NOT_MODEL
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.writing import manifest, undo
from editkit.writing.export.contents import Contents, LeftOut, contents_of
from editkit.writing.export.copying import Crew, copy_files
from editkit.writing.export.plain import plain_card
from editkit.writing.manifest import Edited, Manifest
from editkit.writing.packing import read_tensor
from editkit.writing.slices import Runs, Slice, by_file, slices_of
from editkit.writing.undo import Kept


@dataclass(frozen=True)
class Written:
    """What an export wrote. ``notes`` are sentences for the user: what was left out, what a server needs."""

    directory: Path
    form: str
    edited: tuple[Edited, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()


def write(
    edit: Edit,
    base: Source,
    out: Path,
    *,
    link: bool = False,
    recipe: Mapping[str, Any] | None = None,
    seeds: Mapping[str, int] | None = None,
) -> Written:
    """Write the edited checkpoint to ``out``, with ``editkit/`` (edit, undo, manifest) and a short card in it.

    Args:
        link: share the bytes of unchanged files with the base (reflink, else hard link) instead of copying them. With
            hard links, a later change to the base's file changes OUT too; ``verify`` notices.
        recipe: recorded in the manifest, as are ``seeds``.

    Raises:
        EditkitError: before anything is written if the edit, the base and ``out`` do not go together; after a failure
            nothing is left at ``out``.
    """
    with stage(edit, base, out, link=link, recipe=recipe, seeds=seeds) as written:
        pass
    return Written(Path(out), written.form, written.edited, written.left_out, written.notes)


@contextlib.contextmanager
def stage(
    edit: Edit,
    base: Source,
    out: Path,
    *,
    link: bool = False,
    recipe: Mapping[str, Any] | None = None,
    seeds: Mapping[str, int] | None = None,
) -> Iterator[Written]:
    """The same with room for evidence: yields the finished checkpoint in a directory beside ``out``.

    A base whose revision was left open gets it here, from the hashes that copying takes.
    The caller may load it, measure it, and add ``README.md`` and files in ``editkit/``. On a clean exit the manifest is
    written over everything and the directory becomes ``out``; on an error it vanishes.
    """
    out = Path(out)
    plan = plan_of(edit, base)
    check_apart(out, base.places, "the base checkpoint")
    link = link and _share_a_disk(base.directory, out)
    check_free(out, needed=_needed(base.directory, plan, link))
    with beside(out) as directory:
        with Crew() as crew:
            digests = copy_files(base, plan.contents.copied, plan.headers, plan.runs, directory, crew, link=link)
            base = identified(base, {name: digests[plan.contents.copied[name]].before for name in plan.headers.files})
            edit = Edit(base.base, plan.edit.units)
            edited = edited_tensors(base.directory, directory, plan.slices)
            files = {
                name: Kept(at, digests[at].before, (directory / at).stat().st_size)
                for name, at in plan.contents.copied.items()
            }
            left_out = [asdict(row) for row in plan.contents.left_out]
            undo.save(directory, base, plan.slices, files, left_out)
            (directory / "editkit" / "edit.json").write_text(edit.to_json(), encoding="utf-8", newline="\n")
            crew.finish()
        stamps = {at: stamp(directory / at) for at in digests}
        yield Written(directory, "checkpoint", edited, plan.contents.left_out, _notes(base, plan.contents))
        changed = sorted(at for at, first in stamps.items() if stamp(directory / at) != first)
        if changed:
            raise IntegrityError(f"{', '.join(changed)}: changed after the checkpoint was written and checked.")
        if not (directory / "README.md").exists():
            (directory / "README.md").write_text(plain_card(edit, base, "checkpoint"), encoding="utf-8")
        record = Manifest("checkpoint", edit.base, {}, edited, tuple(left_out), {}, seeds or {}, recipe)
        manifest.write(directory, record, known={at: digest.after for at, digest in digests.items()})


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before a byte is written."""

    edit: Edit
    headers: Headers
    contents: Contents
    slices: tuple[Slice, ...]
    runs: Mapping[str, tuple[Runs, ...]]


def plan_of(edit: Edit, base: Source) -> Plan:
    """Read the base's metadata and place the edit in its files.

    Raises:
        EditkitError: if the edit was made for other weights, or does not fit these.
    """
    check_name(edit.base.model)
    if not _may_be_the_same(edit.base, base.base):
        raise EditkitError(
            f"The edit is for {printable(edit.base.model)} at revision {edit.base.revision}, the base given is at "
            f"{base.base.revision}: these are other weights. Give the revision that the edit names."
        )
    if edit.base.revision != base.base.revision:  # a commit here, a digest there: say what was really read
        edit = Edit(base.base, edit.units)
    found = headers.read(base.directory)
    sites = architecture.read(base.directory)
    if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,64}", sites.model_type):
        raise EditkitError(f"config.json: {printable(repr(sites.model_type))} is no model type: letters, digits, _ . -")
    slices = slices_of(edit, sites, found)
    return Plan(edit, found, contents_of(base, found.files), slices, by_file(slices))


def _may_be_the_same(one: Base, other: Base) -> bool:
    """False where two revisions can only mean different weights (a commit says nothing about a digest)."""
    kinds = {(base.revision or "").startswith("sha256:") for base in (one, other)}
    return one.revision in (None, other.revision) or (len(kinds) == 2 and other.revision is not None)


def edited_tensors(
    base: Path, out: Path, slices: Sequence[Slice], stored: Mapping[str, TensorInfo] | None = None
) -> tuple[Edited, ...]:
    """The record of each edited tensor: its zeroed spans, and its hash in the base and in OUT.

    Args:
        stored: where OUT has the tensors, if not at the same place of the same files as the base.
    """
    tensors: dict[str, list[Slice]] = {}
    for piece in slices:
        tensors.setdefault(piece.tensor.name, []).append(piece)
    rows = []
    with ThreadPoolExecutor(2) as side:
        for name, pieces in sorted(tensors.items()):
            tensor, there = pieces[0].tensor, (stored or {}).get(name, pieces[0].tensor)
            spans = tuple(sorted({(piece.start, piece.stop) for piece in pieces}))
            places = (inside(base, tensor.file), inside(out, there.file))
            before, after = side.map(tensor_digest, places, (tensor, there))
            rows.append(Edited(name, there.file, tensor.dtype, tensor.shape, pieces[0].axis, spans, before, after))
    return tuple(rows)


def tensor_digest(file: Path, tensor: TensorInfo) -> str:
    """sha256 of one tensor's bytes."""
    digest = hashlib.sha256()
    for part in read_tensor(file, tensor):
        digest.update(part)
    return digest.hexdigest()


def _share_a_disk(base: Path, out: Path) -> bool:
    return base.stat().st_dev == existing(out.absolute().parent).stat().st_dev


def _needed(base: Path, plan: Plan, link: bool) -> int:
    """Bytes to be written: every file that is copied (linked are whole weights files, if ``link``), and the slices."""
    linked = set(plan.headers.files) - plan.runs.keys() if link else set()
    slices = sum(run.length * run.count for each in plan.runs.values() for run in each)
    return sum(inside(base, name).stat().st_size for name in plan.contents.copied.keys() - linked) + slices


def _notes(base: Source, contents: Contents) -> tuple[str, ...]:
    weights = [row.file for row in contents.left_out if row.reason != NOT_MODEL]
    notes = []
    if weights:
        notes.append(f"left out, because they hold the unedited weights: {json.dumps(weights, ensure_ascii=False)}")
    if base.converted:
        notes.append(f"converted to safetensors: {json.dumps(base.converted, ensure_ascii=False)}")
    return tuple(notes)
