"""Real samples of the benchmarks, offline, from file to interval, on the organism and on random models.

What lm-eval can run too, it runs on the same live model in its own loop: every score must be the same.

If one fails: a score of gsm8k, mmlu or another benchmark is not comparable with anybody else's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from editkit.api import load
from editkit.evidence.verdict import Criteria
from editkit.models.language_model import LanguageModel
from editkit.removal.comparison import Standings, compared, standings
from editkit.removal.trial import Trial
from editkit.tasks import sandbox
from editkit.tasks.find import find
from editkit.tasks.harness import HarnessTask
from editkit.tasks.task import Task, examples_of
from editkit.workspace import work_for
from tests import benchmark_rows, untrained
from tests.tasks import test_harness
from tests.tasks.test_execution import HUMANEVAL, MBPP, MISSING
from tests.tasks.test_harness import ARC, DATA, GSM8K, MMLU

pytestmark = [
    pytest.mark.commit,
    pytest.mark.skipif(not DATA.is_dir(), reason="needs the sample data sets in ../shared/data"),
    # Real few-shot prompts are longer than what the organism reads.
    pytest.mark.filterwarnings("ignore:Prompts that do not fit"),
]
offline = test_harness.offline

SHORT: dict[str, dict[str, Any]] = {
    "gsm8k": GSM8K | {"generation_kwargs": {"until": ["Question:"], "do_sample": False, "max_gen_toks": 24}},
    "mmlu": MMLU,
    "arc": ARC,
}
LIMIT = 5


@pytest.fixture(
    scope="module",
    params=["organism", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("gpt2", "qwen2"))],
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    if request.param == "organism":
        return load(device="cpu")
    folder = tmp_path_factory.mktemp("untrained") / request.param
    return load(str(untrained.checkpoint(folder, request.param, window=256)), device="cpu")


def measured(model: LanguageModel, task: Task, work: Path) -> Standings:
    return standings(model, Trial((task,), Criteria(), limit=LIMIT), work_for(model.source.base, "evaluate", 0, work))


def reference(model: LanguageModel, task: HarnessTask, spec: dict[str, Any], ids: list[str]) -> list[float]:
    """lm-eval's own scores of the examples ``ids``, by this model in its own loop."""
    lm_eval, models, tasks = map(import_module, ("lm_eval", "lm_eval.models.huggingface", "lm_eval.tasks"))
    places = {id: place for place, id in enumerate(example.id for example in task.examples())}
    wanted = [places[id] for id in ids]
    result = lm_eval.simple_evaluate(
        models.HFLM(pretrained=model.network, tokenizer=model.tokenizer, batch_size=1),
        tasks=[dict(spec)],
        task_manager=tasks.TaskManager(include_defaults=False),
        samples={spec["task"]: wanted},
        log_samples=True,
        bootstrap_iters=0,
    )
    assert result is not None
    samples = [row for row in result["samples"][spec["task"]] if row["filter"] == task.filter]
    scores = {row["doc_id"]: float(row[task.metric]) for row in samples}
    return [scores[place] for place in wanted]


@pytest.mark.parametrize("name", list(SHORT))
def test_scores_of_a_live_model_are_those_of_lm_eval(model: LanguageModel, name: str, tmp_path: Path) -> None:
    task = find({"lm_eval": SHORT[name], "name": name}, allow_code=True)
    assert isinstance(task, HarnessTask)
    [row] = measured(model, task, tmp_path).rows
    ids = [example.id for example in examples_of(task, "report", limit=LIMIT)]
    expected = reference(model, task, SHORT[name], ids)
    # An answer that collapsed scores 0 here, whatever lm-eval finds in it.
    assert (row.task, row.n, row.score.low < row.score.high) == (name, LIMIT, True)
    if row.collapse == 0:
        assert row.score.mean == pytest.approx(sum(expected) / LIMIT)
    else:
        assert row.score.mean <= sum(expected) / LIMIT + 1e-9
    assert name == "gsm8k" or row.collapse == 0, "a choice cannot collapse"


