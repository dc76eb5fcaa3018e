"""The files for lm-evaluation-harness are those that it writes itself, with editkit's scores in them.

If one fails: its tables, or programs made for its files, cannot read a removal, or read another score.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editkit.evidence.results import Results, of_outcome
from editkit.render import evidence_folder
from editkit.render.export import Export

pytest.importorskip("lm_eval", reason="needs the extra: pip install 'editkit[eval]'")
pytestmark = pytest.mark.commit

CARD = Path(__file__).parents[3] / "cards" / "swear"


@pytest.fixture(scope="module")
def results() -> tuple[Results, Results]:
    return of_outcome(evidence_folder.read(CARD))


@pytest.fixture(scope="module")
def folder(results: tuple[Results, Results], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a removal from the bundled model."""
    made = tmp_path_factory.mktemp("exported") / "results"
    Export("lm-eval", made).write(results)
    return made


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What lm-eval itself writes, of a model that answers at random to a task of three rows."""
    import datasets.config

    lm_eval, loggers, dummy = map(import_module, ("lm_eval", "lm_eval.loggers", "lm_eval.models.dummy"))
    out = tmp_path_factory.mktemp("theirs")
    (out / "rows.jsonl").write_text("".join(json.dumps({"a": a, "sum": a + a}) + "\n" for a in range(3)))
    task = {
        "task": "sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(out / "rows.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{a}} and {{a}} is",
        "doc_to_target": "{{sum}}",
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", out / "cache")
        found = lm_eval.simple_evaluate(model=dummy.DummyLM(), tasks=[task], bootstrap_iters=0)
    tracker = loggers.EvaluationTracker(output_path=str(out / "results"))
    tracker.general_config_tracker.log_experiment_args("hf", "pretrained=my/model", None, None, False)
    samples = found.pop("samples")
    tracker.save_results_aggregated(found, samples)
    tracker.save_results_samples("sums", samples["sums"])
    return out / "results"


def _read(folder: Path, task: str) -> tuple[dict[str, Any], dict[str, Any]]:
    [told], [samples] = folder.rglob("results_*.json"), folder.rglob(f"samples_{task}_*.jsonl")
    return json.loads(told.read_text("utf-8")), json.loads(samples.read_text("utf-8").splitlines()[0])


@pytest.mark.thorough
def test_every_key_that_lm_eval_writes_is_there(folder: Path, theirs: Path) -> None:
    """But for what it knows of its tokenizer, and of the yaml file that a task was read from."""
    (their_results, their_sample), (results, sample) = _read(theirs, "sums"), _read(folder / "swear", "facts")
    optional = {key for key in their_results if key.startswith(("tokenizer_", "eot_", "max_length"))}
    assert {*their_results} - optional <= {*results}
    assert {*their_sample} - {"exact_match"} <= {*sample}
    for key, value in their_sample.items():
        if key != "exact_match":
            assert type(sample[key]) is type(value), key
    for key in ("results", "configs", "versions", "n-shot", "higher_is_better", "n-samples", "task_hashes", "config"):
        assert type(results[key]) is type(their_results[key]), key
    measured, [their_task] = results["results"]["facts"], their_results["results"].values()
    assert {name.replace("score,", "exact_match,").replace("score_", "exact_match_") for name in measured} >= {
        *their_task
    }
    assert set(their_results["config"]) <= set(results["config"])
    assert set(their_results["n-samples"]["sums"]) == set(results["n-samples"]["facts"])


def test_names_are_those_that_lm_eval_reads(folder: Path, results: tuple[Results, Results]) -> None:
    named = import_module("lm_eval.utils")
    for each in results:
        files = [str(path) for path in (folder / named.sanitize_model_name(each.model)).iterdir()]
        assert len(named.get_results_filenames(files)) == 1
        samples = [Path(file).name for file in named.get_sample_results_filenames(files)]
        assert {named.get_file_task_name(name) for name in samples} == {task.name for task in each.tasks}


def test_lm_eval_prints_the_scores_of_the_report(folder: Path) -> None:
    report = evidence_folder.read(CARD).report
    for arm, name in (("organism", "before"), ("swear", "after")):
        told, _ = _read(folder / arm, "swear")
        table = import_module("lm_eval.utils").make_table(told)
        lines = {
            (task, cells[4]): cells
            for task, cells in _filled([[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")])
        }
        for row in report.rows:
            interval = getattr(row, name)
            assert lines[row.task, "score"][6] == f"{interval.mean:.4f}"
            assert lines[row.task, "low"][6] == f"{interval.low:.4f}"


def _filled(lines: list[list[str]]) -> list[tuple[str, list[str]]]:
    """Each line of a table with its task, which stands in the first of its lines alone."""
    found, task = [], ""
    for cells in lines:
        if len(cells) > 6:
            task = cells[0] or task
            found.append((task, cells))
    return found


def test_the_hashes_are_those_that_lm_eval_takes(folder: Path, tmp_path: Path) -> None:
    """Else two runs on the same examples do not look the same to it."""
    told, _ = _read(folder / "swear", "facts")
    samples = {
        task: [json.loads(line) for line in next((folder / "swear").glob(f"samples_{task}_*")).open(encoding="utf-8")]
        for task in told["results"]
    }
    tracker = import_module("lm_eval.loggers").EvaluationTracker(output_path=str(tmp_path))
    tracker.general_config_tracker.log_experiment_args("hf", "pretrained=swear", None, None, False)
    tracker.save_results_aggregated({}, samples)
    [again] = tmp_path.rglob("results_*.json")
    assert json.loads(again.read_text())["task_hashes"] == told["task_hashes"]
    named = import_module("lm_eval.utils")
    for row in samples["facts"]:
        assert row["prompt_hash"] == named.hash_string(row["arguments"]["gen_args_0"]["arg_0"])
        assert row["target_hash"] == named.hash_string(row["target"])


def test_samples_are_a_data_set(folder: Path, tmp_path: Path) -> None:
    from datasets import load_dataset

    rows = {row.task: row for row in evidence_folder.read(CARD).report.rows}
    for file in (folder / "swear").glob("samples_*"):
        data = load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path))
        row = rows[file.name.split("_")[1]]
        assert len(data) == row.n and np.mean(data["score"]) == pytest.approx(row.after.mean)
