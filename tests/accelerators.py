"""Two accelerators that are not there: ``sim:0`` and ``sim:1``, whose tensors do not mix with others.

    with simulated():
        network.to("sim:1")

A tensor there holds one of the CPU's, and every operation computes on that; but operands on different devices are an
error, as they are on real ones, only ``.cpu()`` brings a number home, and there is no float64, as on Apple's. So a
forgotten ``.to(device)`` shows without a GPU. Backward passes work on ``sim:0`` alone: of such a kind of device torch
expects one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

KIND = "sim"
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.to.device, aten.to.dtype, aten.to.dtype_layout, aten.to.other, aten.copy_.default}
INDEXED = {aten.index.Tensor, aten.index_put_.default}
"""Their places may come from the CPU, on real devices too."""


class Simulated(torch.Tensor):
    """A tensor on a simulated device; ``held`` is the CPU's that it stands for."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor, device: torch.device) -> Simulated:
        self = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=_exact(device),
        )
        self.held = held
        return self

    def tolist(self) -> Any:
        return self.held.tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


@contextmanager
def simulated() -> Iterator[None]:
    """Tensors may be made on, and moved to, ``sim:0`` and ``sim:1``."""
    _register()
    with pytest.MonkeyPatch.context() as patch, _Mode():
        patch.setattr(torch, "inference_mode", torch.no_grad)  # whose tensors cannot hold others
        yield


def _exact(device: Any) -> torch.device:
    device = torch.device(device)
    return torch.device(KIND, device.index or 0) if device.type == KIND else device


def _computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    asked = [_exact(leaf) for leaf in leaves if isinstance(leaf, torch.device)]
    inside = {tensor.device for tensor in tensors if isinstance(tensor, Simulated)}
    if not inside and not any(device.type == KIND for device in asked):
        return func(*args, **kwargs)
    operands = tensors[:1] if func in INDEXED else tensors
    beside = {tensor.device for tensor in operands if not isinstance(tensor, Simulated) and tensor.ndim > 0}
    if func not in COPIES and len(inside | beside) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, found {inside | beside} for {func}.")
    if func is aten.histc.default:  # GPUs have it of whole numbers too; mixtures of experts count so
        args = (args[0].to(torch.float32), *args[1:])
    found = func(*tree_map(_opened, args), **tree_map(_opened, kwargs))
    if func is aten.copy_.default:
        return args[0]
    if func in COPIES:
        where = asked[0] if asked else args[1].device if func is aten.to.other else args[0].device
        if where.type != KIND:
            return found.clone()
    else:
        where = asked[0] if asked else next(iter(inside))
    known = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, Simulated) and tensor.device == where}

    def closed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype == torch.float64:
            raise TypeError(f"Cannot convert a tensor to float64 on {where}: it has none.")
        return known[id(value)] if id(value) in known else Simulated(value, where)

    return tree_map(closed, found)


def _opened(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == KIND:
        return torch.device("cpu")
    return value.held if isinstance(value, Simulated) else value


class _Backend:
    """What torch asks of a kind of device."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 2

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def empty_cache(self) -> None:
        pass


def _empty(size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    return Simulated(torch.empty(size, dtype=dtype), device)


def _empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> torch.Tensor:
    return Simulated(torch.empty_strided(size, stride, dtype=dtype), device)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _opened(target).copy_(_opened(source))
    return target


@cache
def _register() -> torch.library.Library:
    """Once and for good: torch cannot forget a device. ``torch.tensor`` asks for these three outside of any mode."""
    from torch.utils import backend_registration

    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("torch 2.10 is the first that lets a device be written in Python")
    backend_registration._setup_privateuseone_for_python_backend(KIND, backend_module=_Backend())
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    return library
