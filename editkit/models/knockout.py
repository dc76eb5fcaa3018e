"""Hooks on a live model: switch heads and neurons off, count what was attached, undo.

    with knocked_out(model, architecture, [Head(3, 5), Neuron(3, 4012)]):   # the same units in every row
        model(input_ids)
    with knocked_out(model, architecture, knockouts) as gates:              # one for each row of the batch
        model(first_batch)
        gates.set(masks)                                                    # bool[batch, heads], True = off
        model(second_batch)

A head is a slice of the input of the attention output projection, a neuron one coordinate of the input of the MLP's
down projection. Multiplying it by zero equals zeroing the same slice of the weight, bit for bit; an infinite or NaN
activation times zero is NaN in both. Experts are tokens of many rows at once: ``experts`` switches theirs off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial

import numpy as np
import torch

from editkit.checkpoints.architecture import Architecture, Site
from editkit.checkpoints.knockout import Knockout
from editkit.errors import EditkitError
from editkit.models import experts
from editkit.models.altered import altered
from editkit.models.token_rows import TokenRows
from editkit.units import PLAIN, Unit

Masks = np.ndarray | torch.Tensor | Knockout | Sequence[Knockout] | Iterable[Unit]
"""bool[heads], an iterable of units or a ``Knockout``: every row of any batch; bool[batch, heads] or a list of
knockouts: one for each batch row."""


@contextmanager
def knocked_out(model: torch.nn.Module, architecture: Architecture, masks: Masks) -> Iterator[Gates]:
    """Switch units off while the block runs; prefill and decoding alike.

    Args:
        masks: what is off: see ``Masks``; True = off, columns in the order of ``architecture.heads``. A batch of masks
            must have as many rows as the model's batch.

    Raises:
        EditkitError: if the masks do not fit, if the model is not of this architecture, or (inside the block) if a
            batch has another number of rows than the masks.
    """
    gates = Gates(model, architecture)
    try:
        gates.set(masks)
        with altered(model):
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
    architecture.check_shape(gates.shape)
    with ExitStack() as stack:
        for site, start in zip(architecture.sites, architecture.starts.tolist(), strict=False):
            stack.enter_context(scaled(model, site, gates[..., start : start + site.units]))
        yield


@contextmanager
def scaled(model: torch.nn.Module, site: Site, gates: torch.Tensor) -> Iterator[None]:
    """Multiply every unit of one site by a number while the block runs; gradients flow into ``gates``.

    Args:
        site: not of an expert.
        gates: float[batch, units] or float[units]; cast to the activations' dtype.
    """
    with ExitStack() as stack:
        stack.enter_context(altered(model))
        rows = TokenRows(model, len(gates)) if gates.ndim == 2 else None
        stack.callback(rows.close if rows else lambda: None)
        for module in _modules(dict(model.named_modules(remove_duplicate=False)), site):
            hook = _multiplied(site, partial(_widen, site, gates), rows)
            stack.callback(module.register_forward_pre_hook(hook).remove)
        yield


class Gates:
    """The hooks of one ``knocked_out`` block: after ``set`` exactly the modules with a knockout are hooked."""

    def __init__(self, model: torch.nn.Module, architecture: Architecture) -> None:
        self._model, self._architecture = model, architecture
        self._modules = dict(model.named_modules(remove_duplicate=False))
        head_modules(model, architecture)  # which have to be there
        self._attached = ExitStack()

    def set(self, masks: Masks) -> None:
        """Replace the masks; the hooks of the previous ones are gone even if these do not fit."""
        self.close()
        out = _normalise(masks, self._architecture)
        batched, rows = (False, [out]) if isinstance(out, Knockout) else (True, out)
        hits = list(_hits(rows, self._architecture))
        tokens = None
        if batched and any(site.kind == "neuron" for site, *_ in hits):
            tokens = TokenRows(self._model, len(rows))
            self._attached.callback(tokens.close)
        routed: dict[int, tuple[torch.nn.Module, list[experts.Off]]] = {}
        for site, row, index in hits:
            modules = _modules(self._modules, site)
            if site.expert != PLAIN:
                for module in modules:
                    off = experts.Off(site, row if batched else None, index)
                    routed.setdefault(id(module), (module, []))[1].append(off)
                continue
            keep = torch.ones((len(rows), site.units), dtype=torch.bool)
            keep[torch.from_numpy(row), torch.from_numpy(index)] = False
            for module in modules:
                hook = _multiplied(site, cache(partial(_widen, site, keep if batched else keep[0])), tokens)
                self._attached.callback(module.register_forward_pre_hook(hook).remove)
        for module, offs in routed.values():
            self._attached.callback(experts.switch(module, offs, tokens).remove)

    def close(self) -> None:
        """Undo: the model is as it was."""
        self._attached.close()


def _hits(rows: Sequence[Knockout], architecture: Architecture) -> Iterator[tuple[Site, np.ndarray, np.ndarray]]:
    """Each site with a unit that is off in some row: the site, and the row and the unit's index of each, int[n]."""
    places = np.concatenate([each.places for each in rows]).astype(np.int64) if rows else np.zeros(0, np.int64)
    row = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    number = np.searchsorted(architecture.starts, places, side="right") - 1
    order = np.argsort(number, kind="stable")
    numbers, first = np.unique(number[order], return_index=True)
    for site, here in zip(numbers.tolist(), np.split(order, first[1:]), strict=False):
        yield architecture.all_sites[site], row[here], places[here] - architecture.starts[site]


