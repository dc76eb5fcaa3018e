"""From what the user names to a directory of files: a local directory, a Hub id, or nothing for the bundled model.

resolve("meta-llama/Llama-3.2-1B-Instruct")
Source(directory=Path(".../snapshots/9213176"), base=Base("meta-llama/Llama-3.2-1B-Instruct", "9213176..."))
resolve("build/llama")
Source(directory=Path("build/llama"), base=Base("build/llama", "sha256:52ab..."), digests={"model.safetensors": ...})
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from editkit.checkpoints import convert, dequantize, gguf
from editkit.checkpoints.files import digest_of, digests_of, inside, is_printable, printable, stamp, walk
from editkit.checkpoints.headers import INDEX, SINGLE, read
from editkit.checkpoints.unshipped import CODE_CONFIGS, OTHER_WEIGHTS, names_code, why
from editkit.edit import Base
from editkit.errors import EditkitError, UsageError
from editkit.progress import Stages, silent

BUNDLED = "organism"
"""The name of the model that ships inside, used where no model is named."""

MERGE_FIRST = (
    "holds an adapter, not a model: its heads are in the base model's weights. Merge it first (peft: "
    "PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(DIR)), then give DIR."
)
"""What is said of an adapter, behind its name."""

NOWHERE = (
    "there is no such directory here, and the Hub cannot be reached to look for a model of that name (offline, or "
    "HF_HUB_OFFLINE is set). Check the path, or connect."
)
"""What is said of a name that may be a path or a Hub id, behind it."""

_ADAPTERS = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_OTHER_FORMATS = (".gguf", ".h5", ".msgpack", ".onnx")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}(/[A-Za-z0-9_][\w.\-]{0,95})?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][\w./\-]{0,255}", re.ASCII)
_LOCAL_NAME = re.compile(r"[\w ./\\@+=,~()&:\-]+")
_SNAPSHOT = re.compile(r"models--([\w.\-]+)/snapshots/([0-9a-f]{40})$", re.ASCII)


@dataclass(frozen=True)
class Source:
    """A readable checkpoint in safetensors form, and the name under which an edit refers to it.

    Args:
        directory: holds ``config.json`` and the weights; never written to.
        bundled: True for the model that ships inside; output says so.
        digests: sha256 of each weights file, where identifying the source took them anyway.
        stamps: size and time of those files when they were hashed: the digests hold as long as these do.
        converted: the pickled files or the GGUF file the weights came from, where there were no safetensors.
        original: where those lie, or the GGUF file; ``directory`` is then their conversion in the cache.
        quantization: how the weights of the GGUF file are stored: ``Q4_1 x 210, F32 x 61``; "" where there is none.
    """

    directory: Path
    base: Base
    bundled: bool = False
    digests: Mapping[str, str] = field(default_factory=dict)
    converted: tuple[str, ...] = ()
    stamps: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    original: Path | None = None
    quantization: str = ""

    @property
    def gguf(self) -> Path | None:
        """The GGUF file that it was converted from, if it was."""
        return self.original if self.quantization else None

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every directory that it is read from: nothing is written there."""
        return (self.directory,) if self.original is None else (self.directory, self.original)


def resolve(
    model: str | Path | None, revision: str | None = None, *, identify: bool = True, stages: Stages = silent
) -> Source:
    """Find the checkpoint that ``model`` names; download it if it is on the Hub and not here yet.

    Args:
        model: a local directory, a GGUF file or a directory with one, a Hub id (``owner/name`` or
            ``hf://owner/name``), or None for the bundled model.
        revision: a Hub commit, branch or tag; for a local directory or file the ``sha256:`` it is expected to have.
        identify: False leaves the revision of a local directory open, if none is expected: then its weights are not
            hashed here, and ``identified`` names them once somebody has read them anyway.
        stages: told while a GGUF file or pickles are converted, which happens once.

    Raises:
        EditkitError: for an unknown model, missing weights, an adapter, a gated model, no network.
    """
    file = gguf.file_of(model)
    if file is not None:
        return _from_gguf(file, revision, stages)
    directory = here(model)
    if directory is not None:
        name = BUNDLED if is_bundled(model) else str(model)
        return replace(_local(directory, name, revision, identify, stages), bundled=is_bundled(model))
    name = hub_id(model)
    directory = _downloaded(name, revision)
    return _readable(directory, Base(name, directory.name), stages)


