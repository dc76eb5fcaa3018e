"""Train some of a network's numbers and leave every other as it is, bit for bit: what a set of units can learn.

    parts = weights_of(model.network, architecture, architecture.knockout([Neuron(3, 17)]))
    with trained(model, parts, rows, Training(steps=50), np.random.default_rng(0)) as losses:
        model.generate(["What is 2 plus 3?"])       # with what it learned; afterwards the network is as it was

A neuron's numbers are what writes it, its row of the gate and of the up projection with their biases, and what reads
it, its column of the down projection. A head's are its slice of the attention output projection, as in a removal.

The trained numbers are copies in float32, which alone have optimizer state and weight decay; after each step they are
written back. So nothing else can change: no gradient is masked after a moment has seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from editkit.checkpoints.architecture import Architecture, Site
from editkit.checkpoints.knockout import Knockout
from editkit.errors import EditkitError
from editkit.models.altered import altered
from editkit.models.encoding import Encoded
from editkit.models.language_model import LanguageModel
from editkit.units import PLAIN

Parts = Mapping[str, torch.Tensor]
"""Name of a parameter -> which of its numbers are trained: bool, shaped like the parameter."""


@dataclass(frozen=True)
class Training:
    """AdamW without a schedule: the same for every set of units that is compared."""

    steps: int = 40
    rate: float = 1e-3
    batch: int = 8
    decay: float = 0.01


def weights_of(network: torch.nn.Module, architecture: Architecture, units: Knockout) -> Parts:
    """The numbers that belong to some units.

    Raises:
        EditkitError: neurons of routed experts, or of an MLP whose rows cannot be told.
    """
    modules = dict(network.named_modules())
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    chosen: dict[str, torch.Tensor] = {}

    def take(module: torch.nn.Module, name: str, axis: int, index: np.ndarray) -> None:
        parameter = module.get_parameter(name)
        name = names[id(parameter)]
        mask = chosen.setdefault(name, torch.zeros(parameter.shape, dtype=torch.bool, device=parameter.device))
        mask.index_fill_(axis, torch.from_numpy(index).to(parameter.device), True)

    for site, index in architecture.by_site(units):
        if site.expert != PLAIN:
            raise EditkitError(f"{site.module}: neurons of routed experts cannot be trained alone.")
        read = modules[site.module]
        take(read, "weight", site.axis, (index[:, None] * site.width + np.arange(site.width)).ravel())
        for written in _writers(modules, site) if site.kind == "neuron" else ():
            rows = np.concatenate([index + start for start in range(0, _outputs(written, site), site.units)])
            take(written, "weight", 1 - site.axis, rows)
            if written.bias is not None:
                take(written, "bias", 0, rows)
    return chosen


def all_weights(network: torch.nn.Module) -> Parts:
    """Every number of the network."""
    return {name: torch.ones_like(parameter, dtype=torch.bool) for name, parameter in network.named_parameters()}


def all_but(network: torch.nn.Module, parts: Parts) -> Parts:
    """Every number of the network that is not in ``parts``."""
    return {name: ~parts[name] if name in parts else whole for name, whole in all_weights(network).items()}


def count(parts: Parts) -> int:
    """How many numbers are trained."""
    return sum(int(mask.sum()) for mask in parts.values())


@contextmanager
def trained(
    model: LanguageModel,
    parts: Parts,
    rows: Sequence[Encoded],
    training: Training,
    rng: np.random.Generator,
    *,
    watch: Callable[[int], None] = lambda steps: None,
) -> Iterator[list[float]]:
    """The model after some steps on the answers of ``rows``, while the block runs; then as it was, bit for bit.

    Args:
        rows: (context, answer) in token ids; batches are drawn from them, each once before any comes again.
        watch: called after each step with the number of steps so far, while the model is as they left it.

    Yields:
        The loss of each step: nats per token of the answers.
    """
    parameters = {name: parameter for name, parameter in model.network.named_parameters() if name in parts}
    chosen = {name: ... if parts[name].all() else parts[name] for name in parameters}
    before = {name: parameter.detach()[chosen[name]].clone() for name, parameter in parameters.items()}
    copies = {name: torch.nn.Parameter(values.to(torch.float32, copy=True)) for name, values in before.items()}
    optimizer = torch.optim.AdamW(list(copies.values()), lr=training.rate, weight_decay=training.decay, fused=True)

    def write(values: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter[chosen[name]] = values[name].to(parameter.dtype)

    losses: list[float] = []
    try:
        with altered(model.network):
            for steps, batch in enumerate(_batches(len(rows), training, rng), 1):
                gradients = _gradients(model, parameters, [rows[number] for number in batch], losses)
                for name, gradient in gradients.items():
                    copies[name].grad = gradient[chosen[name]].float()
                optimizer.step()
                write(copies)
                watch(steps)
            yield losses
    finally:
        write(before)


def _gradients(
    model: LanguageModel, parameters: Mapping[str, torch.nn.Parameter], rows: Sequence[Encoded], losses: list[float]
) -> dict[str, torch.Tensor]:
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    try:
        with torch.enable_grad():
            logprobs, _, real = model.token_logprobs(rows)
            loss = -(logprobs * real).sum() / real.sum()
            gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
    finally:
        for parameter in parameters.values():
            parameter.requires_grad_(False)
    losses.append(float(loss.detach()))
    return dict(zip(parameters, gradients, strict=True))


def _batches(rows: int, training: Training, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """``steps`` batches of row numbers, from shuffled rounds through all rows."""
    size = min(training.batch, rows)
    rounds = -(-training.steps * size // rows)
    order = np.concatenate([rng.permutation(rows) for _ in range(rounds)])
    return iter(order[: training.steps * size].reshape(training.steps, size))


def _writers(modules: Mapping[str, torch.nn.Module], site: Site) -> list[torch.nn.Module]:
    """The linear maps beside a down projection whose outputs are its neurons: once, or twice (gate and up in one)."""
    parent, _, own = site.module.rpartition(".")
    beside = [child for name, child in modules[parent].named_children() if name != own]
    writers = [child for child in beside if _outputs(child, site) in (site.units, 2 * site.units)]
    if not writers:
        raise EditkitError(f"{site.module}: which rows write its neurons cannot be told, so they cannot be trained.")
    return writers


def _outputs(module: torch.nn.Module, site: Site) -> int:
    """How many outputs a linear map has that is stored as the down projection is; 0 of what is none."""
    weight = getattr(module, "weight", None)
    return weight.shape[1 - site.axis] if isinstance(weight, torch.Tensor) and weight.ndim == 2 else 0
