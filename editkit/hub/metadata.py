"""What a checkpoint on the Hub says about itself, without its weights: config, index and the safetensors headers.

    fetch(api, "meta-llama/Llama-3.2-1B-Instruct", None, folder) -> "9213176..."
    folder/config.json, folder/model.safetensors     a hole of 2471645608 bytes behind its header

The files look like the checkpoint to everything that reads metadata, and take next to no room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from editkit.checkpoints import convert, headers
from editkit.checkpoints.files import printable
from editkit.checkpoints.source import MERGE_FIRST
from editkit.checkpoints.unshipped import is_tokenizer
from editkit.errors import EditkitError
from editkit.hub.remote import RemoteFile, head_of, listing, read_bytes

if TYPE_CHECKING:
    from huggingface_hub import HfApi

LARGEST_TEXT = 64 * 1024 * 1024
"""Bytes. A config or an index beyond this is no config or index."""


def fetch(api: HfApi, repo: str, revision: str | None, folder: Path) -> str:
    """Lay the metadata of a checkpoint out in ``folder``, its tokenizer's files by name only; the commit they are of.

    Raises:
        EditkitError: no such repository or revision, no access, no network, no safetensors.
    """
    commit = head_of(api, repo, revision)
    there = listing(api, repo, commit) if commit else {}
    if "adapter_config.json" in there and "config.json" not in there:
        raise EditkitError(f"{repo} {MERGE_FIRST}")
    weights = _weights(there)
    if commit is None or "config.json" not in there or not weights:
        kinds = sorted({Path(path).suffix for path in there if Path(path).suffix in {".bin", ".gguf", ".pt", ".h5"}})
        held = f"only {', '.join(kinds)}" if kinds else "none of both" if "config.json" not in there else "no weights"
        raise EditkitError(
            f"{repo}: expected config.json and *.safetensors, found {held}: nothing to read headers from. "
            "Download the model and inspect the directory, or choose a checkpoint in safetensors form."
        )
    for path in ("config.json", headers.INDEX):
        if path in there:
            (folder / path).write_bytes(_text(api, repo, commit, there[path]))
    for path in filter(is_tokenizer, there):
        (folder / Path(path).name).touch()
    for path in weights:
        save_hollow(partial(read_bytes, api, repo, commit, path), there[path].size, folder / path)
    return commit


def save_hollow(read: Callable[[int, int], bytes], size: int, target: Path) -> None:
    """Lay out a weights file as its header and a hole, ``size`` bytes in all; ``read(start, end)`` gives its bytes.

    Raises:
        EditkitError: the header claims what no file of this size can hold.
    """
    first = read(0, min(8, size))
    end = 8 + int.from_bytes(first, "little")
    if end > min(size, headers.LARGEST_HEADER):
        raise EditkitError(f"{printable(target.name)}: {size} bytes with a header of {end - 8}: not safetensors.")
    with open(target, "wb") as file:
        file.write(first + read(8, end))
        file.truncate(size)


def _weights(there: Collection[str]) -> list[str]:
    """The safetensors files whose headers describe the model; none where pickles are what is loaded."""
    if headers.SINGLE in there:
        return [headers.SINGLE]
    if headers.INDEX not in there and not {convert.PICKLE, convert.PICKLE_INDEX}.isdisjoint(there):
        return []
    return sorted(path for path in there if _is_weights(path))


def _is_weights(path: str) -> bool:
    return path.endswith(".safetensors") and "/" not in path and not path.startswith(("adapter_", "consolidated"))


def _text(api: HfApi, repo: str, commit: str, file: RemoteFile) -> bytes:
    if file.size > LARGEST_TEXT:
        raise EditkitError(f"{repo}: {printable(file.path)} has {file.size} bytes: too large for what it should be.")
    return read_bytes(api, repo, commit, file.path, 0, file.size)
