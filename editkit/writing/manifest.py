"""``editkit/manifest.json``: what OUT holds, to the byte. Written last: its presence is the claim of completeness.

{"digest": "9f0c...", "format": 1, "form": "checkpoint", "base": {"model": "...", "revision": "..."},
 "files": {"config.json": {"sha256": "ab12...", "size": 715}, ...},
 "edited": [{"tensor": "model.layers.3.self_attn.o_proj.weight", "file": "model.safetensors", "axis": 1,
             "spans": [[320, 384]], "before": "77aa...", "after": "0c3d..."}],
 "left_out": [{"file": "pytorch_model.bin", "reason": "..."}], "versions": {"torch": "2.13.0"}, "seeds": {},
 "recipe": null}

``digest`` is the sha256 of this very text with 64 zeros in its place, and the text has one canonical form: so no byte
of the manifest can change unnoticed either.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from editkit.checkpoints.files import digest_of, digests_of, inside, is_relative_name, printable, walk
from editkit.checkpoints.unshipped import DESKTOP, SERVERS_OWN
from editkit.edit import Base
from editkit.errors import IntegrityError

FORMAT = 1
NAME = "editkit/manifest.json"
_EMPTY = "0" * 64
_PACKAGES = ("editkit", "torch", "transformers", "safetensors", "numpy", "huggingface_hub", "peft")
_TOLERATED = (*SERVERS_OWN, ".git", ".cache")
"""What a download from the Hub or a clone adds beside the files."""


@dataclass(frozen=True)
class Edited:
    """One edited tensor: the spans of ``axis`` that are zero, and the sha256 of its bytes before and after.

    ``part``: the plane with those zeros, where the tensor holds one for each expert.
    """

    tensor: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    axis: int
    spans: tuple[tuple[int, int], ...]
    before: str
    after: str
    part: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "part" or value is not None}


@dataclass(frozen=True)
class Manifest:
    """What :func:`write` recorded. ``files`` maps every file of OUT but this one to its sha256 and size."""

    form: str
    base: Base
    files: Mapping[str, tuple[str, int]]
    edited: tuple[Edited, ...] = ()
    left_out: tuple[Mapping[str, str], ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)
    recipe: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        value = {
            "format": FORMAT,
            "digest": _EMPTY,
            "form": self.form,
            "base": asdict(self.base),
            "files": {name: {"sha256": digest, "size": size} for name, (digest, size) in self.files.items()},
            "edited": [edited.to_dict() for edited in self.edited],
            "left_out": [dict(row) for row in self.left_out],
            "versions": dict(self.versions),
            "seeds": dict(self.seeds),
            "recipe": self.recipe,
        }
        return _canonical(value | {"digest": hashlib.sha256(_canonical(value).encode()).hexdigest()})


def write(directory: Path, manifest: Manifest, *, known: Mapping[str, str] | None = None) -> Manifest:
    """Hash every file in ``directory`` and write the manifest there; what a download or a clone added is left out.

    Args:
        manifest: everything but ``files`` and ``versions``, which are filled in here.
        known: sha256 of files that were just hashed while they were written.
    """
    known = known or {}
    own = known.keys() | manifest.files.keys()
    files = {
        name: (known.get(name) or digest_of(directory / name), (directory / name).stat().st_size)
        for name in walk(directory)
        if name != NAME and (name in own or not is_tolerated(name))
    }
    whole = Manifest(**{**vars(manifest), "files": files, "versions": versions()})
    (directory / NAME).parent.mkdir(exist_ok=True)
    (directory / NAME).write_text(whole.to_json(), encoding="utf-8", newline="\n")
    return whole


def _instead(out: Path, error: OSError) -> str:
    if not isinstance(error, FileNotFoundError):
        return f"which cannot be read ({error.strerror})"
    if not out.is_dir():
        return "found no such directory"
    if (out / "editkit" / "localization.json").is_file():
        return "found the evidence of a run that wrote no checkpoint: nothing is there to check or to publish"
    return "found none: not an output of editkit, or an unfinished one"


def read(out: Path) -> Manifest:
    """Read OUT's manifest.

    Raises:
        IntegrityError: if there is none, or a byte of it was changed.
    """
    try:
        return parse((out / NAME).read_bytes())
    except OSError as error:
        raise IntegrityError(f"{printable(str(out))}: expected {NAME}, {_instead(out, error)}.") from error


def parse(raw: bytes) -> Manifest:
    """The manifest that these bytes are.

    Raises:
        IntegrityError: if a byte of it was changed.
    """
    try:
        value = json.loads(raw.decode("utf-8"))
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise IntegrityError(f"{NAME}: expected format {FORMAT}: another editkit wrote it, or it was changed.")
        digest = hashlib.sha256(_canonical(value | {"digest": _EMPTY}).encode()).hexdigest()
        is_whole = value.get("digest") == digest and _canonical(value).encode() == raw
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{NAME}: not what editkit wrote: it is no longer valid JSON.") from error
    if not is_whole:
        raise IntegrityError(f"{NAME}: not what editkit wrote: its text does not match the digest inside it.")
    return _from_json(value)


def offenders(out: Path, manifest: Manifest) -> list[str]:
    """Every file that is missing, extra or changed, one line each, sorted."""
    return sorted(f"{printable(name)}: {what}" for name, what in faults(out, manifest).items())


def faults(out: Path, manifest: Manifest) -> dict[str, str]:
    """The same by name: a file may be called so that its line looks like another one's."""
    present = [name for name in walk(out) if name != NAME]
    wrong = dict.fromkeys(manifest.files.keys() - set(present), "missing")
    whole: dict[str, Path] = {}
    for name in present:
        if name not in manifest.files:
            if not is_tolerated(name):
                wrong[name] = "not in the manifest"
            continue
        path, size = inside(out, name), manifest.files[name][1]
        if path.stat().st_size == size:
            whole[name] = path
        else:
            wrong[name] = f"expected {size} bytes, found {path.stat().st_size}"
    for name, digest in zip(whole, digests_of(list(whole.values())), strict=True):
        if digest != manifest.files[name][0]:
            wrong[name] = "its bytes were changed (sha256 differs)"
    return wrong


