"""Two models on the same examples: what is found is the models' difference, and what is not is known.

If one fails: two checkpoints look different where they are not, or a loss between them is not seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import editkit
from editkit.errors import EditkitError
from editkit.evidence.verdict import Criteria
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load
from editkit.removal.comparison import compared, standings
from editkit.removal.trial import Trial
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
    assert all(row.divided for row in steady.rows), "ten and twenty templates are too few to keep whole"
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
    from editkit.models.loading import load
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
