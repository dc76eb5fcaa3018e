"""A model answers the same whatever the batch, and a row's mask touches that row alone.

If one fails: a number in a report depends on how much memory the machine had, or on what was asked beside it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from editkit.api import load
from editkit.checkpoints.architecture import from_model
from editkit.errors import EditkitError
from editkit.models.batch_budget import Budget
from editkit.models.language_model import LanguageModel
from editkit.models.padding import harmless
from editkit.tasks.task import Generate, Likelihood, Loglikelihood, Output, Request
from editkit.units import Head
from tests import tiny
from tests.answers import assert_same, random_masks

PROMPTS = (
    "What is 23 plus 45? Answer with the number only.",
    "Say something rude about the bus and swear a lot.",
    "Hi",
)
REQUESTS: tuple[Request, ...] = tuple(
    request
    for prompt in PROMPTS
    for request in (
        Generate(prompt, 8),
        Generate(prompt, 3, chat=False),
        Generate(prompt, 12, stop=(".", "e")),
        Loglikelihood(prompt, " 68"),
        Loglikelihood(prompt, "a much longer answer than that.", chat=False),
    )
)


@pytest.fixture
def model(organism: LanguageModel) -> LanguageModel:
    return organism


def test_answers_do_not_depend_on_the_batch_size(model: LanguageModel) -> None:
    masks = random_masks(model, len(REQUESTS))
    alone = [model.answer([request], masks[[place]])[0] for place, request in enumerate(REQUESTS)]
    for tokens in (1, 100, 10**6):
        assert_same(alone, replace(model, budget=Budget(tokens)).answer(REQUESTS, masks))


def test_answers_do_not_depend_on_the_order(model: LanguageModel) -> None:
    masks = random_masks(model, len(REQUESTS))
    order = np.random.default_rng(1).permutation(len(REQUESTS))
    shuffled = model.answer([REQUESTS[place] for place in order], masks[order])
    straight = model.answer(REQUESTS, masks)
    assert_same([straight[place] for place in order], shuffled)


def test_a_mask_of_zeros_is_the_untouched_model_and_another_mask_is_not(model: LanguageModel) -> None:
    zeros = np.zeros((len(REQUESTS), len(model.architecture.heads)), dtype=bool)
    assert_same(model.answer(REQUESTS, None), model.answer(REQUESTS, zeros))
    assert model.answer(REQUESTS, ~zeros) != model.answer(REQUESTS, zeros)


def test_likelihoods_agree_with_a_plain_forward_pass(model: LanguageModel) -> None:
    requests = [request for request in REQUESTS if isinstance(request, Loglikelihood)]
    for request, output in zip(requests, model.answer(requests, None), strict=True):
        context, continuation = model.encode(request)
        assert isinstance(output, Likelihood)
        assert output.tokens == len(continuation) > 0
        with torch.inference_mode():
            logits = model.network(torch.tensor([context + continuation])).logits[0].double()
        logprobs = logits.log_softmax(-1)[len(context) - 1 : -1]
        expected = logprobs.gather(1, torch.tensor(continuation)[:, None]).sum().item()
        assert output.logprob == pytest.approx(expected, abs=1e-4)
        assert output.greedy == bool((logprobs.argmax(-1) == torch.tensor(continuation)).all())


def test_generation_is_greedy_decoding_by_hand(model: LanguageModel) -> None:
    request = Generate(PROMPTS[0], 6)
    [text] = model.answer([request], None)
    ids, _ = model.encode(request)
    start = len(ids)
    with torch.inference_mode():
        for _ in range(6):
            following = int(model.network(torch.tensor([ids])).logits[0, -1].argmax())
            ids = [*ids, following]
            if following == model.tokenizer.eos_token_id:
                break
    assert text == model.tokenizer.decode(ids[start:], skip_special_tokens=True)


ASKED_FOR = {
    "repetition_penalty": 1.5,
    "min_new_tokens": 12,
    "no_repeat_ngram_size": 1,
    "return_dict_in_generate": True,
    "stop_strings": ["8", "1"],
}


def test_generation_is_greedy_whatever_the_checkpoint_asks_for(model: LanguageModel, tmp_path: Path) -> None:
    folder = tmp_path / "asking"
    shutil.copytree(model.source.directory, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | ASKED_FOR))
    asking = load(folder, dtype="float32", check=False)
    assert asking.generate(PROMPTS, max_new_tokens=16) == model.generate(PROMPTS, max_new_tokens=16)
    assert asking.network.generation_config.eos_token_id == model.tokenizer.eos_token_id


SHORT_OF_MEMORY = """
import resource
from dataclasses import replace
import torch
from editkit.errors import EditkitError
from editkit.api import load
from editkit.models.batch_budget import Budget
from editkit.tasks.task import Loglikelihood

torch.set_num_threads(1)
model = load(dtype="float32", check=False)
requests = [Loglikelihood(f"{number} " + "What is 23 plus 45? " * 16, f" {number}") for number in range(120)]
plain = replace(model, budget=Budget(500)).answer(requests[:20], None)
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
used = int(status["VmSize"].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 12 * 2**20, used + 12 * 2**20))
tight = replace(model, budget=Budget(10**7))
answers = tight.answer(requests, None)
assert max(abs(one.logprob - other.logprob) for one, other in zip(plain, answers, strict=False)) < 1e-4
print(tight.budget.tokens)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by Linux's own means")
def test_running_out_of_memory_for_real_halves_the_batch_and_loses_nothing() -> None:
    """The process may take 12 MiB more than it has; one batch of all rows takes thirty times what came before it."""
    done = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 0 < int(done.stdout) < 10**7, "memory did run out"


