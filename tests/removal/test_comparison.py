"""Two models on the same examples: what is found is the models' difference, and what is not is known.

If one fails: two checkpoints look different where they are not, or a loss between them is not seen.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import editkit
from editkit.api import load
from editkit.errors import EditkitError
from editkit.evidence.verdict import Criteria
from editkit.models.language_model import LanguageModel
from editkit.removal.comparison import compared, hidden_in, standings
from editkit.removal.trial import Trial
from editkit.render.export import Export
from editkit.tasks.builtin import TASKS
from editkit.tasks.builtin.swear import packaged_words
from editkit.tasks.find import find
from editkit.workspace import Session, work_for
from tests.known_heads import RECIPE

pytestmark = pytest.mark.commit


def test_a_measurement_that_depends_on_its_batches_is_found_out(
    organism: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise floor asks the unedited model again, in other batches, and is measured: nothing is read back."""

    tasks = [TASKS["arithmetic"], TASKS["swear"]]
    steady = compared(
        lambda: organism, lambda: organism, Trial(tuple(tasks), Criteria(), limit=20), tmp_path / "steady"
    )
    assert [(row.task, row.n) for row in steady.noise] == [("arithmetic", 20), ("swear", 20)]
    assert not any(row.divided for row in steady.rows)
    assert all(abs(row.delta.mean) <= 0.05 for row in steady.noise)
    answer = LanguageModel.answer

    def unsteady(self: LanguageModel, requests: Any, masks: Any, *, arrived: Any = lambda places, outputs: None) -> Any:
        def told(places: list[int], outputs: list[Any]) -> None:
            arrived(places, ["I do not know."] * len(outputs) if len(requests) <= 10 else outputs)

        return answer(self, requests, masks, arrived=told)

    monkeypatch.setattr(LanguageModel, "answer", unsteady)
    found = compared(
        lambda: organism, lambda: organism, Trial(tuple(tasks), Criteria(), limit=20), tmp_path / "unsteady"
    )
    assert [row.delta.mean for row in found.rows] == [0, 0], "the same batches show nothing"
    assert all(row.delta.mean < -0.9 for row in found.noise)
    assert any("not steady enough to show anything" in reason for reason in found.verdict.reasons)


@pytest.mark.usefixtures("known_heads")
def test_the_target_is_known_by_the_name_of_its_task(organism: LanguageModel, tmp_path: Path) -> None:
    """A recipe may describe its target in a table: neither the capability nor the table is the task's name."""
    (tmp_path / "words.txt").write_text("\n".join(sorted(packaged_words())), encoding="utf-8")
    rude = RECIPE.model_dump(mode="json") | {"capability": "rude", "target": {"swear": "words.txt"}}
    recipe, session = tmp_path / "rude.yaml", Session(tmp_path)
    recipe.write_text(yaml.safe_dump(rude), encoding="utf-8")
    out = editkit.remove_capability(recipe, model=organism, out=tmp_path / "out", session=session).out
    tasks = [find({"swear": "words.txt"}, folder=tmp_path), TASKS["rhyme"]]
    found = compared(lambda: load(out), lambda: organism, Trial(tuple(tasks), Criteria(), limit=20), tmp_path)
    assert [(row.task, row.role) for row in found.rows] == [("swear", "target"), ("rhyme", "retain")]
    assert found.criteria.damage_each == 0.3
    assert found.verdict.met, found.verdict.reasons


def test_tasks_that_a_short_context_has_no_room_for_are_left_out(tmp_path: Path) -> None:
    """Else `evaluate` without --task fails on every small model, for the sake of one long task."""
    from editkit.api import load
    from tests import untrained

    model = load(untrained.checkpoint(tmp_path / "model", "gpt2", window=32), check=False)
    trial = Trial((TASKS["swear"], TASKS["facts-letter"]), Criteria(), limit=2)
    with pytest.warns(UserWarning, match="too short for them: swear"):
        rows = standings(model, trial, work_for(model.source.base, "fits", 0, tmp_path)).rows
    assert [row.task for row in rows] == ["facts-letter"]
    with pytest.raises(EditkitError, match="reads 32 tokens"):
        standings(
            model, Trial((TASKS["swear"],), Criteria(), limit=2), work_for(model.source.base, "fits", 0, tmp_path)
        )


def test_what_is_exported_is_what_was_compared_and_nothing_that_a_recipe_hides(
    organism: LanguageModel, tmp_path: Path
) -> None:
    """Of a task that is the user's own, or is not hidden, the answers are there to be read."""
    recipe = tmp_path / "hiding.yaml"
    recipe.write_text(yaml.safe_dump({"capability": "x", "target": "swear", "retain": ["facts"], "hide": ["swear"]}))
    made = editkit.evaluate(
        organism,
        base=organism,
        tasks=[str(recipe)],
        limit=6,
        session=Session(work=tmp_path / "work"),
        export=Export("lm-eval", tmp_path / "made"),
    )
    for arm, name in (("before", "organism"), ("after", "organism (2)")):
        [told] = (tmp_path / "made" / name).glob("results_*.json")
        scores = {task: row["score,none"] for task, row in json.loads(told.read_text())["results"].items()}
        assert scores == {row.task: getattr(row, arm).mean for row in made.rows}
        samples = {
            task: [json.loads(line) for line in next((tmp_path / "made" / name).glob(f"samples_{task}_*")).open()]
            for task in scores
        }
        assert all(row["filtered_resps"][0].startswith("sha256:") for row in samples["swear"])
        assert all(row["filtered_resps"][0] == row["target"] for row in samples["facts"] if row["score"] == 1)
        assert not [row for row in samples["swear"] if "curse" in json.dumps(row) or "swear" in row["doc"]["prompt"]]


def test_what_the_recipe_of_an_output_hides_stays_hidden(tmp_path: Path) -> None:
    from tests.made_evidence import evidence

    (tmp_path / "editkit").mkdir()
    told = replace(evidence().provenance, recipe_text="capability: x\ntarget: swear\nretain: [facts]\nhide: [swear]\n")
    (tmp_path / "editkit" / "provenance.json").write_text(told.to_json())
    assert hidden_in(tmp_path) == {"swear"} and hidden_in(tmp_path / "editkit") == frozenset()
