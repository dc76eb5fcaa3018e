"""PyTorch pickles to safetensors: for checkpoints that have only ``pytorch_model.bin``.

    pytorch_model-00001-of-00002.bin -> model-00001-of-00002.safetensors, same names, same bytes

A pickle can run code when it is opened, so it is read with torch's weights-only loader, which refuses everything that
is not a tensor. The result is kept in the user's cache: one folder for the weights of each base and revision, and one
with hard links to them for each state of the files around them.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editkit.checkpoints.files import digests_of, inside, printable
from editkit.checkpoints.headers import INDEX, SINGLE, Headers, TensorInfo, weight_map
from editkit.checkpoints.staging import beside, check_free, save
from editkit.edit import Base
from editkit.errors import EditkitError, first_line
from editkit.workspace import cache

if TYPE_CHECKING:
    import torch

PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
_PART = re.compile(r"pytorch_model-([0-9]{1,9})-of-([0-9]{1,9})\.bin")

_TIED = ("lm_head.weight", "embed_out.weight", "output_layer.weight", "lm_head.decoder.weight")
"""Output heads that may be the input embedding under a second name."""

_DTYPES = {
    **{"torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"},
    **{"torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2", "torch.uint8": "U8", "torch.int8": "I8"},
    **{"torch.int16": "I16", "torch.int32": "I32", "torch.int64": "I64", "torch.bool": "BOOL"},
}
"""torch's names of dtypes -> those of safetensors."""


def converted(directory: Path, base: Base, others: Sequence[str]) -> Path:
    """The same checkpoint with safetensors weights, in the cache; converted now if it is not there yet.

    The weights are converted once. If a file around them changes, the new file is laid beside the same weights.

    Args:
        others: the files that go along as they are.

    Raises:
        EditkitError: if a pickle holds anything but tensors, the shards and the index disagree, or the disk is full.
    """
    root = cache() / "converted"
    config = [name for name in ("config.json", PICKLE_INDEX) if (directory / name).exists()]
    key = _key(base.model, str(base.revision), *pickles(directory), *_contents(directory, config))
    weights, whole = root / key, root / _key(key, *_contents(directory, others))
    if not weights.is_dir():
        needed = sum(tensor.end - tensor.start for tensor in described(directory).tensors.values())
        _make(weights, partial(_convert, directory), needed)
    if not whole.is_dir():
        _make(whole, partial(_join, directory, weights, others))
    return whole


def described(directory: Path) -> Headers:
    """What :func:`converted` would hold, from the pickles' own tables: tensors are mapped, their bytes are not read.

    Raises:
        EditkitError: as ``converted``.
    """
    found: dict[str, TensorInfo] = {}
    for file, tensors in _shards(directory):
        for name, tensor in tensors.items():
            dtype, size = _DTYPES.get(str(tensor.dtype), "?"), tensor.numel() * tensor.element_size()
            found[name] = TensorInfo(name, dtype, tuple(tensor.shape), file, 0, size)
    files = tuple(sorted({tensor.file for tensor in found.values()}))
    return Headers(directory, found, files, sharded=len(files) > 1)


def pickles(directory: Path) -> tuple[str, ...]:
    """The files of a checkpoint that PyTorch pickled: one, else what the index names, else all numbered parts.

    Raises:
        EditkitError: if some of the numbered parts are missing and no index says otherwise.
    """
    if os.path.lexists(directory / PICKLE):
        return (PICKLE,)
    if os.path.lexists(directory / PICKLE_INDEX):
        return tuple(sorted(set(weight_map(directory, PICKLE_INDEX, ".bin").values())))
    parts = [part for path in directory.glob("pytorch_model-*.bin") if (part := _PART.fullmatch(path.name))]
    counts = {int(part[2]) for part in parts}
    if parts and (counts != {len(parts)} or {int(part[1]) for part in parts} != set(range(1, len(parts) + 1))):
        raise EditkitError(
            f"{printable(str(directory))}: expected pickled parts 1 to {max(counts)}, found {len(parts)} of them and "
            f"no {PICKLE_INDEX} that names others. Download the checkpoint again."
        )
    return tuple(sorted(part[0] for part in parts))


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _contents(directory: Path, names: Sequence[str]) -> list[str]:
    """Names and what they hold: what a conversion depends on, beside the weights."""
    digests = digests_of([inside(directory, name) for name in names])
    return [part for row in zip(names, digests, strict=True) for part in row]