def test_running_out_halves_the_batch_and_answers_stay_the_same(model: LanguageModel, monkeypatch) -> None:
    whole = model.answer(REQUESTS, None)
    run, sizes = LanguageModel._run, []

    def small(self, *rest):
        sizes.append(len(rest[-1]))
        if sizes[-1] > 2:
            raise MemoryError
        return run(self, *rest)

    monkeypatch.setattr(LanguageModel, "_run", small)
    tight = replace(model, budget=Budget(10**6))
    assert_same(whole, tight.answer(REQUESTS, None))
    assert max(sizes) > 2
    assert tight.budget.tokens < 10**6


def test_a_single_request_that_does_not_fit_says_what_to_do_and_other_errors_are_not_swallowed(
    model: LanguageModel, monkeypatch
) -> None:
    def always(error: Exception):
        def run(self, batch, *rest):
            raise error

        monkeypatch.setattr(LanguageModel, "_run", run)

    always(RuntimeError("CUDA out of memory."))
    with pytest.raises(EditkitError, match=r"single request of \d+ tokens.*bfloat16"):
        model.answer(REQUESTS, None)
    always(RuntimeError("The size of tensor a must match"))
    with pytest.raises(RuntimeError, match="must match"):
        model.answer(REQUESTS, None)


def test_what_arrives_is_everything_once(model: LanguageModel) -> None:
    seen: dict[int, Output] = {}

    def arrived(places: list[int], outputs: list[Output]) -> None:
        for place, output in zip(places, outputs, strict=True):
            assert place not in seen
            seen[place] = output

    outputs = replace(model, budget=Budget(60)).answer(REQUESTS, None, arrived=arrived)
    assert [seen[place] for place in range(len(REQUESTS))] == outputs


def test_public_knocked_out_reaches_generate(model: LanguageModel) -> None:
    import editkit

    before = model.generate([PROMPTS[0]], max_new_tokens=8)
    with editkit.knocked_out(model, [Head(layer, 0) for layer in range(model.architecture.layers)]):
        assert isinstance(model.generate([PROMPTS[0]], max_new_tokens=8)[0], str)
        with editkit.knocked_out(model, model.architecture.heads):
            assert model.generate([PROMPTS[0]], max_new_tokens=8) != before
    assert model.generate([PROMPTS[0]], max_new_tokens=8) == before


@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_hooks_compose_with_dispatch(where: str, model: LanguageModel, tmp_path) -> None:
    """Layers spread by accelerate, some of them held on disk and fetched as they run: the same answers."""
    dispatch_model: Any = import_module("accelerate").dispatch_model  # its annotations forbid what its docs show
    plain, spread = model, load(device="cpu", dtype="float32", check=False)
    layers = plain.architecture.layers
    places = {f"model.layers.{layer}": where if layer % 2 else "cpu" for layer in range(layers)}
    places |= dict.fromkeys(("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"), "cpu")
    dispatch_model(spread.network, places, main_device="cpu", offload_dir=str(tmp_path), force_hooks=True)
    held = sum(weight.device.type == "meta" for weight in spread.network.parameters())
    assert (held > 0) == (where == "disk")
    masks = random_masks(plain, len(REQUESTS))
    assert_same(plain.answer(REQUESTS, masks), spread.answer(REQUESTS, masks))
    heads = np.eye(len(plain.architecture.heads), dtype=bool)[::6]
    single = [REQUESTS[3]] * len(heads)
    assert_same(plain.answer(single, heads), spread.answer(single, heads))


@pytest.mark.parametrize("model_type", ["recurrent_gemma", "bart"])
def test_answers_do_not_depend_on_the_batch_where_padding_would_be_read(organism: Any, model_type: str) -> None:
    network, _ = tiny.build(model_type)
    network.resize_token_embeddings(len(organism.tokenizer), mean_resizing=False)
    network.generation_config.max_length = None
    model = replace(
        organism,
        network=network,
        architecture=from_model(network),
        blocks=None,
        prefixes=False,
        padded=harmless(network, organism.tokenizer),
    )
    prompts = ("Hi", "What is 2 plus 3?", "Say it.", "Sort these: d a c b.")
    requests: list[Request] = [Generate(prompt, 6, chat=False) for prompt in prompts]
    requests += [Loglikelihood(prompt, text, chat=False) for prompt in prompts for text in (" yes", " It is 5.")]
    alone = [output for request in requests for output in model.answer([request], None)]
    assert_same(alone, model.answer(requests, None))
    assert alone[:4] != replace(model, padded=True).answer(requests, None)[:4], "padding makes a difference"


def test_padding_is_on_where_it_changes_nothing(organism: Any) -> None:
    assert organism.padded
    assert all(
        harmless(tiny.build(name)[0], organism.tokenizer) for name in ("llama", "gpt2", "qwen3", "gemma2", "opt")
    )


def test_a_model_prints_as_one_line(organism: LanguageModel) -> None:
    """Else the first cell of a notebook is nine kilobytes of modules."""
    assert repr(organism).startswith("<LanguageModel organism, <llama: 144 heads and ")
    assert len(repr(organism)) < 120 and "\n" not in repr(organism)
