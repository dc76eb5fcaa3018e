"""PyTorch pickles to safetensors: for checkpoints that have only ``pytorch_model.bin``.

    pytorch_model-00001-of-00002.bin -> model-00001-of-00002.safetensors, same names, same bytes

A pickle can run code when it is opened, so it is read with torch's weights-only loader, which refuses everything that
is not a tensor. The result is kept in the user's cache, one folder for each base and revision.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editkit.edit import Base
from editkit.errors import EditkitError
from editkit.files import inside, printable
from editkit.headers import INDEX, SINGLE

if TYPE_CHECKING:
    import torch

_TIED = ("lm_head.weight", "embed_out.weight", "output_layer.weight", "lm_head.decoder.weight")
"""Output heads that may be the input embedding under a second name."""


def converted(directory: Path, base: Base) -> Path:
    """The same checkpoint with safetensors weights, in the cache; converted now if it is not there yet.

    Raises:
        EditkitError: if a pickle holds anything but tensors, or the shards and the index disagree.
    """
    key = hashlib.sha256(f"{base.model}\0{base.revision}".encode()).hexdigest()[:24]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "editkit" / "converted"
    target = cache / key
    if target.is_dir():
        return target
    beside = cache / f".{key}.partial-{os.getpid()}"
    try:
        beside.mkdir(parents=True)
        _convert(directory, beside)
        beside.rename(target)
    except OSError as error:
        if target.is_dir():  # another process finished first
            return target
        raise EditkitError(f"{printable(str(directory))}: converting its weights failed ({error}).") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _convert(directory: Path, target: Path) -> None:
    from safetensors.torch import save_file

    pickles = sorted(path.name for path in directory.glob("pytorch_model*.bin"))
    is_tied = _ties_embeddings(directory)
    weight_map: dict[str, str] = {}
    for name in pickles:
        file = SINGLE if len(pickles) == 1 else name.replace("pytorch_model", "model").replace(".bin", ".safetensors")
        tensors = _without_aliases(_load(inside(directory, name)), is_tied)
        twice = sorted(tensors.keys() & weight_map.keys())
        if twice:
            raise EditkitError(f"{printable(twice[0])} is in two shards, {weight_map[twice[0]]} and {file}.")
        weight_map |= dict.fromkeys(tensors, file)
        save_file(tensors, target / file, metadata={"format": "pt"})
    if len(pickles) > 1:
        (target / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}, indent=2) + "\n")
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and not name.startswith(".") and not path.name.endswith((".bin", ".bin.index.json")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(inside(directory, name), target / name)


def _load(path: Path) -> dict[str, torch.Tensor]:
    import torch

    try:
        value: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
        reason = printable(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
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