def hub_id(model: str | Path | None) -> str:
    """The Hub id that the user's word is, where it names no directory.

    Raises:
        EditkitError: it cannot be one.
    """
    name = str(model).removeprefix("hf://")
    if name.endswith((".yaml", ".yml")):
        file = printable(name)
        raise EditkitError(
            f"{file}: a YAML file is a recipe, a task or a study, not a model. Name both, as in `editkit try {file} "
            f"--model MODEL` and `editkit evaluate MODEL --task {file}`."
        )
    if _HUB_ID.fullmatch(name) is None or ".." in name or "--" in name:
        raise EditkitError(
            f"{printable(str(model))}: no such directory, and not a Hub id like owner/name. Check the spelling."
        )
    return name


def named(model: str | Path | None, revision: str | None = None) -> Base:
    """The base that ``resolve`` would find, as far as it is known before anything is hashed or downloaded.

    A branch of a Hub model stays a branch; a local directory has no revision yet.
    """
    file = gguf.file_of(model)
    if file is not None:
        return Base(str(file), None)
    directory = here(model)
    if directory is None:
        return Base(hub_id(model), revision or "main")
    return _of_snapshot(directory) or Base(BUNDLED if is_bundled(model) else str(model), None)


def recorded(model: str | Path, base: Base) -> str | None:
    """The commit of an edit's base, if ``model`` is the name of that base on the Hub: its branch may have moved on.

    None for any other name, and for a directory.
    """
    is_same = str(model).removeprefix("hf://") == base.model and here(model) is None
    return base.revision if is_same and re.fullmatch(r"[0-9a-f]{40}", base.revision or "") else None


def is_bundled(model: str | Path | None) -> bool:
    """Whether the model that ships inside is meant: nothing was named, or its name."""
    return model is None or (str(model) == BUNDLED and local(BUNDLED) is None)


def output(out: Path) -> Path:
    """The directory of an output: ``out`` itself, or where it is ``owner/name`` and no path here, its download.

    Raises:
        EditkitError: there is neither.
    """
    name = out.as_posix()
    if os.path.lexists(out) or name.count("/") != 1 or _HUB_ID.fullmatch(name) is None:
        return out
    return _download(hub_id(name), None, ())


def here(model: str | Path | None) -> Path | None:
    """Where the files of a model are, if they are on this machine without the Hub's cache."""
    if is_bundled(model):
        from editkit import organism

        return Path(organism.path())
    return local(str(model))


def local(model: str | Path) -> Path | None:
    """The directory that the user's word names, if there is one."""
    try:
        path = Path(model).expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # longer than a name may be, a ~user who is not known, a zero byte
        return None


def identified(source: Source, digests: Mapping[str, str]) -> Source:
    """The source with its revision, which for a local directory is the digest of its weights.

    Args:
        digests: sha256 of each weights file.
    """
    if source.base.revision is not None:
        return source
    return replace(source, base=Base(source.base.model, weights_digest(digests)), digests=dict(digests))


def at_hand(base: Base, files: Collection[str]) -> Source | None:
    """The base itself, if all of ``files`` are on this machine, unchanged; nothing is downloaded."""
    is_digest = (base.revision or "").startswith("sha256:")
    directory = (here(None) if base.model == BUNDLED else local(base.model)) if is_digest else None
    if not is_digest and _HUB_ID.fullmatch(base.model) is not None and base.revision is not None:
        directory = cached(base.model, base.revision)
    if directory is None or not all((directory / name).exists() for name in files):
        return None
    try:
        return resolve(None if base.model == BUNDLED else directory, base.revision)
    except EditkitError:
        return None


