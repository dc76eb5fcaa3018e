"""The edited model as a Hugging Face checkpoint: files copied byte for byte, with the edited slices zeroed.

    write(edit, resolve("meta-llama/Llama-3.2-1B-Instruct"), Path("no-swear"))

The model class is never involved, so draft heads, vision towers, tied embeddings, expert names and remote code come
through as they are, in constant memory. Each file is reopened after it was written and compared with the base.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from editkit.checkpoints.base_card import base_model
from editkit.checkpoints.files import inside, stamp
from editkit.checkpoints.headers import TensorInfo
from editkit.checkpoints.source import Source, identified
from editkit.checkpoints.staging import beside, check_apart, check_free, existing
from editkit.checkpoints.unshipped import NOT_MODEL
from editkit.edit import Edit
from editkit.errors import IntegrityError
from editkit.units import show
from editkit.writing import manifest, undo_file
from editkit.writing.copying import copy_files
from editkit.writing.manifest import Edited, Manifest
from editkit.writing.plan import LeftOut, Plan, plan_of, told
from editkit.writing.serving import serving
from editkit.writing.slices import Slice
from editkit.writing.undo_file import Kept


@dataclass(frozen=True)
class Written:
    """What an export wrote.

    Args:
        notes: sentences for the user: what was left out, what a server needs.
        weights: sha256 of each weights file of a checkpoint, taken while it was written: no need to hash it again.
    """

    directory: Path
    form: str
    edited: tuple[Edited, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)


def write(edit: Edit, base: Source, out: Path, *, link: bool = False) -> Written:
    """Write the edited checkpoint to ``out``, with ``editkit/`` (edit, undo, manifest) and a short card in it.

    Args:
        link: share the bytes of unchanged files with the base (reflink, else hard link) instead of copying them. With
            hard links, a later change to the base's file changes OUT too; ``verify`` notices.

    Raises:
        EditkitError: before anything is written if the edit, the base and ``out`` do not go together; after a failure
            nothing is left at ``out``.
    """
    with stage(edit, base, out, link=link) as written:
        pass
    return replace(written, directory=Path(out))


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
    written over everything, with ``recipe`` and ``seeds``, and the directory becomes ``out``; on an error it vanishes.
    """
    out = Path(out)
    plan = plan_of(edit, base)
    check_apart(out, base.folders, "the base checkpoint")
    link = link and _share_a_disk(base.directory, out)
    check_free(out, needed=_needed(base.directory, plan, link))
    with beside(out) as directory:
        copied = copy_files(base, plan, directory, link=link)
        weights = {name: copied[plan.copied[name]] for name in plan.headers.files}
        base = identified(base, {name: each.before for name, each in weights.items()})
        edit = Edit(base.base, plan.edit.units)
        edited = edited_tensors(base.directory, directory, plan.slices)
        files = {name: Kept(at, copied[at].before, (directory / at).stat().st_size) for name, at in plan.copied.items()}
        undo_file.save(directory, base, plan.slices, files, plan.recorded)
        (directory / "editkit" / "edit.json").write_text(edit.to_json(), encoding="utf-8", newline="\n")
        stamps = {at: stamp(directory / at) for at in copied}
        after = {plan.copied[name]: each.after for name, each in weights.items()}
        yield Written(directory, "checkpoint", edited, plan.left_out, _notes(base, plan.left_out), after)
        changed = sorted(at for at, first in stamps.items() if stamp(directory / at) != first)
        if changed:
            raise IntegrityError(f"{', '.join(changed)}: changed after the checkpoint was written and checked.")
        if not (directory / "README.md").exists():
            (directory / "README.md").write_text(plain_card(edit, base, "checkpoint"), encoding="utf-8")
        record = Manifest("checkpoint", edit.base, {}, edited, tuple(plan.recorded), {}, seeds or {}, recipe)
        manifest.write(directory, record, known={at: each.after for at, each in copied.items()})


