"""Training touches the numbers it was given and no other, by a bit, and is undone.

If one fails: "these neurons alone learned it" is not so.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from editkit.checkpoints import architecture
from editkit.errors import EditkitError
from editkit.models.language_model import LanguageModel
from editkit.models.training import Training, all_but, all_weights, count, trained, weights_of
from editkit.tasks.task import Loglikelihood
from editkit.units import Head, Neuron
from tests import tiny


def weights(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}


@pytest.mark.parametrize(
    ("model_type", "tensors"), [("llama", 3), ("gpt2", 3), ("opt", 3), ("phi3", 2), ("gpt_neox", 3)]
)
def test_a_neurons_numbers_are_all_that_write_it_and_all_that_read_it(model_type: str, tensors: int) -> None:
    network, _ = tiny.build(model_type)
    found = architecture.from_model(network)
    site = found.neuron_sites[1]
    parts = weights_of(network, found, found.knockout([Neuron(site.layer, 2), Neuron(site.layer, 5)]))
    down = dict(network.named_modules())[site.module]
    seen: list[torch.Tensor] = []
    down.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
    tokens = torch.arange(4, 10)[None]
    with torch.no_grad():
        network(tokens)
        for name, parameter in network.named_parameters():
            if name in parts and parameter is not down.weight:
                parameter[parts[name]] += 0.5
        network(tokens)
        assert torch.nonzero((seen[0] != seen[1]).flatten(0, -2).any(0)).ravel().tolist() == [2, 5]
    read = parts[f"{site.module}.weight"]
    assert (
        torch.nonzero(read.all(1 - site.axis)).ravel().tolist() == [2, 5]
        and read.sum() == 2 * read.shape[1 - site.axis]
    )


def test_a_heads_numbers_are_its_slice_of_the_output_projection() -> None:
    network, _ = tiny.build("llama")
    found = architecture.from_model(network)
    site = found.sites[0]
    [(name, part)] = weights_of(network, found, found.knockout([Head(0, 1)])).items()
    assert name == site.tensor and part[:, site.slice(1)].all() and part.sum() == site.shape[0] * site.width


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_else_changes_by_a_bit_and_all_is_undone(organism: LanguageModel, dtype: torch.dtype) -> None:
    model = replace(organism, network=copy.deepcopy(organism.network).to(dtype))
    units = model.architecture.knockout([Neuron(2, 7), Neuron(2, 8), Neuron(4, 100), Head(1, 3)])
    parts = weights_of(model.network, model.architecture, units)
    rows = [model.encode(Loglikelihood(f"What is {n} plus 3?", f"{n}")) for n in range(12, 17)]
    before = weights(model.network)
    with trained(model, parts, rows, Training(steps=6, rate=0.01, batch=3), np.random.default_rng(0)) as losses:
        after = weights(model.network)
    assert losses[-1] < losses[0] and len(losses) == 6
    for name, values in before.items():
        part = parts.get(name, torch.zeros_like(values, dtype=torch.bool))
        assert torch.equal(after[name][~part], values[~part]), name
        assert not part.any() or not torch.equal(after[name][part], values[part]), name
        assert torch.equal(model.network.get_parameter(name), values), "undone"
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in model.network.parameters())


def test_training_the_slices_is_training_the_whole_with_every_other_gradient_masked(organism: LanguageModel) -> None:
    rows = [organism.encode(Loglikelihood(f"What is {n} plus 3?", f"{n}")) for n in (12, 40)]
    everything = all_weights(organism.network)
    parts = {"model.norm.weight": everything["model.norm.weight"]}
    found = []
    for some in (parts, everything):
        with trained(organism, some, rows, Training(1, 1e-2, 2), np.random.default_rng(0)):
            found.append(organism.network.get_parameter("model.norm.weight").clone())
    assert torch.equal(*found), "the first step of AdamW sees each number alone"
    assert count(parts) + count(all_but(organism.network, parts)) == count(everything)


def test_what_cannot_be_trained_alone_is_refused() -> None:
    network, _ = tiny.build("mixtral")
    found = architecture.from_model(network)
    with pytest.raises(EditkitError, match="routed experts"):
        weights_of(network, found, found.knockout([Neuron(0, 1, expert=0)]))
