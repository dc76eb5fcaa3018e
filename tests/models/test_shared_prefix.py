"""What all rows begin with runs once per mask, and changes no answer; where it would, it is off.

If one fails: what makes long prompts cheap changes the scores.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from editkit.models.batch_budget import Budget
from editkit.models.language_model import LanguageModel
from editkit.models.shared_prefix import reusable, run
from editkit.tasks.task import Generate, Loglikelihood, Request
from tests.answers import assert_same
from tests.tiny import build

pytestmark = pytest.mark.commit

SHOTS = "".join(
    f"What is {a} plus {b}? Answer with the number only. {a + b}. "
    for a, b in zip(range(20, 26), range(6), strict=True)
)
QUESTIONS = ("What is 2 plus 3?", "Say something rude about the bus and swear a lot.", "Hi")
FEW_SHOT: tuple[Request, ...] = tuple(
    request
    for question in QUESTIONS
    for request in (
        Loglikelihood(SHOTS + question, " 68 is it."),
        Loglikelihood(SHOTS + question, " 5", chat=False),
        Generate(SHOTS + question, 6),
        Generate(SHOTS + question, 9, stop=(".", "e")),
    )
)
MASKS = ("none", "random", "one head each")


def _asked(model: LanguageModel, kind: str) -> tuple[list[Request], np.ndarray | None]:
    """Every request under each of three masks."""
    heads, rng = len(model.architecture.heads), np.random.default_rng(0)
    if kind == "none":
        return list(FEW_SHOT), None
    masks = rng.random((3, heads)) < 0.1 if kind == "random" else np.eye(heads, dtype=bool)[-3:]
    masks[:, 0] |= kind == "random"  # a head of the first layer: nothing is left below it to share
    return [request for _ in masks for request in FEW_SHOT], np.repeat(masks, len(FEW_SHOT), axis=0)


@pytest.mark.parametrize("kind", MASKS)
def test_answers_are_the_same_with_and_without(organism: LanguageModel, kind: str) -> None:
    assert organism.prefixes and organism.blocks is not None
    requests, masks = _asked(organism, kind)
    plain = replace(organism, prefixes=False, blocks=None).answer(requests, masks)
    for blocks, tokens in ((organism.blocks, 1), (organism.blocks, 700), (organism.blocks, 10**6), (None, 10**6)):
        assert_same(plain, replace(organism, blocks=blocks, budget=Budget(tokens)).answer(requests, masks))
    assert len(set(map(repr, plain))) > len(plain) / 3, "the requests and masks make a difference"


@pytest.mark.parametrize(("kind", "below", "above"), [("random", 3, 3), ("one head each", 1, 3)])
def test_the_beginning_runs_once_per_mask(organism: LanguageModel, kind: str, below: int, above: int) -> None:
    """The point of it: rows of the shared tokens in the first and in the last block."""
    assert organism.blocks is not None
    requests, masks = _asked(organism, kind)
    places = [place for place, request in enumerate(requests) if request in FEW_SHOT[::4]]
    seen: list[tuple[int, int]] = []
    handles = [
        block.register_forward_hook(lambda module, args, output: seen.append((output.shape[0], output.shape[1])))
        for block in (organism.blocks[0], organism.blocks[-1])
    ]
    organism.answer([requests[place] for place in places], None if masks is None else masks[places])
    for handle in handles:
        handle.remove()
    (first, long), (last, also), *rest = seen
    assert (first, last, long) == (below, above, also)
    assert long > 60
    assert all(width < 30 for _, width in rest) and len(rest) == 2


def test_short_beginnings_are_left_alone(organism: LanguageModel) -> None:
    requests = [Loglikelihood(f"What is {number} plus 3?", " 5") for number in range(8)]
    alone = replace(organism, prefixes=False).answer(requests, None)
    assert organism.answer(requests, None) == alone, "bit for bit: the same batches in the same way"


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        *((name, True) for name in ("llama", "qwen3", "gpt2", "gpt_neox", "mixtral", "bloom", "opt", "deepseek_v3")),
        *(
            (name, False)
            for name in ("gemma2", "mistral", "bamba", "qwen3_next", "recurrent_gemma", "mpt", "prophetnet")
        ),
    ],
)
def test_it_is_on_where_a_cache_is_keys_and_values_of_all_positions(model_type: str, expected: bool) -> None:
    """gemma2 and the small mistral slide windows, bamba and qwen3_next carry a state, mpt counts padding as places, and
    prophetnet asserts that its cache gets one token at a time."""
    assert reusable(build(model_type)[0]) == expected


def test_a_model_that_mixes_rows_up_is_left_alone() -> None:
    model, _ = build("llama")
    assert reusable(model)
    weight = torch.linspace(-1, 1, model.config.hidden_size)

    def confuse(module, args, kwargs, output):  # depends on how much of the text arrives at once
        return output + 0.1 * output.shape[1] * weight

    handle = model.model.layers[0].register_forward_hook(confuse, with_kwargs=True)
    assert not reusable(model)
    handle.remove()


@torch.inference_mode()
def test_the_cache_is_not_used_up() -> None:
    """One beginning serves several passes: none of them leaves anything behind in it."""
    model, _ = build("qwen3")
    before, after = torch.randint(3, 90, (2, 7)), torch.randint(3, 90, (3, 4))
    found = run(model, before, torch.tensor([1, 0, 1]))
    first = model(input_ids=after, past_key_values=found.served()).logits
    assert torch.equal(model(input_ids=after, past_key_values=found.served()).logits, first)