def check_name(name: str) -> None:
    """Refuse a name that would mean something else in a model card: it ends up there as the base of an edit.

    Raises:
        EditkitError: for control characters, and for what Markdown, YAML or HTML read as markup.
    """
    if _LOCAL_NAME.fullmatch(name) is None or not is_printable(name) or ": " in name:
        raise EditkitError(
            f"{printable(name)!r}: this name would end up in a model card, and holds characters that mean something "
            "in Markdown or YAML. Rename the directory: letters, digits, spaces and _ . - + = , ~ ( ) are fine."
        )


def weights_digest(digests: Mapping[str, str]) -> str:
    """The revision of a local directory: what ``sha256sum *.safetensors | sha256sum`` prints."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return "sha256:" + hashlib.sha256(lines.encode()).hexdigest()


def _local(directory: Path, name: str, revision: str | None, identify: bool, stages: Stages) -> Source:
    snapshot = _of_snapshot(directory)
    if snapshot is not None:
        _check_revision(name, snapshot, revision)
        return _readable(directory, snapshot, stages)
    if not (directory / "editkit" / "edit.json").exists():  # an output may be loaded from anywhere
        check_name(name)
    files = weight_files(directory)
    if not (identify or revision or _are_pickles(files)):
        return Source(directory, Base(name, None))
    paths = [inside(directory, file) for file in files]
    stamps = dict(zip(files, map(stamp, paths), strict=True))
    digests = dict(zip(files, digests_of(paths), strict=True))
    base = Base(name, weights_digest(digests))
    _check_revision(name, base, revision)
    source = _readable(directory, base, stages)
    return source if source.converted else replace(source, digests=digests, stamps=stamps)


def _readable(directory: Path, base: Base, stages: Stages) -> Source:
    """The source, its weights in safetensors form: converted beside, in the user's cache, if they are pickles."""
    files = weight_files(directory)
    if not _are_pickles(files):
        return Source(directory, base)
    code = runs_code(directory)
    others = [name for name in walk(directory) if why(name, (), code=code) is None]
    return Source(convert.converted(directory, base, others, stages), base, converted=files, original=directory)


def runs_code(directory: Path) -> bool:
    """Whether a checkpoint runs on Python files of its own."""
    return names_code(inside(directory, name).read_bytes() for name in CODE_CONFIGS if (directory / name).exists())


def _are_pickles(files: tuple[str, ...]) -> bool:
    return files[0].endswith(".bin")


def _of_snapshot(directory: Path) -> Base | None:
    """The Hub model that a directory of the Hub's cache is."""
    snapshot = _SNAPSHOT.search(directory.resolve().as_posix())
    return Base(snapshot[1].replace("--", "/", 1), snapshot[2]) if snapshot else None


def _from_gguf(file: Path, revision: str | None, stages: Stages) -> Source:
    check_name(str(file))
    stored = gguf.read(file)
    gguf.sites(stored)  # what cannot be edited is told before anything is hashed
    digest = digest_of(file)
    base = Base(str(file), f"sha256:{digest}")
    _check_revision(base.model, base, revision)
    directory = dequantize.converted(stored, digest, stages)
    return Source(directory, base, converted=(file.name,), original=file, quantization=stored.kinds)


def _check_revision(name: str, base: Base, expected: str | None) -> None:
    if expected is None or expected == base.revision:
        return
    if re.fullmatch(r"sha256:[0-9a-f]{64}|[0-9a-f]{40}", expected) is None:
        raise UsageError(f"{printable(name)} is a local directory, it has no revision {printable(expected)!r}.")
    raise EditkitError(
        f"{printable(name)}: expected revision {expected}, found {base.revision}: these are other weights. "
        "Give the model that the edit names, or make the edit again for this one."
    )


