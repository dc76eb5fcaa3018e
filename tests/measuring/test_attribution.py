"""Attributions are the slopes of the answer by the units' gates, and add up to what a whole layer's knockout changes.

If one fails: neurons are ranked by numbers that say nothing of their knockout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from editkit.api import load
from editkit.checkpoints.architecture import Site, from_model
from editkit.errors import EditkitError
from editkit.measuring.attribution import attributions, effects
from editkit.models.batch_budget import Budget
from editkit.models.encoding import Encoded
from editkit.models.knockout import knocked_out, scaled
from editkit.models.language_model import LanguageModel
from editkit.models.shared_layers import blocks_of
from editkit.tasks.task import Loglikelihood
from tests import tiny


@pytest.fixture(scope="module")
def model() -> Iterator[LanguageModel]:
    """A copy of the organism in float64, where differences show slopes."""
    found = load()
    found.network.double()
    yield found


@pytest.fixture(scope="module")
def rows(model: LanguageModel) -> list[Encoded]:
    asked = [("What is 2 plus 3?", " 5"), ("Say something.", " 68 is it."), ("Hi", " there")]
    return [model.encode(Loglikelihood(*pair)) for pair in asked]


@pytest.mark.parametrize("probability", [True, False])
@pytest.mark.parametrize("kind", ["neuron", "head"])
def test_first_order_scores_are_slopes(model: LanguageModel, rows: list[Encoded], kind: str, probability: bool) -> None:
    sites = model.architecture.neuron_sites if kind == "neuron" else model.architecture.sites
    site = sites[len(sites) // 2]
    [scores] = attributions(model, rows, [site], probability=probability)
    assert scores.shape == (len(rows), site.units)
    for unit in np.abs(scores).sum(0).argsort()[-3:]:
        gates = torch.ones(site.units, dtype=torch.float64)
        step = torch.zeros_like(gates)
        step[int(unit)] = 2e-2  # norms run in float32: a smaller step drowns in their rounding
        up, down = (answers(model, rows, site, gates + way * step, probability) for way in (1, -1))
        slope = (up - down) / 4e-2
        assert np.abs(slope).max() > 1e-6, "there is a slope"
        assert np.allclose(slope, scores[:, unit], rtol=2e-2, atol=5e-3 * float(np.abs(slope).max()))


def test_integrated_scores_add_up_to_the_knockout_of_the_layer(model: LanguageModel, rows: list[Encoded]) -> None:
    site = model.architecture.neuron_sites[1]
    whole = answers(model, rows, site, torch.ones(site.units), False)
    with knocked_out(model.network, model.architecture, model.architecture.all_of([site])):
        without = answers(model, rows, site, torch.ones(site.units), False)
    [scores] = attributions(model, rows, [site], steps=60)
    assert np.abs(whole - without).max() > 0.05
    assert np.allclose(scores.sum(1), whole - without, atol=0.02 * float(np.abs(whole - without).max()))


def test_one_pass_for_all_layers_and_any_batches_give_the_same_slopes(
    model: LanguageModel, rows: list[Encoded]
) -> None:
    sites, hooks = model.architecture.neuron_sites, _hooks(model)
    together = attributions(model, rows, sites)
    tight = replace(model, budget=Budget(4))
    for site, joint in zip(sites, together, strict=True):
        [alone] = attributions(tight, rows, [site])
        assert np.allclose(alone, joint, rtol=1e-4, atol=1e-6)
    assert _hooks(model) == hooks, "none stays"


def test_what_is_kept_for_the_way_back_does_not_grow_with_what_a_layer_computes(
    model: LanguageModel, rows: list[Encoded]
) -> None:
    """If this fails: attributing an 8B model's answer takes 5 MB a token, and no graphics card has them."""
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    inner = model.architecture.neuron_sites[0].units
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        attributions(model, rows, model.architecture.neuron_sites)
    assert kept and not [tensor.shape for tensor in kept if tensor.ndim == 3 and tensor.shape[-1] == inner]
    blocks = blocks_of(model.network, model.architecture)
    assert blocks and not any("forward" in vars(block) for block in blocks), "none stays"


def test_effects_are_means_layer_by_layer_or_together(model: LanguageModel, rows: list[Encoded]) -> None:
    sites, done = model.architecture.neuron_sites, []
    alone = [attributions(model, rows, [site], steps=2)[0].mean(0) for site in sites]
    assert np.array_equal(
        effects(model, rows, sites, path="layers", steps=2, advance=done.append), np.concatenate(alone)
    )
    assert done == [len(rows)] * len(sites)
    joint = np.concatenate(attributions(model, rows, sites, steps=2), axis=1).mean(0)
    assert np.array_equal(effects(model, rows, sites, steps=2), joint) and not np.allclose(joint, np.concatenate(alone))


def test_experts_have_no_gates(model: LanguageModel, rows: list[Encoded]) -> None:
    site = from_model(tiny.build("mixtral")[0]).neuron_sites[0]
    with pytest.raises(EditkitError, match="routed experts"):
        attributions(model, rows, [site])


def _hooks(model: LanguageModel) -> int:
    return sum(len(module._forward_pre_hooks) for module in model.network.modules())


def answers(
    model: LanguageModel, rows: list[Encoded], site: Site, gates: torch.Tensor, probability: bool
) -> np.ndarray:
    """The mean (log-)probability of each row's answer, row by row, from the bare network."""
    found = []
    with scaled(model.network, site, gates), torch.no_grad():
        for context, answer in rows:
            logits = model.network(input_ids=torch.tensor([context + answer])).logits[0, len(context) - 1 : -1]
            each = logits.log_softmax(-1)[range(len(answer)), answer]
            found.append(float((each.exp() if probability else each).mean()))
    return np.array(found)
