"""The causal self-check says no to models that are not what they seem; tests/test_every_type.py has those that are.

If one fails: a removal is measured on projections that do not carry the heads, and looks harmless.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from editkit.checkpoints import architecture
from editkit.checkpoints.architecture import Architecture, Unreachable
from editkit.errors import EditkitError
from editkit.models.self_check import prove
from tests import tiny


def test_a_projection_that_never_runs_is_caught() -> None:
    model, found = _model("bart")
    first, second = found.sites
    unused = replace(second, module=second.module.replace("self_attn", "encoder_attn"))
    with pytest.raises(EditkitError, match="heads of layer 1 leaves the logits"):
        prove(model, replace(found, sites=(first, unused)))


def test_a_model_that_is_not_deterministic_is_caught() -> None:
    model, found = _model("gpt2")
    model.train()
    with pytest.raises(EditkitError, match="without switching anything off"):
        prove(model, found)


def test_a_gradient_that_overflows_in_half_precision_is_no_look_ahead() -> None:
    """The gradient of all logits of a large vocabulary is beyond float16; a later token's would be 0 x inf."""
    model, found = _model("llama")
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(10_000)
    prove(model.half(), found)


def test_neurons_that_do_not_move_the_logits_are_out_of_reach_and_heads_are_not() -> None:
    model, found = _model("bart")
    first, second = found.neuron_sites
    unused = replace(second, module=second.module.replace("fc2", "encoder_attn.out_proj"))
    left = prove(model, replace(found, neuron_sites=(first, unused)))
    assert (left.heads, left.neuron_sites) == (found.heads, (first,))
    assert left.unreachable_neurons == (Unreachable((1,), "they do not move the logits"),)


def test_neurons_that_are_gone_already_are_no_objection() -> None:
    model, found = _model("llama")
    with torch.no_grad():
        dict(model.named_modules())[found.neuron_sites[0].module].weight.zero_()
    assert prove(model, found) == found


def test_a_layer_whose_heads_are_gone_already_is_no_objection() -> None:
    model, found = _model("llama")
    with torch.no_grad():
        dict(model.named_modules())[found.sites[0].module].weight.zero_()
    prove(model, found)


def test_a_type_that_nobody_listed_is_discovered_and_proves_itself() -> None:
    model = _novel()
    found = architecture.from_model(model)
    assert found.model_type == "novel" and len(found.heads) == 8
    prove(model, found)


def test_a_type_that_nobody_listed_with_unknown_names_is_refused_with_what_is_there() -> None:
    model = _novel()
    for layer in model.model.layers:
        layer.self_attn.blend = layer.self_attn.o_proj
        del layer.self_attn.o_proj
    with pytest.raises(EditkitError, match=r"this novel.*model\.layers\.N\.self_attn\.blend"):
        architecture.from_model(model)


def _novel() -> Any:
    """A Llama under a name that no table knows, as remote code would bring it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    class NovelConfig(LlamaConfig):
        model_type = "novel"

    config = NovelConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=16
    )
    return LlamaForCausalLM(config).eval()


def _model(model_type: str) -> tuple[Any, Architecture]:
    model, _ = tiny.build(model_type)
    return model, architecture.from_model(model)