@pytest.mark.parametrize("name", list(benchmark_rows.ROWS))
def test_tasks_without_data_at_hand_score_as_lm_eval_does_on_rows_of_their_form(
    model: LanguageModel, name: str, tmp_path: Path
) -> None:
    spec = benchmark_rows.settings(name, tmp_path)
    task = find({"lm_eval": spec, "name": name}, allow_code=True)
    assert isinstance(task, HarnessTask)
    [row] = measured(model, task, tmp_path / "work").rows
    ids = [example.id for example in examples_of(task, "report", limit=LIMIT)]
    assert (row.task, row.n, row.collapse) == (name, LIMIT, 0)
    assert row.score.mean == pytest.approx(sum(reference(model, task, spec, ids)) / LIMIT)


def test_a_letter_benchmark_is_asked_as_text_too(model: LanguageModel, tmp_path: Path) -> None:
    spec = benchmark_rows.settings("wmdp_bio", tmp_path)
    task = find({"lm_eval": spec, "name": "wmdp_bio", "text": True}, allow_code=True)
    assert (task.name, task.format) == ("wmdp_bio-text", "choice-text")
    [row] = measured(model, task, tmp_path / "work").rows
    assert (row.n, row.collapse) == (LIMIT, 0)


@pytest.mark.skipif(bool(MISSING), reason=f"no sandbox on this machine: {MISSING}")
@pytest.mark.parametrize(("name", "rows"), [("humaneval", HUMANEVAL), ("mbpp", MBPP)])
def test_programs_of_a_live_model_run_in_the_sandbox(
    model: LanguageModel, name: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = sandbox.run
    monkeypatch.setattr(sandbox, "run", lambda program, tests: (ran.append(program), run(program, tests))[1])
    task = find({"code": name, "rows": str(rows), "max_new_tokens": 16}, allow_code=True)
    [found] = measured(model, task, tmp_path).rows
    assert (found.task, found.n, found.score.mean) == (name, LIMIT, 0)
    assert len(ran) == round(LIMIT * (1 - found.collapse)), "what is no answer is not run"


def test_pairs_are_stored_resumed_and_measured_twice(model: LanguageModel, tmp_path: Path) -> None:
    tasks = [find({"lm_eval": spec, "name": name}, allow_code=True) for name, spec in SHORT.items()]
    first = compared(lambda: model, lambda: model, Trial(tuple(tasks), Criteria(), limit=LIMIT), tmp_path)
    assert [(row.task, row.n, row.delta.mean) for row in first.rows] == [(name, LIMIT, 0) for name in SHORT]
    assert [row.task for row in first.noise] == list(SHORT)
    before = (tmp_path / "measurements.sqlite").read_bytes()
    assert compared(lambda: model, lambda: model, Trial(tuple(tasks), Criteria(), limit=LIMIT), tmp_path) == first
    assert (tmp_path / "measurements.sqlite").read_bytes() == before


BLOCKED = """
import socket
def refuse(self, *args):
    open({mark!r}, "a").write(repr(args) + "\\n")
    raise OSError("the network is off in this test")
socket.socket.connect = socket.socket.connect_ex = refuse
"""


def evaluate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``editkit evaluate`` in a process whose every connection is noted and refused."""
    (folder / "sitecustomize.py").write_text(BLOCKED.format(mark=str(folder / "dialled")))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "editkit", "evaluate", "--limit", "3", "--work", str(folder / "work"), "--json"]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2]
    )


@pytest.mark.thorough
def test_offline_means_offline(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.yaml").write_text(json.dumps({"lm_eval": SHORT["gsm8k"], "name": "gsm8k"}))
    local = evaluate(tmp_path, "--task", str(tmp_path / "gsm8k.yaml"), "--allow-code-execution")
    assert local.returncode == 0, local.stderr
    assert json.loads(local.stdout)["rows"][0]["n"] == 3
    remote = evaluate(tmp_path, "--task", "lm-eval:gsm8k")
    assert remote.returncode == 1
    assert "'gsm8k' cannot be loaded" in remote.stderr and "HF_HUB_OFFLINE=1" in remote.stderr
    assert not (tmp_path / "dialled").exists(), (tmp_path / "dialled").read_text()
