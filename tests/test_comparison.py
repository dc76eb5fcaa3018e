"""Two models on the same examples: what is found is the models' difference, and what is not is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editkit.comparison import compared
from editkit.model import LanguageModel
from editkit.tasks import TASKS


def test_a_measurement_that_depends_on_its_batches_is_found_out(
    organism: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise floor asks the unedited model again, in other batches, and is measured: nothing is read back."""

    tasks = [TASKS["arithmetic"], TASKS["swear"]]
    steady = compared(lambda: organism, lambda: organism, tasks=tasks, limit=20, work=tmp_path / "steady")
    assert [(row.task, row.n) for row in steady.noise] == [("arithmetic", 20), ("swear", 20)]
    assert all(abs(row.delta.mean) <= 0.05 for row in steady.noise)
    answer = LanguageModel.answer

    def unsteady(self: LanguageModel, requests: Any, masks: Any, *, arrived: Any = lambda places, outputs: None) -> Any:
        def told(places: list[int], outputs: list[Any]) -> None:
            arrived(places, ["I do not know."] * len(outputs) if len(requests) <= 10 else outputs)

        return answer(self, requests, masks, arrived=told)

    monkeypatch.setattr(LanguageModel, "answer", unsteady)
    found = compared(lambda: organism, lambda: organism, tasks=tasks, limit=20, work=tmp_path / "unsteady")
    assert [row.delta.mean for row in found.rows] == [0, 0], "the same batches show nothing"
    assert all(row.delta.mean < -0.9 for row in found.noise)
    assert any("not steady enough to show anything" in reason for reason in found.verdict.reasons)