def is_tolerated(name: str) -> bool:
    """Whether a file is none of editkit's business: a download, a clone or a file manager puts it beside the others."""
    return name.split("/")[0] in _TOLERATED or name.rpartition("/")[2].lower() in DESKTOP


@cache
def versions() -> dict[str, str]:
    """The versions that made the output."""
    known = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def _canonical(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _from_json(value: Mapping[str, Any]) -> Manifest:
    try:
        files = {name: (str(row["sha256"]), int(row["size"])) for name, row in value["files"].items()}
        edited = tuple(_edited(row) for row in value["edited"])
        base = Base(value["base"]["model"], value["base"]["revision"])
        rest = (value["left_out"], value["versions"], value["seeds"], value["recipe"])
        manifest = Manifest(value["form"], base, files, edited, tuple(rest[0]), *rest[1:])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"{NAME}: a field is missing or of the wrong kind ({error}).") from error
    wrong = sorted(name for name in (*files, *(row.file for row in edited)) if not is_relative_name(name))
    if wrong:
        raise IntegrityError(f"{NAME}: {printable(wrong[0])!r} is no name of a file inside the output.")
    return manifest


def _edited(row: Mapping[str, Any]) -> Edited:
    spans = tuple((int(start), int(stop)) for start, stop in row["spans"])
    texts = {key: str(row[key]) for key in ("tensor", "file", "dtype", "before", "after")}
    part = None if row.get("part") is None else int(row["part"])
    return Edited(
        shape=tuple(int(size) for size in row["shape"]), axis=int(row["axis"]), spans=spans, part=part, **texts
    )
