"""A reliability run's cost is told before a model or a data set is there.

If one fails: a user starts half a day on a GPU believing that it takes minutes, or fetches data to be told so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from editkit.errors import UsageError
from editkit.planning.reliability_cost import plan
from editkit.reliability.plan import changed, read

ROOT = Path(__file__).resolve().parents[2]
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editkit.tasks.harness.task", lambda *_, **__: pytest.fail("asked lm-eval for its data"))
    monkeypatch.setattr("editkit.hub.metadata.fetch", lambda *_, **__: pytest.fail("asked the Hub"))


@pytest.mark.parametrize("name", ["math", "sentiment"])
def test_the_papers_data_sets_have_a_plan_without_a_download(name: str, offline: None) -> None:
    found = plan(*read([str(ROOT / "recipes" / "cnl" / "hub" / f"{name}.yaml")]), model=LLAMA)
    stated = (ROOT / "docs" / "neurons.md").read_text()
    missing = [line for line in found.table().split("\n") if line.strip() and line not in stated]
    assert name != "math" or not missing, "docs/neurons.md states what the command prints: copy it"
    assert found.seconds > 3600 and found.memory < found.gpu.memory


def test_the_papers_path_costs_a_pass_for_every_layer_and_step(offline: None) -> None:
    given, folder = read([str(ROOT / "recipes" / "cnl" / "hub" / "math.yaml")])
    paper = plan(given, folder, model=LLAMA)
    cheap = plan(changed(given, {"path": "joint", "steps": 1}), folder, model=LLAMA)
    assert paper.parts["attributions"].read == 32 * 19 * cheap.parts["attributions"].read
    trained = plan(changed(given, {"seeds": 3, "rates": [1e-4, 1e-3]}), folder, model=LLAMA)
    assert trained.seconds > paper.seconds and "Does not fit into 80 GB" in trained.table()
    with pytest.raises(UsageError, match="--gpu abacus: no figures"):
        plan(given, folder, model=LLAMA, gpu="abacus")


def test_what_is_on_this_machine_is_measured(offline: None) -> None:
    found = plan(*read([str(ROOT / "recipes" / "cnl" / "organism-facts.yaml")]))
    assert 0 < found.seconds < 3600 and set(found.parts) >= {"attributions", "trained"}
