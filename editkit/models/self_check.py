"""The causal self-check at load: an architecture is believed only after its sites have moved the logits.

    architecture = prove(model, architecture)      # a few passes over a few random tokens, or an EditkitError

Multiplying every head by 1 must change nothing (on a CPU bit for bit, elsewhere but for rounding): the hooks reach the
projections and do no harm. Switching off all heads of a site must change the logits: the site is really on the path
from tokens to logits. And no token may depend on a later one: what scores an answer given in advance would read the
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from editkit.checkpoints.architecture import Architecture, Site, Unreachable
from editkit.errors import EditkitError
from editkit.models.knockout import gated, head_modules, knocked_out
from editkit.models.shared_layers import REFUSALS, alike

TOKENS = 8
ROWS = 16
NOISE = 1e-6
"""Relative. Switching heads off in one row may move others by this much: experts then sum in another order."""


def prove(model: torch.nn.Module, architecture: Architecture) -> Architecture:
    """Check every site of a loaded model against its logits, and that it reads from left to right.

    Returns:
        The architecture. Layers whose neurons do not move the logits are out of its reach; heads work all the same.

    Raises:
        EditkitError: naming the layers whose knockout does nothing, or saying that an empty mask does something, or
            that earlier tokens depend on later ones.
    """
    _prove_sites(model, architecture)
    if _reads_ahead(model):
        raise EditkitError(
            f"What this {architecture.model_type} says of a token depends on the tokens behind it: scores would read "
            'the answers they should predict. An encoder becomes a decoder by "is_decoder": true in its config.json; '
            "other models of this kind can be baked, not measured."
        )
    return _with_proved_neurons(model, architecture)


@torch.inference_mode()
def _prove_sites(model: torch.nn.Module, architecture: Architecture) -> None:
    sites = _alive(model, architecture)
    _check_hooks(model, architecture)
    idle = [sites[group].layer for group in _idle(model, architecture, [[site] for site in sites])]
    if idle:
        raise EditkitError(
            f"Switching off all heads of layer {', '.join(map(str, idle))} leaves the logits of this "
            f"{architecture.model_type} as they were: what looks like the attention output projection is not. "
            "Expected every site to matter. See docs/adding-an-architecture.md."
        )


@torch.inference_mode()
def _with_proved_neurons(model: torch.nn.Module, architecture: Architecture) -> Architecture:
    """All neurons of a layer are switched off together: few tokens do not reach every expert."""
    layers: dict[int, list[Site]] = {}
    for site in architecture.neuron_sites:
        layers.setdefault(site.layer, []).append(site)
    idle = [list(layers)[group] for group in _idle(model, architecture, list(layers.values()))]
    idle = [layer for layer in idle if _has_weight(model, architecture, layer)]
    if not idle:
        return architecture
    return replace(
        architecture,
        neuron_sites=tuple(site for site in architecture.neuron_sites if site.layer not in idle),
        unreachable_neurons=(
            *architecture.unreachable_neurons,
            Unreachable(tuple(idle), "they do not move the logits"),
        ),
    )


def _idle(model: torch.nn.Module, architecture: Architecture, groups: Sequence[Sequence[Site]]) -> list[int]:
    """Which groups of sites leave the logits as they were when all their units are off."""
    idle: list[int] = []
    for start in range(0, len(groups), ROWS):
        chosen = groups[start : start + ROWS]
        tokens = _tokens(model, rows=len(chosen))
        plain = _logits(model, tokens)
        with knocked_out(model, architecture, [architecture.all_of(sites) for sites in chosen]):
            edited = _logits(model, tokens)
        moved = (edited - plain).abs().flatten(1).amax(1)
        idle += [start + row for row in range(len(chosen)) if not moved[row] > NOISE * plain[row].abs().max()]
    return idle


def _check_hooks(model: torch.nn.Module, architecture: Architecture) -> None:
    """Raises EditkitError where multiplying every head by 1 changes the logits."""
    rows = min(ROWS, len(architecture.sites))
    tokens = _tokens(model, rows=rows)
    plain = _logits(model, tokens)
    with gated(model, architecture, torch.ones(rows, len(architecture.heads))):
        untouched = _logits(model, tokens)
    if not _same(model, plain, untouched):
        raise EditkitError(
            f"Hooking the sites of this {architecture.model_type} without switching anything off changes its logits "
            f"by up to {float((plain - untouched).abs().max()):.3g}: expected the same. "
            "The model may be nondeterministic on this device, or not in eval mode."
        )


def _has_weight(model: torch.nn.Module, architecture: Architecture, layer: int) -> bool:
    """Whether a layer's MLP has a weight that is not zero already."""
    sites = [site for site in architecture.neuron_sites if site.layer == layer]
    weights = [getattr(model.get_submodule(site.module), site.weight) for site in sites]
    return any(weight.is_meta or bool(weight.any()) for weight in weights)


def _reads_ahead(model: Any) -> bool:
    """Whether the first token's highest logit has a gradient by a later token's embedding.

    A causal mask makes it exactly zero at any precision, where a difference of two runs would show noise as well. Of
    all logits together it would overflow in float16. False, too, for models without gradients, or where even this one
    overflows: then nothing is known.
    """
    embedded: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1].clone()  # some models scale it in place

    handle = model.get_input_embeddings().register_forward_hook(keep)
    try:
        with torch.enable_grad():
            first = model(input_ids=_tokens(model, rows=1), use_cache=False).logits[0, 0]
            [slope] = torch.autograd.grad(first.float().amax(), [embedded[0]])
    except REFUSALS:
        return False
    finally:
        handle.remove()
    return bool(slope[..., -1, :].nan_to_num(0.0).any())


def _alive(model: torch.nn.Module, architecture: Architecture) -> list[Site]:
    """Sites with a weight that is not zero already: an edited checkpoint may have lost whole layers of heads."""
    dead = set()
    for site, module in head_modules(model, architecture):
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and not weight.is_meta and not weight.any():
            dead.add(site.layer)
    return [site for site in architecture.sites if site.layer not in dead]


def _same(model: Any, one: torch.Tensor, other: torch.Tensor) -> bool:
    """The same bits on a CPU. Elsewhere the copy that a hook makes may meet another kernel, which rounds otherwise."""
    if model.device.type == "cpu":
        return torch.equal(one, other)
    return alike(one.to(model.dtype), other.to(model.dtype))


def _tokens(model: Any, *, rows: int) -> torch.Tensor:
    """The same random tokens in every row; the same on every machine."""
    embeddings = model.get_input_embeddings()
    size = int(getattr(embeddings, "num_embeddings", None) or embeddings.weight.shape[0])
    generator = torch.Generator().manual_seed(0)
    return torch.randint(size, (1, TOKENS), generator=generator).expand(rows, -1).to(model.device)


def _logits(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    return model(input_ids=tokens, use_cache=False).logits.float().cpu()
