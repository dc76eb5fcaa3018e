"""The only place of the kit that hooks a live model: switch heads off, count what was attached, undo.

    with knocked_out(model, architecture, [Head(3, 5)]):            # the same heads in every row
        model(input_ids)
    with knocked_out(model, architecture, masks) as gates:          # bool[batch, len(architecture.heads)], True = off
        model(first_batch)
        gates.set(other_masks)                                      # cheap: no module is searched again
        model(second_batch)

A head is a slice of the input of the attention output projection. Multiplying that slice by zero equals zeroing the
same slice of the weight, bit for bit; an infinite or NaN activation times zero is NaN in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch

from editkit.checkpoints.architecture import Architecture, Site
from editkit.errors import EditkitError
from editkit.units import Unit

Masks = np.ndarray | torch.Tensor | Iterable[Unit]
"""bool[heads] or an iterable of heads: every row of any batch; bool[batch, heads]: one row per batch row."""


@contextmanager
def knocked_out(model: torch.nn.Module, architecture: Architecture, masks: Masks) -> Iterator[Gates]:
    """Switch heads off while the block runs; prefill and decoding alike.

    Args:
        masks: True = off, columns in the order of ``architecture.heads``; see ``Masks``. A batch of masks must have as
            many rows as the model's batch.

    Raises:
        EditkitError: if the masks do not fit, if the model is not of this architecture, or (inside the block) if a
            batch has another number of rows than the masks.
    """
    gates = Gates(model, architecture)
    try:
        gates.set(masks)
        yield gates
    finally:
        gates.close()


@contextmanager
def gated(model: torch.nn.Module, architecture: Architecture, gates: torch.Tensor) -> Iterator[None]:
    """Multiply every head's output by a number while the block runs: 1 keeps it, 0 is a knockout.

    Gradients flow into ``gates``, which is what attribution needs.

    Args:
        gates: float[batch, heads] or float[heads]; cast to the activations' dtype.
    """
    _fit(tuple(gates.shape), architecture)
    with ExitStack() as stack:
        for site, module, start in places(model, architecture):
            handle = module.register_forward_pre_hook(_scale(site, gates[..., start : start + site.units]))
            stack.callback(handle.remove)
        yield


class Gates:
    """The hooks of one ``knocked_out`` block: after ``set`` exactly the layers with a knockout are hooked."""

    def __init__(self, model: torch.nn.Module, architecture: Architecture) -> None:
        self._architecture = architecture
        self._places = places(model, architecture)
        self._attached = ExitStack()

    def set(self, masks: Masks) -> None:
        """Replace the masks; the hooks of the previous ones are gone even if these do not fit."""
        self.close()
        off = _normalise(masks, self._architecture)
        hit = off.any(dim=0) if off.ndim == 2 else off
        for site, module, start in self._places:
            span = slice(start, start + site.units)
            if bool(hit[span].any()):
                handle = module.register_forward_pre_hook(_switch(site, ~off[..., span]))
                self._attached.callback(handle.remove)

    def close(self) -> None:
        """Undo: the model is as it was."""
        self._attached.close()


def places(model: torch.nn.Module, architecture: Architecture) -> list[tuple[Site, torch.nn.Module, int]]:
    """Each site with its live module and the mask column of its first unit; shared blocks come once per module.

    Raises:
        EditkitError: naming the sites that the model does not have as described; nothing is attached then.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    paths = [path for site in architecture.sites for path in (site.module, *site.twins)]
    absent = [path for path in paths if path not in modules]
    if absent:
        raise EditkitError(
            f"This model has no module {', '.join(absent[:3])}{', ...' if len(absent) > 3 else ''} ({len(absent)} of "
            f"{len(paths)}): expected a {architecture.model_type} as its config and tensor names describe it. "
            "Take the paths from the live model: architecture.join(architecture, architecture.from_model(model))."
        )
    found: list[tuple[Site, torch.nn.Module, int]] = []
    start = 0
    for site in architecture.sites:
        distinct = {id(modules[path]): modules[path] for path in (site.module, *site.twins)}
        found.extend((site, module, start) for module in distinct.values())
        start += site.units
    return found


def _normalise(masks: Masks, architecture: Architecture) -> torch.Tensor:
    if isinstance(masks, np.ndarray | torch.Tensor):
        _fit(tuple(masks.shape), architecture)
        return torch.as_tensor(masks).to(device="cpu", dtype=torch.bool)
    return torch.from_numpy(architecture.mask(masks))


def _fit(shape: Sequence[int], architecture: Architecture) -> None:
    if len(shape) not in (1, 2) or shape[-1] != len(architecture.heads):
        raise EditkitError(
            f"Masks of a {architecture.model_type} with {len(architecture.heads)} heads have the shape "
            f"[{len(architecture.heads)}] or [batch, {len(architecture.heads)}]; found {list(shape)}."
        )


Hook = Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]]


def _switch(site: Site, keep: torch.Tensor) -> Hook:
    """A hook that multiplies the projection's input by 0s and 1s, widened once per device and dtype."""
    widened: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def hook(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        states = args[0]
        where = (states.device, states.dtype)
        if where not in widened:
            widened[where] = _widen(site, keep, states)
        return (states * _align(site, widened[where], states), *args[1:])

    return hook


def _scale(site: Site, gates: torch.Tensor) -> Hook:
    def hook(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        states = args[0]
        return (states * _align(site, _widen(site, gates, states), states), *args[1:])

    return hook


def _widen(site: Site, gates: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """[..., units] -> [..., units * width], where the activations are."""
    return gates.to(device=states.device, dtype=states.dtype).repeat_interleave(site.width, dim=-1)


def _align(site: Site, gates: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """[width] or [batch, width] -> a shape that broadcasts over [batch, ..., width]."""
    if gates.ndim == 1:
        return gates
    if states.ndim < 3 or states.shape[0] != gates.shape[0]:
        raise EditkitError(
            f"{site.module}: there are masks for {gates.shape[0]} rows, but the batch arrives as {list(states.shape)}. "
            "Give one mask per row of the batch (repeat each mask for beams or several returned sequences), "
            "or one mask without a batch dimension for all rows."
        )
    return gates.reshape(gates.shape[0], *[1] * (states.ndim - 2), gates.shape[1])
