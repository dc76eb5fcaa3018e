"""Logs of Inspect: read back by its own reader, and scored by its own metrics, they say what the report says.

If one fails: the viewer shows another removal than the card.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from editkit.evidence.results import of_outcome
from editkit.render.export import Export, inspect_logs
from tests.made_evidence import measured

pytest.importorskip("inspect_ai", reason="needs the extra: pip install 'editkit[inspect]'")
pytestmark = pytest.mark.commit


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Any]:
    """By task and arm."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    folder = tmp_path_factory.mktemp("exported") / "logs"
    Export("inspect", folder).write(of_outcome(measured()))
    listed = list_eval_logs(str(folder))
    read = [read_eval_log(info) for info in listed]
    assert {(info.task, info.task_id) for info in listed} == {(log.eval.task, log.eval.task_id) for log in read}
    return {(log.eval.task, *(log.eval.tags or ())): log for log in read}


def test_a_log_is_one_task_of_one_model(logs: dict[tuple[str, ...], Any]) -> None:
    found = measured()
    assert set(logs) == {(row.task, arm) for row in found.report.rows for arm in ("base", "edited")}
    assert all(log.status == "success" and log.results.completed_samples == 100 for log in logs.values())
    assert {log.eval.model for (_, arm), log in logs.items() if arm == "base"} == {found.provenance.base.model}
    assert len({log.eval.run_id for log in logs.values()}) == 2
    assert len({log.eval.eval_set_id for log in logs.values()}) == 1
    told = logs["swear", "edited"].eval
    assert told.metadata["verdict"]["status"] == "met" and len(told.metadata["removed"]) == 5
    assert told.packages == found.provenance.versions and told.created.startswith(found.provenance.date)


def test_scores_are_those_of_the_report(logs: dict[tuple[str, ...], Any]) -> None:
    for row in measured().report.rows:
        for arm, interval in (("base", row.before), ("edited", row.after)):
            metrics = {name: metric.value for name, metric in logs[row.task, arm].results.scores[0].metrics.items()}
            assert (metrics["mean"], metrics["low"], metrics["high"]) == pytest.approx(
                (interval.mean, interval.low, interval.high)
            )


def test_inspect_computes_the_same_from_the_samples(logs: dict[tuple[str, ...], Any]) -> None:
    from inspect_ai.scorer import SampleScore, mean, stderr

    average, error = cast(Any, mean()), cast(Any, stderr(cluster="cluster"))
    for log in logs.values():
        scores = [SampleScore(score=each.scores["score"], sample_metadata=each.metadata) for each in log.samples]
        metrics = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
        assert average(scores) == pytest.approx(metrics["mean"])
        assert error(scores) == pytest.approx(metrics["stderr"])


def test_every_answer_is_there_once(logs: dict[tuple[str, ...], Any]) -> None:
    found = measured()
    for at, arm in enumerate(("base", "edited")):
        told = {
            (task, each.id): (each.output.completion, each.scores["score"].value, each.events[0].output.completion)
            for (task, of), log in logs.items()
            if of == arm
            for each in log.samples
        }
        assert told == {
            each.key: (each.answers[at], (each.before, each.after)[at].value, each.answers[at])
            for each in found.examples
        }


def test_an_answer_that_collapsed_says_so(tmp_path: Path) -> None:
    from editkit.tasks.task import Score

    found = measured()
    broken = replace(found.examples[0], after=Score(0.0, valid=False))
    _, edited = of_outcome(replace(found, examples=(broken, *found.examples[1:])))
    log = inspect_logs.eval_log(edited, edited.tasks[0], run="run", eval_set="set")
    assert log.samples is not None and log.samples[0].scores and log.samples[1].scores
    assert log.samples[0].scores["score"].explanation == inspect_logs.COLLAPSED
    assert log.samples[1].scores["score"].explanation is None


def test_the_same_evidence_gives_the_same_logs() -> None:
    """Else what was exported twice looks like two runs."""
    first, second = (
        inspect_logs.eval_log(each, each.tasks[0], run="run", eval_set="set")
        for each in (of_outcome(measured())[1], of_outcome(measured())[1])
    )
    assert first.model_dump_json() == second.model_dump_json()
