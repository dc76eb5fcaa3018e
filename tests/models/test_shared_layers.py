"""Sharing layers below the first knockout changes no answer; where it would, it is off.

If one fails: what makes a search cheap changes the effects it measures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from editkit.checkpoints.architecture import from_model
from editkit.models.language_model import LanguageModel
from editkit.models.shared_layers import alike, blocks_of, shareable, widened
from editkit.tasks.task import Likelihood, Loglikelihood
from tests.tiny import build

REQUESTS = [Loglikelihood(prompt, " 68 is it.") for prompt in ("What is 2 plus 3?", "Say something.", "Hi")]


@pytest.mark.parametrize("requests", [REQUESTS[:1], REQUESTS], ids=["one text", "three texts"])
def test_single_head_knockouts_score_the_same_with_and_without(organism: LanguageModel, requests) -> None:
    heads = len(organism.architecture.heads)
    assert organism.blocks is not None
    rows = [request for request in requests for _ in range(heads)]
    masks = np.concatenate([np.eye(heads, dtype=bool)] * len(requests))
    shared = organism.answer(rows, masks)
    apart = replace(organism, blocks=None).answer(rows, masks)
    for one, other in zip(shared, apart, strict=True):
        assert isinstance(one, Likelihood)
        assert isinstance(other, Likelihood)
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
    assert len({round(row.logprob, 3) for row in shared if isinstance(row, Likelihood)}) > heads / 4


def test_rows_without_neurons_of_both_kinds_of_layers_score_the_same_with_and_without(organism: LanguageModel) -> None:
    """A layer's neurons lie behind its attention, so the layers below are the same for all rows."""
    found, rng = organism.architecture, np.random.default_rng(0)
    out = []
    for row in range(24):
        site = found.neuron_sites[row % len(found.neuron_sites)]
        neurons = [site.unit(int(index)) for index in rng.choice(site.units, site.units // 2, replace=False)]
        deeper = [head for head in found.heads if head.layer > site.layer][: row % 3]
        out.append(found.knockout([*neurons, *deeper]))
    assert [found.first_layer(each) for each in out] == [site.layer for site in found.neuron_sites * 24][:24]
    rows = [request for request in REQUESTS for _ in out]
    shared = organism.answer(rows, out * len(REQUESTS))
    apart = replace(organism, blocks=None, prefixes=False).answer(rows, out * len(REQUESTS))
    for one, other in zip(shared, apart, strict=True):
        assert isinstance(one, Likelihood)
        assert isinstance(other, Likelihood)
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
    assert len({round(row.logprob, 3) for row in shared if isinstance(row, Likelihood)}) > len(out)


def test_layers_below_run_once_per_text(organism: LanguageModel) -> None:
    """The point of it: rows that leave the first block, and rows that leave the last."""
    assert organism.blocks is not None
    left: list[int] = []
    handles = [
        block.register_forward_hook(lambda module, args, output: left.append(len(output)))
        for block in (organism.blocks[0], organism.blocks[-1])
    ]
    last = organism.architecture.layers - 1
    masks = organism.architecture.masks([[head] for head in organism.architecture.heads if head.layer == last])
    organism.answer([REQUESTS[0]] * len(masks), masks)
    for handle in handles:
        handle.remove()
    assert left == [1, len(masks)]


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma2", "gpt2", "gpt_neox", "mixtral", "bloom", "opt"])
def test_sharing_is_on_only_where_it_is_exact(model_type: str) -> None:
    model, _ = build(model_type)
    architecture = from_model(model)
    blocks = shareable(model, architecture)
    if blocks is None:
        assert model_type in {"bloom"}, "sharing is lost for a common architecture"
        return
    ids = torch.randint(5, 50, (2, 9), generator=torch.Generator().manual_seed(1))
    rows = torch.tensor([1, 0, 0, 1, 1])
    with torch.inference_mode():
        plain = model(input_ids=ids[rows], use_cache=False).logits
        for first in range(len(blocks)):
            with widened(blocks, first, rows, len(ids)):
                shared = model(input_ids=ids, use_cache=False).logits
            torch.testing.assert_close(shared, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("stray", "same"), [(0.0, True), (0.9, True), (9.0, False)])
def test_single_logits_may_stray_in_half_precision_and_whole_places_may_not(stray: float, same: bool) -> None:
    """As the sums of a deep model do on a GPU: a hundredth of the spread on average, some logits by far more."""
    seed = torch.Generator().manual_seed(0)
    plain = torch.randn(2, 5, 4096, generator=seed)
    other = (plain + 0.02 * torch.randn(plain.shape, generator=seed)).to(torch.bfloat16)
    plain = plain.to(torch.bfloat16)
    other[..., ::40] += stray
    assert alike(plain, other) == same
    shifted = torch.cat([plain[:, 1:], plain[:, :1]], dim=1)
    assert alike(plain, plain) and not alike(plain, shifted) and not alike(plain, plain[:1])
    assert not alike(plain.float(), other.float()), "float32 rounds by a millionth"


def test_a_model_whose_blocks_mix_rows_is_left_alone() -> None:
    """A batch that widens in the middle would be wrong here, and the check must find that out."""
    model, _ = build("llama")
    architecture = from_model(model)
    blocks = blocks_of(model, architecture)
    assert blocks is not None
    assert shareable(model, architecture) is not None
    bias, count = torch.linspace(-1, 1, model.config.hidden_size), {"rows": 0}

    def remember(module, args, kwargs):
        count["rows"] = len(args[0])

    def added(module: Any, args: Any, output: Any) -> Any:
        return output + count["rows"] * bias

    first = blocks[0].register_forward_pre_hook(remember, with_kwargs=True)
    scale = blocks[-1].register_forward_hook(added)
    assert shareable(model, architecture) is None
    first.remove()
    scale.remove()
