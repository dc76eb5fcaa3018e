"""A low-rank adapter beside some of a network's linear maps, as peft adds it, while a block runs.

    with adapted(model.network, ["model.layers.0.mlp.up_proj"], seed=0) as parts:
        with trained(model, parts, rows, Training(steps=50), rng):
            ...                                             # afterwards the network is as it was

An adapter starts at zero: y = W x + B A x, where B is 0 (Hu et al. 2021, arXiv 2106.09685, section 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from editkit.models.altered import altered
from editkit.models.training import Parts

RANK = 8


@contextmanager
def adapted(network: torch.nn.Module, modules: Sequence[str], *, seed: int) -> Iterator[Parts]:
    """Adapters beside ``modules``, linear maps by name.

    Args:
        seed: of A, which starts at random.

    Yields:
        What the adapters can learn.
    """
    from peft import LoraConfig, inject_adapter_in_model

    own = {name: network.get_submodule(name) for name in modules}
    device = next(network.parameters()).device
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=list(modules)), network)
        with altered(network):
            yield {
                name: torch.ones_like(parameter, dtype=torch.bool)
                for name, parameter in network.named_parameters()
                if ".lora_" in name
            }
    finally:
        for name, module in own.items():
            network.set_submodule(name, module)
        if hasattr(network, "peft_config"):
            del network.peft_config
