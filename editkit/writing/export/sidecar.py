"""The forms that are loaded beside the base (adapters): their own weights, and the same ``editkit/`` folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from editkit.checkpoints.files import digest_of, inside
from editkit.checkpoints.source import Source
from editkit.checkpoints.staging import beside, check_apart, check_free
from editkit.writing import manifest, undo
from editkit.writing.export.checkpoint import Plan
from editkit.writing.manifest import Edited, Manifest
from editkit.writing.undo import Kept


@contextlib.contextmanager
def sidecar(
    plan: Plan, base: Source, out: Path, form: str, *, recipe: Mapping[str, Any] | None, seeds: Mapping[str, int] | None
) -> Iterator[tuple[Path, list[Edited]]]:
    """Yields the directory to write the form's own files into, and a list to which it adds what it edited."""
    check_apart(out, base.places, "the base checkpoint")
    check_free(out, needed=sum(tensor.end - tensor.start for tensor in {piece.tensor for piece in plan.slices}) * 2)
    with beside(out) as directory:
        (directory / "editkit").mkdir()
        edited: list[Edited] = []
        yield directory, edited
        files = {name: _kept(base, name) for name in plan.contents.copied}
        undo.save(directory, base, plan.slices, files, ())
        (directory / "editkit" / "edit.json").write_text(plan.edit.to_json(), encoding="utf-8", newline="\n")
        manifest.write(directory, Manifest(form, plan.edit.base, {}, tuple(edited), (), {}, seeds or {}, recipe))


def _kept(base: Source, name: str) -> Kept:
    real = inside(base.directory, name)
    return Kept(None, base.digests.get(name) or digest_of(real), real.stat().st_size)
