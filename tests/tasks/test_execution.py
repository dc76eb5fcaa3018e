"""HumanEval and MBPP on their real rows: right programs pass, wrong ones fail, all of it in the sandbox.

If one fails: pass@1 counts programs that fail, or fails programs that pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editkit.errors import EditkitError
from editkit.tasks import execution, sandbox
from editkit.tasks.execution import Execution
from editkit.tasks.task import Example, Generate, Task, digest

DATA = Path(__file__).parents[3] / "shared" / "data"
HERE = pytest.mark.skipif(not DATA.is_dir(), reason="needs the sample data sets in ../shared/data")
MISSING = sandbox._missing()
BOXED = pytest.mark.skipif(bool(MISSING), reason=f"no sandbox on this machine: {MISSING}")
HUMANEVAL, MBPP = DATA / "humaneval" / "HumanEval.jsonl", DATA / "mbpp" / "test-200.jsonl"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line.strip()]


def make(kind: str, path: Path, **table: Any) -> Execution:
    return execution.task({"code": kind, "rows": str(path), **table}, allow_code_execution=True)


@HERE
@BOXED
@pytest.mark.parametrize("place", [0, 10, 32, 38, 50, 163])  # 32, 38 and 50 need the helper above the function
def test_humaneval_solutions_pass_in_every_form(place: int) -> None:
    found, row = make("humaneval", HUMANEVAL), rows(HUMANEVAL)[place]
    assert isinstance(found, Task) and len(found.examples()) == 164
    example, body = found.examples()[place], row["canonical_solution"]
    function = row["prompt"][row["prompt"].rindex(f"def {row['entry_point']}") :] + body
    for answer in (body, row["prompt"] + body, f"Here it is:\n```python\n{function}```\nIt works.", function):
        assert found.score(example, [answer]).value == 1, answer
    for answer in ("    return None\n", f"```python\n{function}\nassert False\n```", "I cannot write code today."):
        score = found.score(example, [answer])
        assert (score.value, score.valid) == (0, True)
        assert score.note
    assert not found.score(example, [""]).valid


@HERE
@BOXED
@pytest.mark.parametrize("place", [0, 1, 2, 60, 199])
def test_mbpp_solutions_pass(place: int) -> None:
    found, row = make("mbpp", MBPP), rows(MBPP)[place]
    example = found.examples()[place]
    assert found.score(example, [row["code"]]).value == 1
    assert found.score(example, [f"```python\n{row['code']}\n```"]).value == 1
    assert found.score(example, ["def f(*args):\n    return None\n"]).note.startswith(("NameError", "AssertionError"))


@HERE
@BOXED
def test_requests() -> None:
    chat, plain = make("humaneval", HUMANEVAL), make("humaneval", HUMANEVAL, chat=False, max_new_tokens=99, name="he")
    example = chat.examples()[0]
    start = rows(HUMANEVAL)[0]["prompt"]
    asked, continued = chat.requests(example)[0], plain.requests(example)[0]
    assert isinstance(asked, Generate) and asked.chat and start in asked.prompt and asked.stop == ()
    assert continued == Generate(start, 99, chat=False, stop=execution.STOPS)
    assert plain.name == "he"


@BOXED
def test_an_asked_function_may_have_the_name_of_a_builtin_and_no_other_builtin_is_the_programs(tmp_path: Path) -> None:
    row = {
        "task_id": 1,
        "text": "Add.",
        "code": "def sum(a, b):\n  return a + b",
        "test_list": ["assert sum(2, 3) == 5"],
    }
    near = row | {"task_id": 2, "code": "def f(a): ...", "test_list": ["assert abs(f(1) - 1) < 0.1"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(near))
    found = make("mbpp", tmp_path / "rows.jsonl")
    assert found.score(found.examples()[0], [row["code"]]).value == 1
    assert found.score(found.examples()[1], ["abs = lambda x: 0\ndef f(a): return 9"]).value == 0


@BOXED
def test_rows_of_the_hub_are_understood(tmp_path: Path) -> None:
    row = {"task_id": 7, "text": "Add.", "code": "", "test_list": ["assert add(A, 2) == 3"], "test_setup_code": "A = 1"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    found = make("mbpp", tmp_path / "rows.jsonl")
    assert found.score(found.examples()[0], ["def add(a, b): return a + b"]).value == 1
    assert found.examples()[0].id == "mbpp/7"


def test_without_leave_or_sandbox_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"code": "humaneval", "rows": str(tmp_path / "gone.jsonl")}
    with pytest.raises(
        EditkitError, match=r"my\.yaml: humaneval runs code that the model wrote.*--allow-code-execution"
    ):
        execution.task(table, where="my.yaml")
    monkeypatch.setattr("sys.platform", "darwin")
    sandbox._missing.cache_clear()
    with pytest.raises(EditkitError, match="runs only in a sandbox"):
        execution.task(table, allow_code_execution=True)
    example = Example("x", "", facts={"start": "", "tests": [], "setup": "", "names": []})
    task = Execution("mbpp", (example,), execution.mbpp_program, True, 9)
    with pytest.raises(EditkitError, match="Nothing was run"):
        task.score(example, ["print(1)"])
    monkeypatch.undo()
    sandbox._missing.cache_clear()


def test_a_code_task_is_the_same_in_every_process() -> None:
    example = Example("x", "", facts={"start": "", "tests": [], "setup": "", "names": []})
    same = [Execution("mbpp", (example,), program, True, 9) for program in (lambda e, t: t, lambda e, t: t)]
    assert digest(same[0]) == digest(same[1])
    assert digest(same[0]) != digest(Execution("mbpp", (example,), execution.mbpp_program, True, 10))


@BOXED
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"task_id": 1}', "line 1: not a row of this data set, KeyError"),
        ("[]", "line 1: not a row"),
        ("{", "cannot be read: .*one JSON object a line"),
        ("", "holds no rows"),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(EditkitError, match=says):
        make("mbpp", tmp_path / "rows.jsonl")


@pytest.mark.parametrize("table", [{"code": "apps"}, {}, {"code": "mbpp", "row": 1}])
def test_wrong_tables_are_named(table: dict[str, Any]) -> None:
    with pytest.raises(EditkitError, match="a code task is written"):
        execution.task(table, allow_code_execution=True)
