"""Everything that runs on the CPU runs on other devices: one of them, or a model spread over two.

They are simulated, and where there are GPUs the same is asked of them.

If one fails: on a GPU, or on several, a run stops or measures something else than on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import editkit
from editkit.api import load
from editkit.checkpoints.architecture import Architecture, from_model
from editkit.errors import EditkitError, OutOfMemory
from editkit.measuring.attribution import gate_prior
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.batch_budget import Budget
from editkit.models.batches import SHORTEST, shared_length
from editkit.models.knockout import knocked_out
from editkit.models.language_model import LanguageModel
from editkit.models.memory import parked
from editkit.models.self_check import prove
from editkit.models.shared_layers import blocks_of
from editkit.removal import remove
from editkit.removal.recipe import Examples
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Generate, Loglikelihood, Request, examples_of
from editkit.workspace import Session
from tests.accelerators import simulated
from tests.answers import assert_same, random_masks
from tests.known_heads import RECIPE
from tests.tiny import build

pytestmark = pytest.mark.commit
WORKED = "What is 2 plus 3? 5. " * 8
REQUESTS: tuple[Request, ...] = tuple(
    request
    for text in ("What is 23 plus 45?", "Say something rude about the bus.", "Hi")
    for request in (
        Generate(text, 3),
        Generate(text, 4, stop=(".", "e")),
        Loglikelihood(text, " 68"),
        Loglikelihood(text, " a longer answer than that.", chat=False),
    )
)


PAIRS = [("sim:0", "sim:1")]
if torch.cuda.is_available():
    PAIRS.append(("cuda:0", f"cuda:{torch.cuda.device_count() - 1}"))


@pytest.fixture(autouse=True, params=PAIRS, ids=[first.partition(":")[0] for first, _ in PAIRS])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two devices; one GPU stands for both."""
    with simulated() if request.param[0].startswith("sim") else nullcontext():
        yield request.param


@cache
def on_the_cpu() -> LanguageModel:
    """Loaded once, as the others are: a test leaves its model where and as it was."""
    return load(device="cpu", dtype="float32")


@cache
def two_devices(pair: tuple[str, str], dtype: str = "float32") -> LanguageModel:
    """The organism with its lower half on one device and its upper half on the other, as accelerate spreads it."""
    model = load(device="cpu", dtype=dtype)
    spread(model.network, model.architecture, pair)
    return model


@cache
def one_device(pair: tuple[str, str], dtype: str = "float32") -> LanguageModel:
    return load(device=pair[1], dtype=dtype)


def spread(network: torch.nn.Module, architecture: Architecture, pair: tuple[str, str]) -> None:
    """The lower half of the blocks on one device, the upper half on the other, all else on the first."""
    dispatch_model: Any = import_module("accelerate").dispatch_model  # its annotations forbid what its docs show
    blocks = blocks_of(network, architecture)
    assert blocks is not None
    names = {id(module): name for name, module in network.named_modules()}
    places = {names[id(block)]: pair[2 * place >= len(blocks)] for place, block in enumerate(blocks)}
    listed = names[id(blocks[0])].rpartition(".")[0]
    for name in filter(None, names.values()):
        if not name.startswith(listed) and not listed.startswith(f"{name}."):
            places[name] = pair[0]
    dispatch_model(network, places, main_device=pair[0], force_hooks=True)


def held_on(model: LanguageModel) -> set[str]:
    return {str(weight.device) for weight in model.network.parameters()}


def test_devices_do_not_mix_and_give_numbers_only_when_asked(pair: tuple[str, str]) -> None:
    """The simulation can fail, and where GPUs do."""
    here, there, home = (torch.ones(2, device=device) for device in (*pair, "cpu"))
    assert (here + here).cpu().tolist() == [2, 2]
    assert (here + there.to(pair[0])).sum().item() == 4
    for other in (there, home) if pair[0] != pair[1] else (home,):
        with pytest.raises(RuntimeError, match="same device"):
            torch.add(here, other)
    if pair[0] != pair[1]:
        with pytest.raises(RuntimeError, match="same device"):
            here[torch.tensor([0], device=pair[1])]
    assert here[torch.tensor([0])].device == here.device
    with pytest.raises((RuntimeError, TypeError), match="numpy"):
        here.numpy()


