"""What is claimed of real models, on one: SmolLM2-135M-Instruct, on few heads and examples.

If one fails: the product works on the planted organism alone. Without the package index they are skipped.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import editkit
from editkit.api import load
from editkit.evidence.localization import Effect, Localization
from editkit.evidence.outcome import Outcome
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal.recipe import Recipe, changed
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import examples_of
from editkit.units import Head, parse
from editkit.workspace import Session
from editkit.writing.verify import verify
from tests import smollm2

pytestmark = pytest.mark.commit
RANKED = [head for head in map(parse, ("L1H0", "L13H4", "L20H8", "L1H3")) if isinstance(head, Head)]
"""Heads of addition, and two that everything needs, one of them first."""
FOUND = Localization(
    "halving", 0, 1.0, tuple(Effect(head, -0.2, -0.3, -0.1, 0.001, 0.9) for head in RANKED), (), found=True
)
RECIPE = Recipe.model_validate({
    "capability": "addition", "target": "addition", "transfer": ["addition-words"], "retain": ["plurals", "past-tense"],
    "goal": 0.5, "damage": {"each": 0.15, "mean": 0.15}, "choose": "set", "accept": "best", "max_heads": 3,
    "examples": {"choose": 16, "report": 24}, "universal_examples": 16, "random_sets": 12, "random_examples": 8,
    "audits": "none",
})  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    file = smollm2.path()
    if file is None:
        pytest.skip("the package index is out of reach")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDITKIT_CACHE", str(tmp_path_factory.mktemp("converted")))
        return load(str(file), device="cpu", dtype="bfloat16")


def score(model: LanguageModel, task: str, heads: list[str], examples: int) -> float:
    with opened(None) as store:
        ledger = Ledger(model, store)
        asked = examples_of(TASKS[task], "report", limit=examples)
        [cells] = task_scores(ledger, TASKS[task], asked, ledger.mask(map(parse, heads)))
    return float(np.mean([cell.value for cell in cells]))


def test_one_head_of_270_carries_few_shot_addition_and_hardly_anything_of_plurals(real: LanguageModel) -> None:
    assert len(real.architecture.heads) == 270
    assert score(real, "addition", [], 40) - score(real, "addition", ["L20H8"], 40) > 0.25
    assert abs(score(real, "plurals", [], 24) - score(real, "plurals", ["L20H8"], 24)) < 0.15


def test_the_real_model_answers_in_chat(real: LanguageModel) -> None:
    [answer] = real.generate(["What is the capital of France?"], max_new_tokens=10)
    assert "Paris" in answer


@pytest.fixture(scope="module")
def removed(real: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    from editkit.removal import locate

    folder = tmp_path_factory.mktemp("removed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locate, "localize", lambda *_, **__: FOUND)
        return editkit.remove_capability(RECIPE, model=real, out=folder / "out", session=Session(folder / "work"))


@pytest.mark.thorough
def test_a_set_is_chosen_without_the_heads_that_everything_needs(removed: Outcome) -> None:
    [target] = [row for row in removed.report.rows if row.role == "target"]
    assert target.before.mean - target.after.mean > 0.3
    assert not removed.edit.units & {Head(1, 0), Head(1, 3)}, "they lead the list by effect, and ruin the rest"
    assert removed.report.verdict.status in ("met", "reduced")


@pytest.mark.thorough
def test_every_other_format_is_reported_and_no_part_of_the_verdict(removed: Outcome) -> None:
    assert [row.task for row in removed.report.rows if row.role == "transfer"] == ["addition-words"]
    assert not any(reason.startswith("addition-words") for reason in removed.report.verdict.reasons)
    card = (removed.out / "README.md").read_text("utf-8")
    assert "on one prompt format" in card and "never saw" in card and "frontier.png" in card


@pytest.mark.thorough
def test_what_was_written_in_half_precision_is_exactly_the_edit(real: LanguageModel, removed: Outcome) -> None:
    verify(removed.out, real.source)
    report = json.loads((removed.out / "editkit" / "report.json").read_text("utf-8"))
    assert report["frontier"] and report["verdict"]["status"] == removed.report.verdict.status


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_last_check_holds_in_other_precisions_resumed_and_not(
    dtype: str, real: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editkit.removal import locate

    one_head = replace(FOUND, order=tuple(effect for effect in FOUND.order if effect.unit == Head(20, 8)))
    monkeypatch.setattr(locate, "localize", lambda *_, **__: one_head)
    model, session = load(str(real.source.directory), device="cpu", dtype=dtype), Session(tmp_path / "work")
    few = {"examples": {"choose": 8, "report": 20}, "random_sets": 2, "universal_examples": 4}
    recipe = changed(RECIPE, {"heads": 1, "transfer": (), "retain": ["plurals"], **few})
    first = editkit.remove_capability(recipe, model=model, out=tmp_path / "first", session=session)
    again = editkit.remove_capability(recipe, model=model, out=tmp_path / "again", session=session)
    assert again.report == first.report and again.edit == first.edit
