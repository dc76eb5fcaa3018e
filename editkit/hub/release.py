"""The files of a finished checkpoint as they will be published: whole, hashed, and honest about a verdict not met.

    release = read_release(Path("no-swear"))
    release.files_for("alice/no-swear")["model.safetensors"]
    LocalFile(path="model.safetensors", size=2471645608, sha256="1ea1...", content=Path("no-swear/model.safetensors"))

Publishing changes nothing in the directory. In what is published, the commands of card and page name the repository.
An override is a notice on top of both, with the reasons in ``editkit/override.json`` and ``editkit/provenance.json``.
The manifest lists what was made so: ``verify`` passes on what is published.
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

    out: Path
    edit: Edit
    override: tuple[str, ...] = ()
    reduced: bool = False

    def files_for(self, repo: str) -> dict[str, LocalFile]:
        """Every file as it goes to ``repo``, by its path there."""
        record = manifest.read(self.out)
        files = {path: LocalFile(path, size, digest, self.out / path) for path, (digest, size) in record.files.items()}
        made = {path: text.encode() for path, text in self._made(files, repo).items()}
        listed = {path: (hashlib.sha256(content).hexdigest(), len(content)) for path, content in made.items()}
        made[manifest.NAME] = (
            replace(record, files={**record.files, **listed}).to_json().encode()
            if made
            else (self.out / manifest.NAME).read_bytes()
        )
        return files | {path: _in_memory(path, content) for path, content in made.items()}

    def _made(self, files: Mapping[str, LocalFile], repo: str) -> dict[str, str]:
        """What is not published as it lies in the directory."""
        made: dict[str, str] = {}
        if self.override:
            told = {"format": 1, "override": "published although the verdict was not met"}
            made[OVERRIDE] = json.dumps(told | {"reasons": list(self.override)}, indent=2) + "\n"
        if "editkit/provenance.json" in files:
            made |= _rendered(self.out, repo, " ".join(self.override) or None)
        elif self.override and "README.md" in files:
            made["README.md"] = _with_notice(files["README.md"].read().decode("utf-8"), self.override)
        return made


def read_release(out: Path, *, allow_unmet: bool = False) -> Release:
    """Read a finished checkpoint: ``verify`` re-hashes its files, so the manifest's hashes are theirs.

    Raises:
        IntegrityError: when a file is not what the manifest says, or a number is not what the examples give.
        EditkitError: when there is no evidence, or the verdict was not met and ``allow_unmet`` is False.
    """
    verify(out)
    check(out)
    edit = Edit.from_json(_text(out, "editkit/edit.json"), where="editkit/edit.json")
    status, reasons = _verdict(out)
    if status in ("met", "reduced"):
        return Release(out, edit, reduced=status == "reduced")
    if not allow_unmet:
        raise EditkitError(
            f"{printable(str(out))} is not to be published: {'; '.join(printable(reason) for reason in reasons)}. "
            "To publish it all the same, with a notice on its card, pass --allow-unmet."
        )
    return Release(out, edit, reasons)


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


def _rendered(out: Path, repo: str, override: str | None) -> dict[str, str]:
    """Provenance, card and page of a measured removal, with the repository's name in their commands."""
    with evidence_folder.doubted(out):
        outcome = evidence_folder.read(out)
        provenance = replace(outcome.provenance, repo=repo, override=override)
        card, page = evidence_folder.texts(replace(outcome, provenance=provenance))
    return {"editkit/provenance.json": provenance.to_json(), "README.md": card, "editkit/report.html": page}


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


def _in_memory(path: str, content: bytes) -> LocalFile:
    return LocalFile(path, len(content), hashlib.sha256(content).hexdigest(), content)
