"""docs/architectures.md: the table of supported model types, from the models the law runs over.

python -m tests.architecture_table > docs/architectures.md

| `gpt2` | `transformer.h.N.attn.c_proj.weight` | `transformer.h.N.mlp.c_proj.weight` | rows, not columns |
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from editkit.checkpoints import projections
from editkit.checkpoints.architecture import Architecture, Site
from editkit.units import PLAIN
from tests import tiny


def table() -> str:
    """docs/architectures.md, from the models the law runs over."""
    rows = [row(model_type, tiny.stored(tiny.build(model_type)[0])) for model_type in tiny.TYPES]
    refused = [f"| `{name}` | {reason} |" for name, reason in sorted(projections.REFUSED.items())]
    unbuilt = [f"- `{name}`: {reason}." for name, reason in tiny.UNBUILT.items()]
    return "\n".join([HEAD.format(count=len(tiny.TYPES)), *rows, REFUSALS, *refused, OTHERS, *unbuilt, ""])


def row(model_type: str, found: Architecture) -> str:
    """One line of the table: what the small model of this type looks like on disk."""
    heads = _tensors(found.sites)
    neurons = _tensors([site for site in found.neuron_sites if site.expert == PLAIN])
    routed = _tensors([site for site in found.neuron_sites if site.expert != PLAIN])
    notes = ["rows, not columns"] if found.sites[0].axis == 0 else []
    notes += ["several widths"] if len({(site.units, site.width) for site in found.sites}) > 1 else []
    notes += ["shared blocks"] if any(site.shared for site in found.sites) else []
    headless = ", ".join(sorted({layers.reason for layers in found.unreachable}))
    notes += [f"layers without heads: {headless}"] if headless else []
    notes += [f"layers without neurons in reach: {part.reason}" for part in found.unreachable_neurons]
    mlps = "; ".join(filter(None, (neurons, f"routed: {routed}" if routed else "")))
    return f"| `{model_type}` | {heads} | {mlps} | {'; '.join(notes)} |"


def _tensors(sites: Iterable[Site]) -> str:
    return ", ".join(f"`{name}`" for name in sorted({re.sub(r"\.\d+\.", ".N.", site.tensor) for site in sites}))


HEAD = """# Supported architectures

Written by `python -m tests.architecture_table > docs/architectures.md`; a test holds it in step.

Each of these {count} model types is built small and random, and must obey one law: switching heads and neurons off in
the live model gives the same logits, bit for bit, as zeroing their weights; greedy continuations agree; an empty mask
changes nothing; every head matters, and the neurons of every layer; and every row of a batch obeys its own mask. In
models with experts a row may move by rounding when other rows change, because the experts then add up in another order.

A *routed* expert's neurons can be knocked out, baked, verified and undone; they are not searched, as they have no gates
and so no gradients, and not trained alone. No adapter takes neurons of a model with routed experts. Where no neurons
are in reach, heads are.

| type | heads: output projection of attention | neurons: down projection of the MLP | notes |
|---|---|---|---|"""
REFUSALS = """
## Refused

| type | why |
|---|---|"""
OTHERS = """
## Others

A type that is not listed is read by the same rule when its names leave no doubt, and proves itself when it is loaded:
switching off any layer's heads must change the logits. See [adding-an-architecture.md](adding-an-architecture.md).

Layers without softmax heads (Mamba, linear attention, short convolutions) stay as they are; `editkit inspect` lists
them, and the layers whose neurons are out of reach.

What is measured must be whole and read from left to right: a checkpoint that lacks tensors, a tokenizer without words
or of another model, and a model whose tokens depend on later ones (encoders, `cpmant`) are refused at load.

Supported by the rule, but not among the tested:
"""

if __name__ == "__main__":
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    print(table(), end="")