def _make(target: Path, fill: Callable[[Path], None], needed: int = 0) -> None:
    try:
        check_free(target, needed=needed)
        with beside(target) as folder:
            fill(folder)
    except EditkitError as error:
        if not target.is_dir():  # else another process finished first
            raise EditkitError(
                f"Pickled weights are converted in editkit's cache (EDITKIT_CACHE moves it), which failed: {error}"
            ) from error


def _convert(directory: Path, target: Path) -> None:
    owner: dict[str, str] = {}
    for file, tensors in _shards(directory):
        owner |= dict.fromkeys(tensors, file)
        save(tensors, target / file)
    if len(pickles(directory)) > 1:
        (target / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": owner}, indent=2) + "\n")


def _join(directory: Path, weights: Path, others: Sequence[str], target: Path) -> None:
    for path in weights.iterdir():
        try:
            os.link(path, target / path.name)
        except OSError:  # a file system without links
            shutil.copyfile(path, target / path.name)
    for name in others:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(inside(directory, name), target / name)


def _shards(directory: Path) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Each pickle's tensors, under the name that its safetensors file gets."""
    names = pickles(directory)
    is_tied = _ties_embeddings(directory)
    has_index = names != (PICKLE,) and os.path.lexists(directory / PICKLE_INDEX)
    listed = weight_map(directory, PICKLE_INDEX, ".bin") if has_index else None
    owner: dict[str, str] = {}
    for place, name in enumerate(names, 1):
        file = SINGLE if len(names) == 1 else f"model-{place:05}-of-{len(names):05}.safetensors"
        stored = _load(inside(directory, name))
        if listed is not None:
            _check_listed(name, stored.keys() ^ {tensor for tensor, file in listed.items() if file == name}, is_tied)
        tensors = _without_aliases(stored, is_tied)
        twice = sorted(tensors.keys() & owner.keys())
        if twice:
            raise EditkitError(f"{printable(twice[0])} is in two shards, {owner[twice[0]]} and {file}.")
        owner |= dict.fromkeys(tensors, file)
        yield file, tensors


def _check_listed(file: str, differing: Iterable[str], is_tied: bool) -> None:
    """Refuse tensors that are in the index and not in the pickle, or the reverse; a tied output head may be either."""
    wrong = sorted(name for name in differing if not (is_tied and name.endswith(_TIED)))
    if wrong:
        raise EditkitError(
            f"{PICKLE_INDEX}: {len(wrong)} tensors are listed in {printable(file)} and not there, or there and not "
            f"listed, {printable(wrong[0])} among them. Download the checkpoint again."
        )


def _load(path: Path) -> dict[str, torch.Tensor]:
    import torch

    try:
        value: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except OSError as error:
        raise EditkitError(f"{printable(path.name)}: cannot be read ({error.strerror}).") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
        reason = printable(first_line(error))
        raise EditkitError(
            f"{printable(path.name)}: not a plain pickle of tensors, and nothing else is opened ({reason}). "
            "Convert the checkpoint to safetensors where you trust it."
        ) from error
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in value.items()
    ):
        raise EditkitError(f"{printable(path.name)}: expected tensors by name, found something else.")
    return dict(value)


def _is_zip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _without_aliases(tensors: dict[str, torch.Tensor], is_tied: bool) -> dict[str, torch.Tensor]:
    """Contiguous tensors that share no memory. A tied output head is left to the model class, as transformers does."""
    owners: dict[tuple[object, ...], str] = {}
    kept = {}
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[0].endswith(_TIED), item[0])):
        place = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        if tensor.numel() and place in owners and is_tied and name.endswith(_TIED):
            continue
        shares = tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size() or place in owners
        owners.setdefault(place, name)
        kept[name] = tensor.clone(memory_format=_contiguous()) if shares else tensor.contiguous()
    return kept


def _contiguous() -> torch.memory_format:
    import torch

    return torch.contiguous_format


def _ties_embeddings(directory: Path) -> bool:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
    except (ValueError, OSError, KeyError):  # a type that needs remote code: keep both names, which is always right
        return False
    return bool(getattr(config.get_text_config(), "tie_word_embeddings", False))
