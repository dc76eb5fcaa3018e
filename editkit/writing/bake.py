"""The writer as a verb: a base and units in, a checkpoint, an adapter or a GGUF file out. No model library is imported.

bake(None, [Head(3, 8)], out="no-L3H8")                        heads of the bundled model
bake("meta-llama/Llama-3.2-1B", "no-swear", out="again")       the edit that an output or an edit.json holds
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from editkit.checkpoints import gguf
from editkit.checkpoints.files import printable
from editkit.checkpoints.source import Source, recorded, resolve
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, UsageError
from editkit.progress import Stages, silent
from editkit.units import Unit, parse_all, units
from editkit.writing.export import EXPORTS
from editkit.writing.export import gguf as export
from editkit.writing.export.checkpoint import Written
from editkit.writing.manifest import Edited


def bake(
    base: Source | str | Path | None,
    heads: Iterable[Unit | str] | str | Path,
    *,
    out: str | Path,
    format: str | None = None,
    revision: str | None = None,
    link: bool = False,
    allow_large_rank: bool = False,
    stages: Stages = silent,
) -> Written:
    """Write ``base`` without some units to ``out``: bytes are copied and slices zeroed, no model is loaded.

    Args:
        base: a model's ``source``, a Hub id, a local directory, a GGUF file, or None for the bundled organism.
        heads: heads and neurons, or their names; or the path of an ``edit.json`` or of an output of editkit, which
            must fit ``base`` (None: the model that the edit names).
        format: ``checkpoint``, ``lora`` (exact once merged) or ``gguf`` (inside the quantized blocks of a GGUF base).
            None: ``gguf`` where ``out`` is called so, else ``checkpoint``.
        link: share unchanged files with the base instead of copying them (checkpoint).
        allow_large_rank: write an adapter even where vLLM cannot serve its rank (lora).
        stages: told while a base is converted.

    Raises:
        EditkitError: a head the model does not have, an existing ``out``, weights that cannot be patched.
    """
    if format is None:
        format = "gguf" if Path(out).suffix.lower() == gguf.SUFFIX else "checkpoint"
    if format == "gguf":
        return _in_blocks(base, heads, Path(out))
    if format not in EXPORTS:
        raise UsageError(f"There is no format {format!r}. Known: {', '.join([*EXPORTS, 'gguf'])}.")
    if isinstance(heads, str | Path):
        edit, source = _edit_at(Path(heads), base, revision, stages)
    else:
        named = format != "checkpoint"  # a checkpoint's writer reads every byte of the base, and names it then
        source = base if isinstance(base, Source) else resolve(base, revision, identify=named, stages=stages)
        edit = Edit(source.base, units(heads))
    options = {"checkpoint": {"link": link}, "lora": {"allow_large_rank": allow_large_rank}}.get(format, {})
    return EXPORTS[format](edit, source, Path(out), **options)


def _edit_at(path: Path, base: Source | str | Path | None, revision: str | None, stages: Stages) -> tuple[Edit, Source]:
    """The edit that a file or an output of editkit holds, and its base."""
    edit = _read(path)
    if not isinstance(base, Source):
        at = revision or (recorded(base, edit.base) if base else edit.base.revision)
        base = resolve(base or edit.base.model, at, stages=stages)
    return edit, base


def _read(path: Path) -> Edit:
    file = path / "editkit" / "edit.json" if path.is_dir() else path
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EditkitError(f"{path}: expected an edit.json, or an output of editkit; {error}.") from error
    return Edit.from_json(text, where=str(file))


def _in_blocks(base: Source | str | Path | None, heads: Iterable[Unit | str] | str | Path, out: Path) -> Written:
    """The edit inside the GGUF file that ``base`` is, or that the edit at the path ``heads`` names."""
    edit = _read(Path(heads)) if isinstance(heads, str | Path) else Edit(Base(""), units(heads))
    model = base or edit.base.model
    file = model.gguf if isinstance(model, Source) else gguf.file_of(model or None)
    if file is None:
        name = "the bundled model" if not model else model.base.model if isinstance(model, Source) else model
        raise UsageError(f"--format gguf edits a GGUF file, {printable(str(name))} is none.")
    record = export.write(edit, file, out)
    edited = tuple(
        Edited(row.tensor, out.name, row.kind, (), row.axis, row.spans, row.before, row.after) for row in record.edited
    )
    run = f"Run it: llama-server -m {shlex.quote(str(out))}. With Ollama: a Modelfile that says FROM {out.absolute()}"
    return Written(out, "gguf", edited, (), (printable(run),))


def bake_named(model: str | None, *, heads: str | None, edit: Path | None, form: str | None, **options: Any) -> Written:
    """``bake`` as the command line says it: the heads by name, or the path of an edit.

    Raises:
        UsageError: neither or both of ``heads`` and ``edit`` are given.
    """
    if heads is not None and edit is None:
        try:
            chosen = parse_all(heads)
        except EditkitError as error:
            raise UsageError(f"--heads: {error}") from error
        if not chosen:
            raise UsageError("--heads names no head: expected some, such as L11H2,L26H7.")
        return bake(model, chosen, format=form, **options)
    if edit is not None and heads is None:
        return bake(model, edit, format=form, **options)
    raise UsageError("Give either --heads L11H2,L26H7 or --edit edit.json, not both and not neither.")
