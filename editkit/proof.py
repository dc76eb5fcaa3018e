"""The causal self-check at load: an architecture is believed only after its sites have moved the logits.

    prove(model, architecture)      # two forward passes over a few random tokens, or an EditkitError

Multiplying every head by 1 must change nothing, bit for bit: the hooks reach the projections and do no harm. Switching
off all heads of a site must change the logits: the site is really on the path from tokens to logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from editkit.architecture import Architecture
from editkit.errors import EditkitError
from editkit.knockout import gated, knocked_out, places

TOKENS = 8
ROWS = 16
NOISE = 1e-6
"""Relative. Switching heads off in one row may move others by this much: experts then sum in another order."""


@torch.inference_mode()
def prove(model: torch.nn.Module, architecture: Architecture) -> None:
    """Check every site of a loaded model against its logits.

    Raises:
        EditkitError: naming the layers whose knockout does nothing, or saying that an empty mask does something.
    """
    sites = _alive(model, architecture)
    unmoved: list[int] = []
    for start in range(0, len(sites), ROWS):
        chosen = sites[start : start + ROWS]
        unmoved += _unmoved(model, architecture, chosen)
    if unmoved:
        raise EditkitError(
            f"Switching off all heads of layer {', '.join(map(str, unmoved))} leaves the logits of this "
            f"{architecture.model_type} as they were: what looks like the attention output projection is not. "
            "Expected every site to matter. See docs/adding-an-architecture.md."
        )


def _alive(model: torch.nn.Module, architecture: Architecture) -> list[int]:
    """Sites with a weight that is not zero already: an edited checkpoint may have lost whole layers of heads."""
    dead = set()
    for site, module, _ in places(model, architecture):
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and not weight.is_meta and not weight.any():
            dead.add(site.layer)
    return [place for place, site in enumerate(architecture.sites) if site.layer not in dead]


def _unmoved(model: torch.nn.Module, architecture: Architecture, chosen: list[int]) -> list[int]:
    tokens = _tokens(model, rows=len(chosen))
    plain = _logits(model, tokens)
    with gated(model, architecture, torch.ones(len(chosen), len(architecture.heads))):
        untouched = _logits(model, tokens)
    if not torch.equal(plain, untouched):
        raise EditkitError(
            f"Hooking the sites of this {architecture.model_type} without switching anything off changes its logits "
            f"by up to {float((plain - untouched).abs().max()):.3g}: expected the same bits. "
            "The model may be nondeterministic on this device, or not in eval mode."
        )
    masks = np.zeros((len(chosen), len(architecture.heads)), dtype=bool)
    for row, place in enumerate(chosen):
        start = sum(site.units for site in architecture.sites[:place])
        masks[row, start : start + architecture.sites[place].units] = True
    with knocked_out(model, architecture, masks):
        edited = _logits(model, tokens)
    moved = (edited - plain).abs().flatten(1).amax(1)
    return [
        architecture.sites[place].layer
        for row, place in enumerate(chosen)
        if not moved[row] > NOISE * plain[row].abs().max()
    ]


def _tokens(model: torch.nn.Module, *, rows: int) -> torch.Tensor:
    """The same random tokens in every row; the same on every machine."""
    network: Any = model
    embeddings = network.get_input_embeddings()
    size = int(getattr(embeddings, "num_embeddings", None) or embeddings.weight.shape[0])
    generator = torch.Generator().manual_seed(0)
    return torch.randint(size, (1, TOKENS), generator=generator).expand(rows, -1).to(network.device)


def _logits(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=tokens, use_cache=False).logits
    return logits.float().cpu()
