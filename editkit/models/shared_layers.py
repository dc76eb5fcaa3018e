"""Rows that differ only in their masks share all layers below the first knockout: computed once per distinct text.

    40 heads of layer 5, each knocked out alone on one text of 60 tokens: layers 0 to 4 run 1 row, layer 5 and up run 40

One forward pass; the batch widens on its way: a pre-hook on the block of the first knockout repeats the residual
stream, and what else the blocks are given is repeated for it and all later ones. Sweeps over single heads take about
half the work. Models whose blocks hold the batch in some other way are found out by ``shareable`` and left alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from editkit.checkpoints.architecture import Architecture

REFUSALS = (RuntimeError, TypeError, KeyError, ValueError, IndexError, AttributeError, AssertionError)
"""What the models of transformers raise where a forward pass is not as they know it."""


def blocks_of(network: torch.nn.Module, architecture: Architecture) -> tuple[torch.nn.Module, ...] | None:
    """The decoder blocks in order, by the one list that holds all head sites; None if there is no such list."""
    parents = set()
    for site in architecture.sites:
        parts = site.module.split(".")
        numbered = [at for at, name in enumerate(parts) if name == str(site.layer)]
        if len(numbered) != 1:
            return None
        parents.add(".".join(parts[: numbered[0]]))
    if len(parents) != 1:
        return None
    parent = network.get_submodule(parents.pop())
    if not isinstance(parent, torch.nn.ModuleList) or len(parent) != architecture.layers:
        return None
    return tuple(parent)


@contextmanager
def widened(blocks: Sequence[torch.nn.Module], first: int, rows: torch.Tensor, texts: int) -> Iterator[None]:
    """Run blocks below ``first`` on ``texts`` distinct rows, and the others on ``len(rows)`` rows.

    Args:
        first: the block where the batch widens.
        rows: int[rows], the distinct text of each row.
    """

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.ndim >= 2 and value.shape[0] == texts > 1:
            return value.index_select(0, rows.to(value.device))
        if isinstance(value, tuple | list):
            return type(value)(wide(each) for each in value)
        return value

    def at_first(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        args, kwargs = later(module, args, kwargs)
        if texts == 1:  # a single text is the one case that ``wide`` cannot tell from a shared tensor
            if args:
                args = (args[0].expand(len(rows), *args[0].shape[1:]), *args[1:])
            else:
                states = kwargs["hidden_states"]
                kwargs = kwargs | {"hidden_states": states.expand(len(rows), *states.shape[1:])}
        return args, kwargs

    def later(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return tuple(wide(value) for value in args), {key: wide(value) for key, value in kwargs.items()}

    def after(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        states = args[:1] if args else (kwargs["hidden_states"],)
        rest, named = later(module, args[1:], {key: value for key, value in kwargs.items() if key != "hidden_states"})
        return ((*states, *rest), named) if args else ((), named | {"hidden_states": states[0]})

    with ExitStack() as stack:
        for number, block in enumerate(blocks[first:]):
            handle = block.register_forward_pre_hook(after if number else at_first, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def shareable(network: torch.nn.Module, architecture: Architecture) -> tuple[torch.nn.Module, ...] | None:
    """The blocks, if widening the batch in the middle provably changes nothing for this model; else None."""
    blocks = blocks_of(network, architecture)
    if blocks is None or len(blocks) < 2:
        return None
    embedding = network.get_input_embeddings()  # type: ignore[operator]
    seed = torch.Generator().manual_seed(0)
    vocabulary = int(embedding.weight.shape[0])  # type: ignore[union-attr]
    for texts, rows in ((1, [0, 0, 0]), (3, [0, 2, 2, 1, 0])):
        ids = torch.randint(vocabulary, (texts, 7), generator=seed).to(embedding.weight.device)  # type: ignore[union-attr]
        index = torch.tensor(rows, device=ids.device)
        try:
            with torch.inference_mode():
                plain = network(input_ids=ids[index], use_cache=False).logits
                with widened(blocks, len(blocks) // 2, index, texts):
                    shared = network(input_ids=ids, use_cache=False).logits
        except REFUSALS:
            return None  # this model's blocks carry the batch in a way that is not known here
        if not alike(plain, shared):
            return None
    return blocks


def keeping(network: Any, positions: int) -> dict[str, int]:
    """The option that leaves out the logits of all but the last positions, where a model knows it.

    Counted, not listed: a list of positions would lie on another device than the last of several.
    """
    known = "logits_to_keep" in inspect.signature(type(network).forward).parameters
    return {"logits_to_keep": positions} if known else {}


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two computations of the same logits differ by rounding alone.

    Other batch shapes round differently: in float32 by a millionth of the spread, in bfloat16 by a hundredth, and by
    more in deep models, where single logits stray. So in half precision a position is judged by its mean over the
    vocabulary. The bounds are ten times that and more; a mix-up of rows or positions is off by the spread itself.
    """
    if one.shape != other.shape:
        return False
    close, spread = max(1e-3, 16 * torch.finfo(one.dtype).eps), one.float().std()
    if one.dtype == torch.float32:
        return torch.allclose(one, other, atol=close * float(spread), rtol=close)
    return bool((one - other).abs().float().mean(-1).max() <= close * spread)
