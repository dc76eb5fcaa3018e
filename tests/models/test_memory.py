"""What does not fit is halved until it does, whatever it is; and of two models one at a time has the memory.

If one fails: a run of hours ends in "out of memory" on a machine that has enough, or loses rows where it ran out.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from editkit.api import load
from editkit.errors import OutOfMemory
from editkit.evidence.verdict import Criteria
from editkit.localizers.adaptive import auto
from editkit.measuring.attribution import gate_prior
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure, likelihood_measure
from editkit.measuring.store import opened
from editkit.models.batch_budget import Budget, first_batch, within_memory
from editkit.models.language_model import LanguageModel
from editkit.removal import comparison, study
from editkit.removal.find_heads import control_measures
from editkit.removal.study_cells import Laboratory
from editkit.removal.trial import Trial
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import examples_of

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("most", [1, 2, 5, 100])
def test_every_row_runs_once_and_in_order_in_batches_that_fit(
    rows: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(part: list[int]) -> list[int]:
        if len(part) > most:
            raise FULL
        return [10 * row for row in part]

    monkeypatch.setattr("editkit.models.batch_budget.free", lambda: None)
    budget = Budget(1000)
    found = list(within_memory(range(rows), run, budget, single=str))
    assert [row for part, _ in found for row in part] == list(range(rows))
    assert all(answers == [10 * row for row in part] for part, answers in found)
    assert max(len(part) for part, _ in found) <= most
    assert (budget.tokens < 1000) == (rows > most)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."),
        RuntimeError(
            "MPS backend out of memory (MPS allocated: 8.98 GB, max allowed: 9.07 GB). Tried to allocate 100 MB"
        ),
        RuntimeError("Invalid buffer size: 12.50 GiB"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        MemoryError(),
    ],
    ids=["cuda", "cpu", "mps", "mps-buffer", "cuda-driver", "cublas", "python"],
)
def test_every_way_of_running_out_halves_the_batch(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editkit.models.batch_budget.free", lambda: None)

    def run(part: list[int]) -> int:
        if len(part) > 2:
            raise error
        return len(part)

    budget = Budget(1000)
    assert [answer for _, answer in within_memory(range(4), run, budget, single=str)] == [2, 2]
    assert budget.tokens == 500


TOKEN = 4 * (128_000 + 32 * 2048)


@pytest.mark.parametrize(
    ("free", "group", "fitting"),
    [
        (10**12, None, 10**12 // 2 // TOKEN),
        (8 * 10**8, None, 4 * 10**8 // TOKEN),
        (10**12, ("8000000000", "4000000000"), 2 * 10**9 // TOKEN),
        (10**12, ("max", "4000000000"), 10**12 // 2 // TOKEN),
        (10**6, None, 1),
        (10**12, ("1000", "2000"), 1),
    ],
)
def test_the_first_batch_on_a_cpu_fits_in_half_of_what_is_free_and_in_the_cache(
    free: int, group: tuple[str, str] | None, fitting: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in zip(("memory.max", "memory.current"), group or (), strict=False):
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr("editkit.models.memory._GROUP", tmp_path)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free))
    embeddings = torch.nn.Embedding(128_000, 2048, device="meta")
    network = SimpleNamespace(device=torch.device("cpu"), get_input_embeddings=lambda: embeddings)
    assert first_batch(network, 16_384).tokens == min(fitting, 2**21 // 2048)
    network.device = torch.device("mps")  # whose memory is the machine's, and whose tensors have a largest size
    assert first_batch(network, 32_768).tokens == min(fitting, (1 << 32) // (4 * 128_000))
    network.device = torch.device("cuda")
    assert first_batch(network, 16_384).tokens == 16_384


def test_a_row_that_does_not_fit_alone_is_named() -> None:
    def run(part: list[str]) -> None:
        raise FULL

    with pytest.raises(OutOfMemory, match=r"on the row b\. Use a device with more memory"):
        list(within_memory(["b"], run, Budget(1000), single=lambda row: f"the row {row}"))


@pytest.fixture
def measure(organism: LanguageModel) -> Any:
    task = TASKS["swear"]
    with opened(None) as store:
        yield likelihood_measure(Ledger(organism, store), task, examples_of(task, "locate", limit=8))


def limited(most: int, real: Callable[..., Any]) -> Callable[..., Any]:
    def grad(outputs: torch.Tensor, inputs: list[torch.Tensor]) -> Any:
        if len(inputs[0]) > most:
            raise FULL
        return real(outputs, inputs)

    return grad


@pytest.mark.commit
def test_gradients_adapt_to_the_memory(measure: LikelihoodMeasure, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward pass needs more memory than any other, and a large model's first batch is sure to be too large."""
    found, real = [], torch.autograd.grad
    for most in (100, 1):
        monkeypatch.setattr(torch.autograd, "grad", limited(most, real))
        prior = gate_prior(measure, steps=2)
        assert prior is not None
        effects, _ = prior()
        assert effects is not None
        found.append(effects)
    np.testing.assert_allclose(*found, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("error", [FULL, RuntimeError("derivative for aten::fused is not implemented")])
def test_a_search_goes_on_without_gradients(
    measure: LikelihoodMeasure, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grad(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(torch.autograd, "grad", grad)
    columns = np.arange(measure.units)
    with pytest.warns(UserWarning, match="No gradients, so the search goes on without them: "):
        ranking = auto(measure, columns, np.random.default_rng(0), prior=gate_prior(measure))
    alone = auto(measure, columns, np.random.default_rng(0))
    assert ranking.diagnostics["prior"] is False
    assert ranking.columns.tolist() == alone.columns.tolist()
    assert ranking.evaluations == alone.evaluations + 3.0, "a backward pass over all examples was tried"


class Watched:
    """Loads models, and is told whether the one before it is gone."""

    def __init__(self) -> None:
        self.last: Callable[[], LanguageModel | None] = lambda: None
        self.loads = 0

    def __call__(self, *_: Any, **__: Any) -> LanguageModel:
        gc.collect()
        assert self.last() is None, "two models at once"
        model = load(check=False)
        self.last, self.loads = weakref.ref(model), self.loads + 1
        return model


@pytest.mark.commit
def test_models_that_are_compared_are_loaded_one_after_the_other(tmp_path: Path) -> None:
    model = Watched()
    report = comparison.compared(model, model, Trial((TASKS["swear"],), Criteria(), limit=4), tmp_path)
    assert [row.delta.mean for row in report.rows] == [0]
    first, second = comparison.answers_to(model, model, "What is 2 plus 3?", max_new_tokens=4)
    assert first == second and model.loads == 4


@pytest.mark.commit
def test_a_study_lets_a_model_go_before_it_loads_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Watched()
    monkeypatch.setattr("editkit.removal.study_cells.load_source", model)
    monkeypatch.setattr("editkit.removal.study_cells.source.resolve", lambda name, **_: name)
    bench = Laboratory(tmp_path)
    for name in (study.BUNDLED, study.BUNDLED, "other", "other", study.BUNDLED):
        bench._live(name)
    assert model.loads == 3


def test_a_task_that_does_not_fit_is_not_taken_for_one_that_the_model_cannot_do(
    organism: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def likelihood(*_: Any, **__: Any) -> Any:
        raise OutOfMemory("Out of memory on a single request.")

    monkeypatch.setattr("editkit.removal.find_heads.likelihood_measure", likelihood)
    with opened(None) as store, pytest.raises(OutOfMemory):
        control_measures(Ledger(organism, store), [TASKS["facts"]], 4)
