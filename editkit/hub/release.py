"""The files of a finished checkpoint as they will be published: whole, hashed, and honest about a verdict not met.

    release = read_release(Path("no-swear"))
    release.files["model.safetensors"]
    LocalFile(path="model.safetensors", size=2471645608, sha256="1ea1...", content=Path("no-swear/model.safetensors"))

An override changes nothing in the directory. What is published gets a notice on top of its card and its page, the
reasons in ``editkit/override.json`` and ``editkit/provenance.json``, and a manifest that lists all of these: ``verify``
passes on what is published.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from editkit.checkpoints.files import printable
from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.hub.changes import LocalFile
from editkit.render import evidence_folder
from editkit.render.evidence_check import check
from editkit.render.inert import prose
from editkit.writing import manifest
from editkit.writing.verify import verify

OVERRIDE = "editkit/override.json"


@dataclass(frozen=True)
class Release:
    """What a push publishes.

    Args:
        override: the reasons of a verdict that was not met and is published anyway.
        reduced: the run was told to accept less than its goal (``--accept best``): its card says *reduced*.
    """

    edit: Edit
    files: dict[str, LocalFile]
    override: tuple[str, ...] = ()
    reduced: bool = False


def read_release(out: Path, *, allow_unmet: bool = False) -> Release:
    """Read a finished checkpoint: ``verify`` re-hashes its files, so the manifest's hashes are theirs.

    Raises:
        IntegrityError: when a file is not what the manifest says, or a number is not what the examples give.
        EditkitError: when there is no evidence, or the verdict was not met and ``allow_unmet`` is False.
    """
    verify(out)
    check(out)
    edit = Edit.from_json(_text(out, "editkit/edit.json"), where="editkit/edit.json")
    record = manifest.read(out)
    files = {path: LocalFile(path, size, digest, out / path) for path, (digest, size) in record.files.items()}
    files[manifest.NAME] = _made(manifest.NAME, (out / manifest.NAME).read_bytes())
    status, reasons = _verdict(out)
    if status in ("met", "reduced"):
        return Release(edit, files, reduced=status == "reduced")
    if not allow_unmet:
        raise EditkitError(
            f"{printable(str(out))} is not to be published: {'; '.join(printable(reason) for reason in reasons)}. "
            "To publish it all the same, with a notice on its card, pass --allow-unmet."
        )
    return Release(edit, _with_override(out, files, record, reasons), reasons)


def _verdict(out: Path) -> tuple[str, tuple[str, ...]]:
    """``met``, ``reduced`` or ``unmet``, and why it was not met."""
    path = out / "editkit/report.json"
    if not path.is_file():
        return "unmet", ("nothing was measured: there is no editkit/report.json",)
    try:
        verdict = json.loads(path.read_text(encoding="utf-8"))["verdict"]
        met, reasons = verdict["met"], [str(reason) for reason in verdict.get("reasons") or ()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EditkitError("editkit/report.json: expected a verdict with met and reasons, found none.") from error
    status = "met" if met is True else "reduced" if verdict.get("status") == "reduced" else "unmet"
    return status, tuple(reasons) or ("the verdict was not met",)


def _with_override(
    out: Path, files: Mapping[str, LocalFile], record: manifest.Manifest, reasons: tuple[str, ...]
) -> dict[str, LocalFile]:
    """The files with the notice on card and page, the record of the override, and a manifest that lists them all."""
    told = {"format": 1, "override": "published although the verdict was not met", "reasons": list(reasons)}
    made = {OVERRIDE: (json.dumps(told, indent=2) + "\n").encode()}
    if "editkit/provenance.json" in files:
        made |= _rendered_with(out, reasons)
    elif "README.md" in files:
        made["README.md"] = _with_notice(files["README.md"].read().decode("utf-8"), reasons).encode()
    listed = {path: (hashlib.sha256(content).hexdigest(), len(content)) for path, content in made.items()}
    made[manifest.NAME] = replace(record, files={**record.files, **listed}).to_json().encode()
    new = {path: _made(path, content) for path, content in made.items()}
    return {**files, **new}


def _rendered_with(out: Path, reasons: tuple[str, ...]) -> dict[str, bytes]:
    """Provenance, card and page of a measured removal, rendered again with the override recorded."""
    with evidence_folder.doubted(out):
        outcome = evidence_folder.read(out)
        provenance = replace(outcome.provenance, override=" ".join(reasons))
        card, page = evidence_folder.texts(replace(outcome, provenance=provenance))
    made = {"editkit/provenance.json": provenance.to_json(), "README.md": card, "editkit/report.html": page}
    return {path: text.encode() for path, text in made.items()}


def _with_notice(card: str, reasons: tuple[str, ...]) -> str:
    """The card with a warning as the first thing under its front matter. Reasons are data: they stay plain text."""
    front = re.match(r"---[ \t]*\r?\n.*?\n---[ \t]*\r?\n", card, re.DOTALL)
    end = front.end() if front else 0
    lines = ["**Published although its verdict was not met.** The reasons, as measured:", ""]
    lines += [f"- {prose(reason)}" for reason in reasons]
    notice = "\n".join(f"> {line}".rstrip() for line in ["[!WARNING]", *lines])
    return f"{card[:end]}\n{notice}\n\n{card[end:].lstrip()}"


def _text(out: Path, path: str) -> str:
    try:
        return (out / path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EditkitError(f"{printable(str(out))}: {path} cannot be read: this is no finished checkpoint.") from error


def _made(path: str, content: bytes) -> LocalFile:
    return LocalFile(path, len(content), hashlib.sha256(content).hexdigest(), content)
