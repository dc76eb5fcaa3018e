"""The memory of a device: what is free, and a model that steps aside for another one.

with parked(network): ...   # in main memory meanwhile
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from editkit.errors import OutOfMemory

_GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells a container its own limits (cgroup v2)."""


def available() -> int:
    """Bytes of main memory that may still be taken, by the machine and by the control group of this process."""
    import psutil

    free = psutil.virtual_memory().available
    try:
        limit, used = ((_GROUP / name).read_text() for name in ("memory.max", "memory.current"))
        return max(0, min(free, int(limit) - int(used)))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return free


@contextmanager
def parked(network: Any) -> Iterator[None]:
    """The weights wait in main memory, so that another model may have the devices; after an error they stay there.

    A network that lies in main memory or on the disk with some modules, or that main memory has no room for, stays
    where it is: the other one gets what is left.
    """
    where, devices = network.device, layout(network)
    if where.type == "cpu" or partly_outside(devices) or available() < network.get_memory_footprint():
        yield
        return
    from accelerate import dispatch_model
    from accelerate.hooks import remove_hook_from_submodules

    remove_hook_from_submodules(network)
    network.to("cpu")
    free()
    yield
    free()
    if devices:
        dispatch: Any = dispatch_model  # its annotations forbid what transformers gives it
        dispatch(network, devices, main_device=where, skip_keys=network._skip_keys_device_placement)
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
    """Module path -> device, where a network is spread over several devices; {} where it is not."""
    devices = dict(getattr(network, "hf_device_map", {}))
    return devices if len(set(map(str, devices.values()))) > 1 else {}


def partly_outside(devices: Mapping[str, Any]) -> bool:
    """Whether some modules lie in main memory or on the disk."""
    return not {"cpu", "disk"}.isdisjoint(map(str, devices.values()))


def free() -> None:
    """Give back to the device what no tensor holds any more."""
    from accelerate.utils.memory import clear_device_cache

    clear_device_cache(garbage_collection=True)