def head_modules(model: torch.nn.Module, architecture: Architecture) -> list[tuple[Site, torch.nn.Module]]:
    """Each site of heads with its live module; shared blocks once per module.

    Raises:
        EditkitError: naming the sites that the model does not have as described; nothing is attached then.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    paths = [path for site in architecture.sites for path in (site.module, *site.twins)]
    absent = [path for path in paths if path not in modules]
    if absent:
        raise EditkitError(
            f"This model has no module {', '.join(absent[:3])}{', ...' if len(absent) > 3 else ''} ({len(absent)} of "
            f"{len(paths)}): expected a {architecture.model_type} as its config and tensor names describe it. {_FROM}"
        )
    return [(site, module) for site in architecture.sites for module in _modules(modules, site)]


_FROM = "Take the paths from the live model: architecture.join(architecture, architecture.from_model(model))."


def _modules(modules: Mapping[str, torch.nn.Module], site: Site) -> list[torch.nn.Module]:
    """The live modules of a site; a block that is used at several depths comes once."""
    live = {id(modules[path]): modules[path] for path in (site.module, *site.twins) if path in modules}
    lacking = [module for module in live.values() if site.expert != PLAIN and not experts.holds(module, site)]
    if not live or lacking:
        raise EditkitError(f"This model has no {site.module} as its config and tensor names describe it. {_FROM}")
    return list(live.values())


def _normalise(masks: Masks, architecture: Architecture) -> Knockout | Sequence[Knockout]:
    """One knockout for every row of any batch, or one for each row of a batch."""
    if isinstance(masks, Knockout):
        return masks
    if isinstance(masks, np.ndarray | torch.Tensor):
        rows = np.asarray(torch.as_tensor(masks).to(device="cpu", dtype=torch.bool))
        architecture.check_shape(rows.shape)
        return architecture.knockouts(rows) if rows.ndim == 2 else architecture.knockouts(rows[None])[0]
    listed = list(masks)
    if listed and isinstance(listed[0], Knockout):
        return [each for each in listed if isinstance(each, Knockout)]
    return architecture.knockout(unit for unit in listed if not isinstance(unit, Knockout))


Hook = Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]]


def _multiplied(
    site: Site, widened: Callable[[torch.device, torch.dtype], torch.Tensor], tokens: TokenRows | None
) -> Hook:
    """A hook that multiplies the projection's input by ``widened``, a number for each coordinate."""

    def hook(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        states = args[0]
        gates = widened(states.device, states.dtype)
        return (states * _align(site, gates, states, tokens), *args[1:])

    return hook


def _widen(site: Site, gates: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """[..., units] -> [..., units * width], as the activations are."""
    gates = gates.to(device=device, dtype=dtype)
    return gates if site.width == 1 else gates.repeat_interleave(site.width, dim=-1)


def _align(site: Site, gates: torch.Tensor, states: torch.Tensor, tokens: TokenRows | None) -> torch.Tensor:
    """[width] or [batch, width] -> a shape that broadcasts over [batch, ..., width], or over [tokens, width]."""
    if gates.ndim == 1:
        return gates
    if states.ndim == 2 and tokens and len(states) == tokens.count:
        return gates.repeat_interleave(tokens.each, dim=0)
    if states.ndim < 3 or states.shape[0] != gates.shape[0]:
        raise EditkitError(
            f"{site.module}: there are masks for {gates.shape[0]} rows, but the batch arrives as {list(states.shape)}. "
            "Give one mask per row of the batch (repeat each mask for beams or several returned sequences), "
            "or one mask without a batch dimension for all rows."
        )
    return gates.reshape(gates.shape[0], *[1] * (states.ndim - 2), gates.shape[1])