@pytest.mark.parametrize("devices", [one_device, two_devices])
def test_a_model_answers_as_it_does_on_the_cpu(devices: Any, pair: tuple[str, str]) -> None:
    plain, other = on_the_cpu(), devices(pair)
    assert held_on(other) == ({pair[1]} if devices is one_device else set(pair))
    assert other.blocks is not None and other.prefixes, "what was proved at load on the CPU is proved here too"
    assert_same(plain.answer(REQUESTS[:4], None), other.answer(REQUESTS[:4], None))
    masks = random_masks(plain, len(REQUESTS))
    assert_same(plain.answer(REQUESTS, masks), other.answer(REQUESTS, masks))
    asked = [f"{WORKED} What is 4 plus {number}?" for number in range(4)]
    behind = [request for text in asked for request in (Generate(text, 3), Loglikelihood(text, " 68"))]
    assert shared_length([plain.encode(request)[0] for request in behind]) > SHORTEST
    few = masks[[1, 1, 2, 2] * (len(behind) // 4)]
    assert_same(plain.answer(behind, few), other.answer(behind, few))
    heads = np.repeat(np.eye(len(plain.architecture.heads), dtype=bool)[::16], 2, axis=0)
    sweep = [Loglikelihood(text, " 68") for text in ("What is 23 plus 45?", "Hi")] * (len(heads) // 2)
    assert_same(plain.answer(sweep, heads), other.answer(sweep, heads))


@pytest.mark.parametrize(
    "model_type", ["llama", "gpt2", "gemma2", "bloom", "falcon", "mixtral", "deepseek_v3", "qwen3_next", "jamba"]
)
def test_masks_meet_the_heads_wherever_they_lie(model_type: str, pair: tuple[str, str]) -> None:
    network = build(model_type)[0]
    architecture = from_model(network)
    ids = torch.randint(3, 20, (3, 9), generator=torch.Generator().manual_seed(0))
    masks = np.zeros((3, len(architecture.heads)), dtype=bool)
    masks[[0, 1, 2], [0, -1, len(architecture.heads) // 2]] = True

    def logits(device: str) -> torch.Tensor:
        with torch.no_grad(), knocked_out(network, architecture, masks):
            return network(input_ids=ids.to(device), use_cache=False).logits.cpu()

    expected = logits("cpu")
    spread(network, architecture, pair)
    assert {str(weight.device) for weight in network.parameters()} == set(pair)
    torch.testing.assert_close(logits(pair[0]), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("device", "change", "passes"), [("cpu", 1e-6, False), ("", 1e-6, True), ("", 0.1, False)])
def test_rounding_is_an_objection_to_the_hooks_on_the_cpu_alone(
    device: str, change: float, passes: bool, pair: tuple[str, str]
) -> None:
    """Each forward pass gives a little more than the one before, as other kernels would."""
    network: Any = build("llama")[0].to(device or pair[1])
    calls = iter(range(1000))
    network.lm_head.register_forward_hook(lambda module, args, output: output * (1 + change * next(calls)))
    with nullcontext() if passes else pytest.raises(EditkitError, match="without switching anything off"):
        prove(network, from_model(network))


def test_bfloat16_is_the_same_on_one_device_and_on_two(pair: tuple[str, str]) -> None:
    one, two = one_device(pair, "bfloat16"), two_devices(pair, "bfloat16")
    masks = random_masks(one, len(REQUESTS))
    assert one.answer(REQUESTS, masks) == two.answer(REQUESTS, masks)


def test_gradients_are_the_same_as_on_the_cpu(pair: tuple[str, str]) -> None:
    found = []
    task = TASKS["swear"]
    for model in (on_the_cpu(), load(device=pair[0], dtype="float32")):
        with opened(None) as store:
            measure = likelihood_measure(Ledger(model, store), task, examples_of(task, "locate", limit=6))
            prior = gate_prior(measure, steps=2, limit=6)
            assert prior is not None
            effects, _ = prior()
            assert effects is not None
            found.append(effects)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-5)


def test_a_parked_model_has_left_its_device_and_comes_back(pair: tuple[str, str]) -> None:
    one, two = one_device(pair), two_devices(pair)
    before = [model.answer(REQUESTS[:4], None) for model in (one, two)]
    with parked(one.network), parked(two.network):
        assert held_on(one) == held_on(two) == {"cpu"}
    assert held_on(one) == {pair[1]} and held_on(two) == set(pair)
    assert [model.answer(REQUESTS[:4], None) for model in (one, two)] == before


def test_where_main_memory_has_no_room_a_model_is_not_parked_and_a_removal_not_begun(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = one_device(pair)
    size = model.network.get_memory_footprint()
    assert 5e6 < size < 7e6
    monkeypatch.setattr("editkit.models.memory.available", lambda: size - 1)
    with parked(model.network):
        assert held_on(model) == {pair[1]}
    if pair[0].startswith("sim"):  # a real one may have room for both
        with pytest.raises(OutOfMemory, match=r"that takes 0\.0 GB, and 0\.0 GB are free there"):
            editkit.remove_capability("swear", model=model, out=tmp_path / "out", session=Session(tmp_path / "work"))
    monkeypatch.setattr("editkit.models.memory.available", lambda: size)
    with parked(model.network):
        assert held_on(model) == {"cpu"}


def test_a_model_that_lies_in_main_memory_in_part_is_not_parked(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = two_devices(pair)
    monkeypatch.setitem(model.network.hf_device_map, "lm_head", "cpu")
    with parked(model.network):
        assert held_on(model) == set(pair)
    assert model.placement.device == "cpu", "another model is put where the first was asked to be"


@pytest.mark.thorough
@pytest.mark.parametrize("devices", [one_device, two_devices])
@pytest.mark.usefixtures("known_heads")
def test_a_removal_reopens_its_checkpoint_where_the_model_was_and_has_the_devices_to_itself(
    devices: Any, pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it but the search, whose answers and gradients are above."""
    model, load_source, seen = replace(devices(pair), budget=Budget(4_000)), remove.load_source, []
    few = Examples(choose=6, report=16)
    recipe = RECIPE.model_copy(update={"examples": few, "random_sets": 1, "random_examples": 2})

    def reopened(source: Any, *placement: Any, **options: Any) -> LanguageModel:
        shipped = load_source(source, *placement, **options)
        seen.append((shipped, held_on(model), held_on(shipped)))
        return shipped

    monkeypatch.setattr(remove, "load_source", reopened)
    outcome = editkit.remove_capability(recipe, model=model, out=tmp_path / "out", session=Session(tmp_path / "work"))
    assert outcome.report.verdict.met
    [(shipped, left_on, reopened_on)] = seen
    assert left_on == {"cpu"} and reopened_on == held_on(model)
    assert reopened_on == ({pair[1]} if devices is one_device else set(pair))
    assert shipped.budget.tokens <= 4_000, "in batches as the model's own"
