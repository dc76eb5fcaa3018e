"""The hooks' manners; that they are a zeroed weight on every architecture is the law of tests/test_every_type.py.

If one fails: a measured effect is not that of the heads that were asked for, or the model stays hooked after.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from editkit.checkpoints import architecture
from editkit.checkpoints.architecture import Architecture
from editkit.errors import EditkitError
from editkit.models.knockout import gated, knocked_out
from editkit.units import Head
from tests import tiny


def test_bfloat16_is_exact_too() -> None:
    model, found = _model("qwen3")
    model.to(torch.bfloat16)
    with knocked_out(model, found, [Head(0, 1), Head(1, 3)]):
        hooked = _logits(model, _tokens(2))
    _bake(model, found, [Head(0, 1), Head(1, 3)])
    assert torch.equal(_logits(model, _tokens(2)), hooked)


def test_each_row_generates_under_its_own_mask() -> None:
    model, found = _model("llama")
    masks = found.masks([[], [Head(0, 0)], [Head(0, 1), Head(1, 2)], [Head(1, 0)]])
    with knocked_out(model, found, masks):
        together = _continue(model, _tokens(4), new=12)
    for row in range(4):
        with knocked_out(model, found, np.repeat(masks[row : row + 1], 4, axis=0)):
            assert torch.equal(_continue(model, _tokens(4), new=12)[row], together[row])
    assert len({tuple(row.tolist()) for row in together}) > 1, "the masks make a difference"


def test_masks_change_without_attaching_again() -> None:
    model, found = _model("llama")
    tokens = _tokens(1)
    with knocked_out(model, found, []) as gates:
        assert _hooks(model) == 0
        gates.set([Head(1, 2)])
        assert _hooks(model) == 1, "only the layer with a knockout is hooked"
        switched = _logits(model, tokens)
        gates.set(np.zeros(len(found.heads), dtype=bool))
        assert _hooks(model) == 0
    with knocked_out(model, found, torch.from_numpy(found.mask([Head(1, 2)]))):
        assert torch.equal(_logits(model, tokens), switched)


def test_hooks_are_gone_after_an_error() -> None:
    model, found = _model("llama")
    with pytest.raises(ZeroDivisionError), knocked_out(model, found, [Head(0, 0), Head(1, 1)]):
        assert _hooks(model) == 2
        raise ZeroDivisionError
    assert _hooks(model) == 0


def test_nothing_is_attached_when_attaching_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model, found = _model("llama")

    def refuse(*_: object) -> None:
        raise RuntimeError("no more hooks")

    last = dict(model.named_modules())[found.sites[-1].module]
    monkeypatch.setattr(last, "register_forward_pre_hook", refuse)
    with pytest.raises(RuntimeError, match="no more hooks"), knocked_out(model, found, [Head(0, 0), Head(1, 1)]):
        pass
    assert _hooks(model) == 0


def test_a_model_of_another_architecture_is_refused() -> None:
    found = _model("gpt2")[1]
    model = _model("llama")[0]
    with pytest.raises(EditkitError, match=r"no module transformer\.h\.0\.attn\.c_proj"), knocked_out(model, found, []):
        pass


@pytest.mark.parametrize(
    "masks", [np.zeros(7, dtype=bool), np.zeros((2, 9), dtype=bool), np.zeros((1, 1, 8), dtype=bool)]
)
def test_masks_of_another_shape_are_refused(masks: np.ndarray) -> None:
    model, found = _model("llama")
    with pytest.raises(EditkitError, match="found"), knocked_out(model, found, masks):
        pass


def test_a_batch_with_another_number_of_rows_is_refused() -> None:
    model, found = _model("llama")
    with (
        pytest.raises(EditkitError, match="masks for 3 rows"),
        knocked_out(model, found, found.masks([[Head(0, 0)]] * 3)),
    ):
        _logits(model, _tokens(2))
    assert _hooks(model) == 0


def test_an_infinite_activation_is_nan_hooked_and_baked() -> None:
    model, found = _model("llama")
    projection = dict(model.named_modules())[found.sites[0].module]
    states = torch.ones(1, 1, found.sites[0].shape[1])
    states[0, 0, 0] = float("inf")
    with knocked_out(model, found, [Head(0, 0)]):
        hooked = projection(states)
    _bake(model, found, [Head(0, 0)])
    assert hooked.isnan().all() and projection(states).isnan().all()


def test_shared_blocks_are_switched_off_wherever_they_run() -> None:
    model, found = _model("zamba")
    (site,) = found.sites
    assert site.shared == (3,) and len(site.twins) == 1
    with knocked_out(model, found, [Head(site.layer, 0)]):
        assert _hooks(model) == 2


def test_gradients_of_gates_match_small_steps() -> None:
    model, found = _model("qwen2")
    model.double().requires_grad_(False)
    tokens = _tokens(2)
    gates = torch.ones(2, len(found.heads), dtype=torch.float64, requires_grad=True)

    def loss(gates: torch.Tensor) -> torch.Tensor:
        with gated(model, found, gates):
            return model(input_ids=tokens).logits[:, -1].log_softmax(-1)[:, 5].sum()

    (gradient,) = torch.autograd.grad(loss(gates), gates)
    step = torch.zeros_like(gates)
    for row, column in [(0, 0), (1, 3), (0, 7)]:
        step.zero_()[row, column] = 1e-3
        slope = (loss(gates.detach() + step) - loss(gates.detach() - step)) / 2e-3
        assert abs(slope - gradient[row, column]) < 1e-3, "norms run in float32: 1e-7 of noise over a step of 1e-3"
        assert abs(slope) > 1e-2


def test_gates_of_zero_and_one_are_a_knockout() -> None:
    model, found = _model("gemma2")
    masks = found.masks([[Head(0, 2)], [Head(1, 0), Head(1, 1)]])
    with knocked_out(model, found, masks):
        expected = _logits(model, _tokens(2))
    with gated(model, found, torch.from_numpy(~masks).float()):
        assert torch.equal(_logits(model, _tokens(2)), expected)


def test_offloaded_weights_are_hooked_too() -> None:
    from accelerate import cpu_offload

    model, found = _model("llama")
    with knocked_out(model, found, [Head(1, 1)]):
        expected = _logits(model, _tokens(1))
    cpu_offload(model, execution_device=torch.device("cpu"))
    with knocked_out(model, found, [Head(1, 1)]):
        assert torch.equal(_logits(model, _tokens(1)), expected)


def _model(model_type: str) -> tuple[Any, Architecture]:
    model, _ = tiny.build(model_type)
    return model, architecture.from_model(model)


def _tokens(rows: int) -> torch.Tensor:
    return torch.randint(3, 90, (1, 8), generator=torch.Generator().manual_seed(1)).expand(rows, -1)


@torch.inference_mode()
def _logits(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    return model(input_ids=tokens).logits


def _continue(model: Any, tokens: torch.Tensor, new: int = 6) -> torch.Tensor:
    return model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, min_new_tokens=new, do_sample=False
    )


@torch.no_grad()
def _bake(model: Any, found: Architecture, heads: list[Head]) -> None:
    """Zero the weights themselves: the reference for the hooks."""
    modules = dict(model.named_modules())
    for head in heads:
        site = found.site(head)
        modules[site.module].weight.narrow(site.axis, head.index * site.width, site.width).zero_()


def _hooks(model: Any) -> int:
    return sum(len(module._forward_pre_hooks) for module in model.modules())
