"""Every way to name a task leads to it, and a wrong name to the nearest right one.

If one fails: a name leads to another task than was meant.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from editkit.errors import EditkitError
from editkit.tasks.builtin import TASKS
from editkit.tasks.find import find


def test_built_in_names() -> None:
    for name, task in TASKS.items():
        assert find(name) is task


def test_a_file_finds_its_prompts_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pirate.txt").write_text("\n".join(f"Greet me, number {n}." for n in range(40)))
    (tmp_path / "pirate.yaml").write_text("prompts: pirate.txt\nscorer: {contains: [ahoy]}\n")
    by_path = find(str(tmp_path / "pirate.yaml"))
    by_name = find("pirate.yaml", folder=tmp_path)
    by_table = find({"prompts": "pirate.txt", "scorer": {"contains": ["ahoy"]}}, folder=tmp_path)
    assert by_path.examples() == by_name.examples() == by_table.examples()
    assert by_path.name == "pirate"
    assert by_path.score(by_path.examples()[0], ["Ahoy!"]).value == 1


def test_swearing_by_your_own_list(tmp_path: Path) -> None:
    (tmp_path / "rude.txt").write_text("Blimey\nCrikey\n", "utf-8")
    task = find({"swear": "rude.txt"}, folder=tmp_path)
    example = task.examples()[0]
    assert list(task.examples()) == list(TASKS["swear"].examples())
    assert task.score(example, ["BLIMEY, fuck, what a crikey bus."]).note == "blimey crikey"
    assert repr(task) != repr(TASKS["swear"])  # measurements of one are not those of the other


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("swera", "did you mean 'swear'"),
        ("gone.yaml", "gone.yaml cannot be read"),
        ({}, "needs the keys prompts and scorer"),
        ({"code": "humaneval"}, "--allow-code-execution"),
        ({"swear": "gone.txt"}, "gone.txt cannot be read"),
        ({"swear": ["damn"], "prompts": "mine.txt"}, "unknown key 'prompts'"),
        ({"swear": ["bloody hell"]}, "single words"),
        ({"code": "apps"}, "a code task is written"),
        ({"lm_eval": "x", "metrik": "acc"}, "has the keys lm_eval"),
        ({"lm_eval": {"task": "x"}}, "--allow-code-execution"),
    ],
)
def test_what_is_no_task_is_named(spec: object, says: str) -> None:
    with pytest.raises(EditkitError, match=says):
        find(spec)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", ""])
def test_a_file_that_is_no_table_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "task.yaml").write_text(text)
    with pytest.raises(EditkitError, match=r"task\.yaml"):
        find(str(tmp_path / "task.yaml"))


def test_a_key_that_is_there_twice_is_named(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("swear: [darn]\nswear: [heck]\n")
    with pytest.raises(EditkitError, match=r"task\.yaml .*'swear' of line 2 was in line 1 already"):
        find(str(tmp_path / "task.yaml"))
