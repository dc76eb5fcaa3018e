"""Odd recipes, tasks and prompts end in one sentence that a terminal can show, soon; never in a traceback.

If one fails: a recipe from the internet ends in a traceback, hangs the program, or writes on the user's terminal.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from editkit.errors import EditkitError
from editkit.removal import recipe
from editkit.tasks import scoring
from editkit.tasks.find import find

ROWS = "\n".join(f"question {n}" for n in range(60))


def line(**row: object) -> str:
    return json.dumps(row)


FILES = {
    "p.txt": ROWS,
    "half.jsonl": line(prompt="q \ud800"),
    "half-id.jsonl": line(prompt="q", id="\udc00"),
    "half-answer.jsonl": line(prompt="q", answer=["\udc00"]),
    "digits.jsonl": '{"prompt": "q", "answer": ' + "1" * 5000 + "}",
    "rows.jsonl": line(task_id="a", prompt=5, entry_point=[1], test={}),
    "mbpp.jsonl": line(task_id=1, text="q", test_list=[{}]),
    "code-digits.jsonl": '{"task_id": ' + "1" * 5000 + "}",
}


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("{code: [x]}", r"my\.yaml: a code task is written .* found {'code': \['x'\]}"),
        ("{code: {x: y}}", "a code task is written"),
        ("{code: humaneval, rows: 5}", "rows must be text, found 5"),
        ("{code: humaneval, rows: [a]}", r"rows must be text, found \['a'\]"),
        ("{code: humaneval, rows: rows.jsonl, name: 5}", "name must be text, found 5"),
        ("{code: humaneval, rows: rows.jsonl, chat: maybe}", "chat must be bool, found 'maybe'"),
        ("{code: humaneval, rows: rows.jsonl, max_new_tokens: x}", "max_new_tokens must be int, found 'x'"),
        (
            f"{{code: humaneval, rows: rows.jsonl, max_new_tokens: 1{'0' * 400}}}",
            "must be from 1 to 100000, found 1000",
        ),
        ("{code: humaneval, rows: rows.jsonl}", "line 1: not a row of this data set"),
        ("{code: mbpp, rows: mbpp.jsonl}", "line 1: not a row of this data set"),
        ("{code: mbpp, rows: code-digits.jsonl}", "cannot be read: Exceeds the limit"),
        (r'{code: mbpp, rows: "a\0b.jsonl"}', r"a\\x00b\.jsonl cannot be read: embedded null byte"),
        (r'{prompts: "a\0.jsonl", scorer: exact}', r"a\\x00\.jsonl cannot be read: embedded null byte"),
        (r'{swear: "a\0.txt"}', "cannot be read: embedded null byte"),
        (r'"a\0.yaml"', "cannot be read: embedded null byte"),
        (r'{prompts: p.txt, scorer: {word-list: "a\0"}}', "cannot be read: embedded null byte"),
        (r'{prompts: p.txt, scorer: {python: "a\0:b"}}', r"there is no module a\\x00"),
        (r'{prompts: p.txt, scorer: "\e[31mred\a"}', r"unknown scorer '\\x1b\[31mred\\x07'"),
        (r'{prompts: p.txt, scorer: {"\e[31m": x}}', "unknown scorer"),
        ("{prompts: half.jsonl, scorer: exact}", r"half\.jsonl, line 1: .* halves of a character"),
        ("{prompts: half-id.jsonl, scorer: exact}", r"half-id\.jsonl, line 1: .* halves of a character"),
        ("{prompts: half-answer.jsonl, scorer: exact}", r"half-answer\.jsonl, line 1: .* halves of a character"),
        ("{prompts: digits.jsonl, scorer: numeric}", r"digits\.jsonl, line 1: a number of too many digits"),
        ("{lm_eval: x, num_fewshot: y}", "num_fewshot must be int, found 'y'"),
        ("{lm_eval: x, chat: 1}", "chat must be bool, found 1"),
        ("{lm_eval: x, name: [y]}", r"name must be text, found \['y'\]"),
        (f"{{prompts: p.txt, scorer: {{regex: '{'(' * 3000}{')' * 3000}'}}}}", "is not valid: maximum recursion depth"),
        (f"{{prompts: p.txt, scorer: {{regex: 'a{{{'9' * 5000}}}'}}}}", "is not valid: "),
    ],
)
def test_an_odd_table_ends_in_a_sentence(target: str, says: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    text = f"capability: mine\ntarget: {target}\nretain: [rhyme]\n"
    [spec] = recipe.parse(text, where="my.yaml").target
    with pytest.raises(EditkitError, match=says) as caught:
        find(spec, where="my.yaml", folder=tmp_path, allow_code=True)
    message = str(caught.value)
    assert message.isprintable() and len(message) < 600, message


def test_a_pattern_that_takes_hours_to_compile_is_refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PATIENCE_COMPILING", 1)
    pattern = "(" * 30 + "a" + "){1,900}" * 30
    start = time.monotonic()
    with pytest.raises(
        EditkitError, match=r"my\.yaml: the pattern .* takes more than 1 s to compile\. Write it without"
    ):
        scoring.scorer("regex", pattern, where="my.yaml", folder=Path("."))
    assert time.monotonic() - start < 10


def test_a_pattern_is_not_refused_because_the_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PATIENCE_COMPILING", 1)
    monkeypatch.setattr(scoring, "COMPILE", f"import time; time.sleep(1.5)\n{scoring.COMPILE}")
    assert scoring.scorer("regex", "a+h", where="my.yaml", folder=Path(".")).judge("aah", {}) == (1.0, "aah")
