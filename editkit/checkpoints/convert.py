"""PyTorch pickles to safetensors: for checkpoints that have only ``pytorch_model.bin``.

    pytorch_model-00001-of-00002.bin, pytorch_model-00002-of-00002.bin -> model.safetensors, same names, same bytes

A pickle can run code when it is opened, so it is read with torch's weights-only loader, which refuses everything that
is not a tensor. The tensors never pass through a model class, which would drop those that it does not know. The result
is kept in the user's cache: one folder for each state of the weights and of the files around them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editkit.checkpoints.files import digests_of, inside, printable
from editkit.checkpoints.headers import SINGLE, Headers, TensorInfo, weight_map
from editkit.checkpoints.staging import beside, check_free, save
from editkit.edit import Base
from editkit.errors import EditkitError, first_line
from editkit.progress import Stages, silent
from editkit.workspace import cache

if TYPE_CHECKING:
    import torch

PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
_PART = re.compile(r"pytorch_model-([0-9]{1,9})-of-([0-9]{1,9})\.bin")

_DTYPES = {
    **{"torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"},
    **{"torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2", "torch.uint8": "U8", "torch.int8": "I8"},
    **{"torch.int16": "I16", "torch.int32": "I32", "torch.int64": "I64", "torch.bool": "BOOL"},
    **{"torch.uint16": "U16", "torch.uint32": "U32", "torch.uint64": "U64", "torch.complex64": "C64"},
}
"""torch's names of dtypes -> those of safetensors."""


def converted(directory: Path, base: Base, others: Sequence[str], stages: Stages = silent) -> Path:
    """The same checkpoint with safetensors weights, in the cache; converted now if it is not there yet.

    Args:
        base: its revision stands for the pickles.
        others: the files that go along as they are today.
        stages: told while they are converted.

    Raises:
        EditkitError: if a pickle holds anything but tensors, pickles and index disagree, or the disk is full.
    """
    files = pickles(directory)
    listed = [*others, *([PICKLE_INDEX] if (directory / PICKLE_INDEX).exists() else [])]
    digests = digests_of([inside(directory, name) for name in listed])
    state = "\0".join([base.model, str(base.revision), *files, *listed, *digests])
    target = cache() / "converted" / hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    if target.is_dir():
        return target
    try:
        check_free(target, needed=sum(inside(directory, name).stat().st_size for name in files))
        title = f"Converting to safetensors, once: {printable(base.model)}, kept in {target.parent}"
        with stages(title, None), beside(target) as folder:
            save(_apart(_tensors(directory)), folder / SINGLE)
            for name in others:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(inside(directory, name), folder / name)
    except EditkitError as error:
        if not target.is_dir():  # else another process finished first
            raise EditkitError(
                f"Pickled weights are converted in editkit's cache (EDITKIT_CACHE moves it), which failed: {error}"
            ) from error
    return target


def described(directory: Path) -> Headers:
    """What :func:`converted` would hold, from the pickles' own tables: tensors are mapped, their bytes are not read.

    Raises:
        EditkitError: as ``converted``.
    """
    tensors = {
        name: TensorInfo(name, _DTYPES[str(tensor.dtype)], tuple(tensor.shape), SINGLE, 0, tensor.nbytes)
        for name, tensor in _tensors(directory).items()
    }
    return Headers(tensors, (SINGLE,))


def pickles(directory: Path) -> tuple[str, ...]:
    """The files of a checkpoint that PyTorch pickled: one, else what the index names, else all numbered parts.

    Raises:
        EditkitError: if some of the numbered parts are missing and no index says otherwise.
    """
    if os.path.lexists(directory / PICKLE):
        return (PICKLE,)
    if os.path.lexists(directory / PICKLE_INDEX):
        return tuple(sorted(set(weight_map(directory, PICKLE_INDEX, ".bin").values())))
    parts = [match for path in directory.glob("pytorch_model-*.bin") if (match := _PART.fullmatch(path.name))]
    counts = {int(part[2]) for part in parts}
    if parts and (counts != {len(parts)} or {int(part[1]) for part in parts} != set(range(1, len(parts) + 1))):
        raise EditkitError(
            f"{printable(str(directory))}: expected pickled parts 1 to {max(counts)}, found {len(parts)} of them and "
            f"no {PICKLE_INDEX} that names others. Download the checkpoint again."
        )
    return tuple(sorted(part[0] for part in parts))


def _tensors(directory: Path) -> dict[str, torch.Tensor]:
    """All tensors of all pickles, which must be exactly those that the index lists, if there is one."""
    files = pickles(directory)
    owner: dict[str, str] = {}
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        loaded = _load(inside(directory, file))
        twice = sorted(loaded.keys() & tensors.keys())
        if twice:
            raise EditkitError(f"{printable(twice[0])} is in two pickles, {owner[twice[0]]} and {file}.")
        owner |= dict.fromkeys(loaded, file)
        tensors |= loaded
    if files != (PICKLE,) and os.path.lexists(directory / PICKLE_INDEX):
        wrong = sorted({name for name, _ in weight_map(directory, PICKLE_INDEX, ".bin").items() ^ owner.items()})
        if wrong:
            raise EditkitError(
                f"{PICKLE_INDEX}: {len(wrong)} tensors are listed in a file and not there, or there and not listed, "
                f"{printable(wrong[0])} among them. Download the checkpoint again."
            )
    return tensors


def _load(path: Path) -> dict[str, torch.Tensor]:
    import torch

    try:
        with open(path, "rb") as file:
            is_zip = file.read(2) == b"PK"
        value: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except OSError as error:
        raise EditkitError(f"{printable(path.name)}: cannot be read ({error.strerror}).") from error
    except Exception as error:  # what torch's reader raises for odd bytes, nobody can list
        reason = printable(first_line(error))
        raise EditkitError(
            f"{printable(path.name)}: not a plain pickle of tensors, and nothing else is opened ({reason}). "
            "Convert the checkpoint to safetensors where you trust it."
        ) from error
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str)
        and isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and str(tensor.dtype) in _DTYPES
        for name, tensor in value.items()
    ):
        raise EditkitError(f"{printable(path.name)}: expected plain tensors by name, found something else.")
    return dict(value)


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Contiguous tensors that share no memory, as safetensors wants them. A tied head is written under both names."""
    taken: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        is_alone = storage.data_ptr() not in taken and storage.nbytes() == tensor.nbytes
        taken.add(storage.data_ptr())
        apart[name] = tensor.contiguous() if is_alone else tensor.contiguous().clone()
    return apart