def edited_tensors(base: Path, out: Path, slices: Sequence[Slice]) -> tuple[Edited, ...]:
    """The record of each edited tensor: its zeroed spans, and its hash in the base and in OUT."""
    tensors: dict[str, list[Slice]] = {}
    for piece in slices:
        tensors.setdefault(piece.tensor.name, []).append(piece)
    rows = []
    with ThreadPoolExecutor(2) as threads:
        for name, pieces in sorted(tensors.items()):
            tensor, axis = pieces[0].tensor, pieces[0].axis
            files = [inside(directory, tensor.file) for directory in (base, out)]
            before, after = threads.map(tensor_digest, files, (tensor, tensor))
            for part in dict.fromkeys(piece.part for piece in pieces):
                spans = tuple(sorted({span for piece in pieces if piece.part == part for span in piece.spans}))
                rows.append(Edited(name, tensor.file, tensor.dtype, tensor.shape, axis, spans, before, after, part))
    return tuple(rows)


def tensor_digest(file: Path, tensor: TensorInfo) -> str:
    """sha256 of one tensor's bytes."""
    digest = hashlib.sha256()
    with open(file, "rb") as stored:
        stored.seek(tensor.start)
        for start in range(tensor.start, tensor.end, 8 << 20):
            digest.update(stored.read(min(8 << 20, tensor.end - start)))
    return digest.hexdigest()


def _share_a_disk(base: Path, out: Path) -> bool:
    return base.stat().st_dev == existing(out.absolute().parent).stat().st_dev


def _needed(base: Path, plan: Plan, link: bool) -> int:
    """Bytes to be written: every file that is copied (linked are whole weights files, if ``link``), and the slices."""
    linked = set(plan.headers.files) - plan.runs.keys() if link else set()
    slices = sum(run.bytes for each in plan.runs.values() for run in each)
    return sum(inside(base, name).stat().st_size for name in plan.copied.keys() - linked) + slices


def _notes(base: Source, left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    weights = [row.file for row in left_out if row.reason != NOT_MODEL]
    notes = []
    if weights:
        notes.append(f"left out, because they hold the unedited weights: {json.dumps(weights, ensure_ascii=False)}")
    if behind := told(left_out):
        notes.append(behind)
    if base.converted:
        notes.append(f"converted to safetensors: {json.dumps(base.converted, ensure_ascii=False)}")
    return tuple(notes)


_HOW = {
    "checkpoint": "The weights are the base's, byte for byte, with the input slices of these units set to zero.\n"
    "What this removal does to the model was not measured; `editkit evaluate` measures it.\n\n"
    "`editkit verify .` checks every file. `editkit undo . -o ../unedited` gives the base back.",
    "lora": "This is an adapter: loaded on the base, it subtracts what these units add.\n"
    "What this removal does to the model was not measured.\n\n"
    "`editkit verify .` checks every file. The base itself is unchanged.",
}
_LIBRARY = {"checkpoint": "transformers", "lora": "peft"}


def plain_card(edit: Edit, base: Source, form: str, *, notes: Sequence[str] = ()) -> str:
    """The card of an output that was baked without being measured: what was removed, from what, how to go back.

    Markdown with YAML front matter. Names are quoted in both, whatever they hold.
    """
    name = json.dumps(edit.base.model, ensure_ascii=False)
    on_hub = not base.bundled and "sha256:" not in (edit.base.revision or "")
    known = edit.base.model if on_hub else "BASE.gguf" if base.quantization else "BASE"
    front = [f"base_model: {name}"] if on_hub else []
    carried = base_model(base, dtype="")
    for key in ("license", "license_name", "license_link"):
        value = getattr(carried, key)
        front += [f"{key}: {json.dumps(value)}"] if value else []
    lines = ["---", *front, f"library_name: {_LIBRARY[form]}", "tags:", "- editkit", "---", "", "# Edited model", ""]
    lines += [
        f"Removed units ({edit.kind}s): {', '.join(show(edit.units)) or 'none'}.",
        f"Base: `{edit.base.model}`, revision `{edit.base.revision}`.",
        "",
        *(line for notice in carried.notices for line in (f"{notice}.", "")),
        *(_HOW[form], "", *notes),
    ]
    if not base.bundled:
        served = serving(form, "THIS_FOLDER", base=known, quantized=bool(base.quantization))
        lines += ["", "To serve it, where the program knows the architecture:", "", "```sh", served, "```", ""]
    return "\n".join(lines)