def weight_files(directory: Path) -> tuple[str, ...]:
    """The files that hold the weights of a local checkpoint, chosen as transformers does.

    ``model.safetensors``, else the shards of its index, else PyTorch pickles; a lone safetensors file of another name
    only where there is nothing else.

    Raises:
        EditkitError: if there are none, or no config, or if the directory holds an adapter.
    """
    where = printable(str(directory))
    if any((directory / name).exists() for name in _ADAPTERS):
        raise EditkitError(f"{where} {MERGE_FIRST}")
    if not os.path.lexists(directory / "config.json"):
        raise EditkitError(f"{where}: expected config.json, found none: this is not a transformers checkpoint.")
    inside(directory, "config.json")
    if not _has_safetensors(directory):
        if pickled := convert.pickles(directory):
            return pickled
        if not any(directory.glob("*.safetensors")):
            others = [path.name for path in sorted(directory.iterdir()) if path.suffix in _OTHER_FORMATS]
            listed = f"only {printable(', '.join(others[:3]))}" if others else "none"
            raise EditkitError(f"{where}: expected weights ({SINGLE}, or shards and {INDEX}), found {listed}.")
    return read(directory).files


def _has_safetensors(directory: Path) -> bool:
    return any(os.path.lexists(directory / name) for name in (SINGLE, INDEX))


def _downloaded(name: str, revision: str | None) -> Path:
    """The snapshot of a Hub model: its pickles only where it has no safetensors."""
    if (revision or "").startswith("sha256:"):
        raise EditkitError(
            f"{name}: expected the local directory whose weights are {revision}, found no such directory here. "
            "Run the command where it lies, or give its path as the model."
        )
    if revision is not None and (_REVISION.fullmatch(revision) is None or ".." in revision):
        raise UsageError(f"{printable(revision)!r} is no revision: expected a commit, a branch or a tag.")
    directory = _download(name, revision, OTHER_WEIGHTS)
    if not _has_safetensors(directory) and (directory / "config.json").exists():
        pickles = [pattern for pattern in OTHER_WEIGHTS if pattern not in ("*.bin", "*.bin.index.json")]
        directory = _download(name, revision, pickles)
    return directory


def cached(name: str, revision: str | None) -> Path | None:
    """The snapshot of a Hub model that is on this machine, whole or in part, if there is one."""
    from huggingface_hub import errors as hub
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except hub.IncompleteSnapshotError as error:
        return Path(error.snapshot_path)
    except (hub.LocalEntryNotFoundError, hub.HFValidationError, OSError):
        return None


def _download(name: str, revision: str | None, ignored: Iterable[str]) -> Path:
    from huggingface_hub import errors as hub
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, ignore_patterns=list(ignored)))
    except hub.IncompleteSnapshotError as error:  # offline: what the cache has may be all that counts; headers decide
        return Path(error.snapshot_path)
    except hub.GatedRepoError as error:
        raise EditkitError(
            f"{name} is gated: accept its terms at https://huggingface.co/{name}, then log in with `hf auth login`."
        ) from error
    except hub.RepositoryNotFoundError as error:
        raise EditkitError(
            f"{name}: no such directory and no such model on the Hub, or it is private. "
            "Check the spelling; for a private model log in with `hf auth login`."
        ) from error
    except hub.RevisionNotFoundError as error:
        raise EditkitError(f"{name}: the Hub has no revision {revision!r} of it.") from error
    except hub.LocalEntryNotFoundError as error:
        raise EditkitError(f"{name}: {NOWHERE}") from error
    except (hub.HTTPError, hub.HFValidationError, OSError, RuntimeError) as error:  # pyright: ignore[reportPrivateImportUsage]
        # Xet storage raises a bare RuntimeError where its connection breaks.
        raise EditkitError(
            f"{name}: could not be downloaded ({printable(str(error).strip())}). Run the same command again: what has "
            "arrived is kept."
        ) from error
