"""The memory of a device: batches that shrink until they fit, and a model that steps aside for another one.

for places, answers in within_memory(range(512), run, Budget(131_072), single=str): ...   # halved as often as needed
with parked(network): ...                                                               # in main memory meanwhile
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from editkit.errors import OutOfMemory

FULL = (
    "out of memory",  # CUDA, HIP, XPU, MPS
    "can't allocate memory",  # the CPU
    "ALLOC_FAILED",  # cuBLAS
    "CUDNN_STATUS_NOT_SUPPORTED",  # cuDNN, of a batch that is too large
    "Invalid buffer size",  # MPS, of one tensor
    "PT_DEVMEM Allocation failed",  # HPU
)
"""What devices say when they are full; accelerate knows some of them, fewer in its older versions."""

METAL = 1 << 32
"""Bytes of a tensor from which on operations on Apple's GPUs abort (pytorch issue 149325)."""

_GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells a container its own limits (cgroup v2)."""

Row = TypeVar("Row")
Found = TypeVar("Found")


@dataclass
class Budget:
    """The one thing that changes while a model is used: how many tokens fit in a batch."""

    tokens: int


CACHED = 2**21
"""Tokens times width of a batch on a CPU."""


def first_batch(network: Any, most: int) -> Budget:
    """The budget to begin with: ``most`` tokens, in main memory only as many as fit in half of what is free.

    An accelerator says when it is full, and batches shrink; an operating system may end the process without a word, and
    so does Metal where a tensor is too large. A token is reckoned as its logits and 32 times the model's width, in
    float32. A CPU is quickest where a batch's activations stay in its cache: a third quicker at a width of 576.
    """
    vocabulary, width = network.get_input_embeddings().weight.shape
    if network.device.type == "mps":
        most = min(most, METAL // (4 * vocabulary))
    elif network.device.type != "cpu":
        return Budget(most)
    else:
        most = min(most, max(512, CACHED // width))
    return Budget(max(1, min(most, available() // 2 // (4 * (vocabulary + 32 * width)))))


def available() -> int:
    """Bytes of main memory that may still be taken, by the machine and by the control group of this process."""
    import psutil

    free = psutil.virtual_memory().available
    try:
        limit, used = ((_GROUP / name).read_text() for name in ("memory.max", "memory.current"))
        return max(0, min(free, int(limit) - int(used)))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return free


def within_memory(
    rows: Sequence[Row], run: Callable[[list[Row]], Found], budget: Budget, *, single: Callable[[Row], str]
) -> Iterator[tuple[list[Row], Found]]:
    """Run on all rows at once; where memory runs out, on half as many, and the budget stays smaller.

    Args:
        single: what one row is, for the message when not even one fits.

    Raises:
        OutOfMemory: one row alone does not fit.
    """
    waiting = [list(rows)]
    while waiting:
        part = waiting.pop(0)
        try:
            found = run(part)
        except (RuntimeError, MemoryError) as error:
            if not (isinstance(error, MemoryError) or any(sign in str(error) for sign in FULL)):
                raise
            if len(part) == 1:
                raise OutOfMemory(
                    f"Out of memory on {single(part[0])}. "
                    "Use a device with more memory, --dtype bfloat16, or shorter examples."
                ) from error
            half = len(part) // 2
            waiting[:0] = [part[:half], part[half:]]
            budget.tokens = max(1, budget.tokens * half // len(part))
        else:
            yield part, found
            continue
        free()  # here, where the error no longer holds the batch's tensors


@contextmanager
def parked(network: Any) -> Iterator[None]:
    """The weights wait in main memory, so that another model may have the devices; after an error they stay there.

    A network of which a part lies in main memory or on the disk, or that main memory has no room for, stays where it
    is: the other one gets what is left.
    """
    where, places = network.device, layout(network)
    if where.type == "cpu" or partly_outside(places) or available() < network.get_memory_footprint():
        yield
        return
    from accelerate import dispatch_model
    from accelerate.hooks import remove_hook_from_submodules

    remove_hook_from_submodules(network)
    network.to("cpu")
    free()
    yield
    free()
    if places:
        dispatch: Any = dispatch_model  # its annotations forbid what transformers gives it
        dispatch(network, places, main_device=where, skip_keys=network._skip_keys_device_placement)
    else:
        network.to(where)


def check_room(network: Any) -> None:
    """Refuse now what would fail at the end of a run: a second model must be loaded where this one is.

    Raises:
        OutOfMemory: neither main memory nor the accelerator has room for this model once more.
    """
    import torch

    where, size = network.device, network.get_memory_footprint()
    if where.type == "cpu" or partly_outside(layout(network)) or available() >= size:
        return
    left = torch.cuda.mem_get_info(where)[0] if where.type == "cuda" else 0
    if left < size:
        raise OutOfMemory(
            f"The written checkpoint is measured where the model was, which waits in main memory meanwhile: that takes "
            f"{size / 1e9:.1f} GB, and {available() / 1e9:.1f} GB are free there ({left / 1e9:.1f} GB on {where}). "
            "Use a machine with more main memory, or --device cpu."
        )


def layout(network: Any) -> dict[str, Any]:
    """Which part of a network lies on which device, where it is spread over several; {} where it is not."""
    places = dict(getattr(network, "hf_device_map", {}))
    return places if len(set(map(str, places.values()))) > 1 else {}


def partly_outside(places: Mapping[str, Any]) -> bool:
    """Whether a part lies in main memory or on the disk."""
    return not {"cpu", "disk"}.isdisjoint(map(str, places.values()))


def free() -> None:
    """Give back to the device what no tensor holds any more."""
    from accelerate.utils.memory import clear_device_cache

    clear_device_cache(garbage_collection=True)
