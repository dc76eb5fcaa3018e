"""A user's own prompts: every file form gives the same task, every scorer its score, every mistake its place.

If one fails: a user's own data is read as something else, without a word.
"""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from editkit.errors import EditkitError
from editkit.tasks import jsonl
from editkit.tasks.jsonl import Choices, Prompts
from editkit.tasks.scoring import SCORERS
from editkit.tasks.task import Example, Generate, Likelihood, Loglikelihood, Task, examples_of

ROWS = [{"prompt": f"What is {n} plus 2, exactly?", "answer": str(n + 2), "cluster": "sum"} for n in range(40)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    lines = [f'"{row["prompt"]}",{row["answer"]},{row["cluster"]}' for row in ROWS]
    (tmp_path / "sums.csv").write_text("\ufeffprompt,answer,cluster\r\n" + "\r\n".join(lines) + "\r\n")
    (tmp_path / "sums.txt").write_text("\n\n".join(str(row["prompt"]) for row in ROWS))
    return tmp_path


def make(folder: Path, **table: Any) -> Prompts:
    found = jsonl.task({"prompts": "sums.jsonl", **table}, where="my.yaml", folder=folder)
    assert isinstance(found, Prompts)
    return found


def score(folder: Path, answer: str, row: dict[str, Any] | None = None, **table: Any) -> tuple[float, bool]:
    found = make(folder, **table).score(Example("x", "Say it.", facts=row or {}), [answer])
    return found.value, found.valid


def test_every_file_form_gives_the_same_task(folder: Path) -> None:
    first = make(folder, scorer="exact")
    assert isinstance(first, Task)
    assert first.name == "sums" and first.chance == 0 and len(first.examples()) == 40
    assert first.examples() == make(folder, prompts="sums.csv", scorer="exact").examples()
    prompts = [example.prompt for example in make(folder, prompts="sums.txt", scorer={"contains": "5"}).examples()]
    assert prompts == [row["prompt"] for row in ROWS]
    assert first.examples()[3].cluster == "sum"


@pytest.mark.parametrize(("cluster", "name"), [(0, "0"), (7, "7"), ("sum", "sum"), ("", ""), (None, "")])
def test_a_cluster_may_be_a_number(tmp_path: Path, cluster: Any, name: str) -> None:
    lines = [json.dumps(row | {"cluster": cluster}) for row in ROWS]
    (tmp_path / "sums.jsonl").write_text("\n".join(lines))
    assert {example.cluster for example in make(tmp_path, scorer="exact").examples()} == {name}


def test_requests_follow_the_table(folder: Path) -> None:
    found = make(folder, scorer="exact", chat=False, max_new_tokens=7, name="adding", chance=0.1)
    assert (found.name, found.chance) == ("adding", 0.1)
    assert found.requests(found.examples()[0]) == (Generate("What is 0 plus 2, exactly?", 7, chat=False),)


def test_ids_do_not_move_when_prompts_are_added(folder: Path) -> None:
    before = make(folder, scorer="exact")
    more = [{"prompt": "A new first line", "answer": "1"}, *ROWS]
    (folder / "sums.jsonl").write_text("\n".join(json.dumps(row) for row in more))
    after = make(folder, scorer="exact")
    kept = {example.id for example in examples_of(before, "report")}
    assert kept <= {example.id for example in examples_of(after, "report")}


@pytest.mark.parametrize(
    ("table", "row", "answer", "value"),
    [
        ({"contains": ["ahoy", "matey"]}, {}, "Well, AHOY there", 1),
        ({"contains": ["ahoy", "matey"]}, {}, "Good morning", 0),
        ({"contains": "ahoy"}, {}, "ahoy", 1),
        ("contains", {"answer": ["Rome", "Roma"]}, "It is Roma.", 1),
        ({"word": ["arr", "ahoy there"]}, {}, "I carry it.", 0),
        ({"word": ["arr", "ahoy there"]}, {}, "(ARR!)", 1),
        ({"word": ["arr", "ahoy there"]}, {}, "Ahoy\n there", 1),
        ({"word": "f*ck"}, {}, "Oh F*CK!", 1),
        ("word", {"answer": ["Rome", "Roma"]}, "It is ROMA.", 1),
        ("word", {"answer": "Rome"}, "Romeo", 0),
        ("word", {"answer": 18}, "18 eggs", 1),
        ("word", {"answer": 18}, "180 eggs", 0),
        ({"regex": r"\barr+\b"}, {}, "Arrrr, me hearties", 1),
        ({"regex": r"\barr+\b"}, {}, "An arrow", 0),
        ({"word-list": ["damn", "bloody hell"]}, {}, "Bloody\n Hell!", 1),
        ({"word-list": ["ass", "f*ck"]}, {}, "Pass the glass", 0),
        ({"word-list": ["ass", "f*ck"]}, {}, "Oh F*CK!", 1),
        ("exact", {"answer": "Paris"}, ' **"paris".** ', 1),
        ("exact", {"answer": "Paris"}, "Paris, France", 0),
        ("exact", {"answer": ["4", "four"]}, "Four", 1),
        ("numeric", {"answer": "#### 1,234"}, "First 12 apples, so 1234.0.", 1),
        ("numeric", {"answer": -3}, "The answer is \u22123", 1),
        ("numeric", {"answer": 18}, "18 eggs, no, 19", 0),
        ("numeric", {"answer": 18}, "eighteen", 0),
        ("numeric", {"answer": 0.5}, "about .5", 1),
        ("numeric", {"answer": 0.00001}, "It is 0.00001.", 1),
        ("numeric", {"answer": 0.00001}, "1.0e\u22125", 1),
        ("numeric", {"answer": 0.00001}, "-5", 0),
        ("numeric", {"answer": 1e-12}, "0", 0),
        ("numeric", {"answer": 1e16}, "10,000,000,000,000,000", 1),
        ("numeric", {"answer": 1e16}, "16", 0),
        ("numeric", {"answer": 3}, "3e", 1),
        ("numeric", {"answer": 3}, "a width of 3em", 1),
        ("numeric", {"answer": 8}, "the hash 3e8f", 1),
    ],
)
def test_scorers(folder: Path, table: Any, row: dict[str, Any], answer: str, value: float) -> None:
    assert score(folder, answer, row, scorer=table) == (value, True)


@pytest.mark.parametrize("answer", ["", "  \n", "ahoy ahoy ahoy ahoy ahoy ahoy", "!!!!!!!!!!!!!!!!!!!!!!!!"])
def test_a_collapsed_answer_is_invalid_whatever_it_contains(folder: Path, answer: str) -> None:
    assert score(folder, answer, scorer={"regex": "ahoy|!|^"}) == (0, False)
    assert score(folder, answer, scorer={"regex": "ahoy|!|^"}, gate=False) == (1, True)


def test_a_word_list_may_be_a_file(folder: Path) -> None:
    (folder / "rude.txt").write_text("damn\n\nbloody hell\n")
    assert score(folder, "Damn it", scorer={"word-list": "rude.txt"}) == (1, True)


def test_a_hostile_pattern_is_stopped_and_named(folder: Path) -> None:
    with pytest.raises(EditkitError, match=r"my\.yaml: the pattern .* more than 1 s .* Nested repeats"):
        score(folder, "a" * 60 + "b", scorer={"regex": "(a|aa)+$"}, gate=False)


def test_python_runs_only_where_it_is_allowed(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "def half(answer, row):\n    return 0.5 if row['answer'] in answer else 0\n\n"
        "def bad(answer, row):\n    return 7\n"
    )
    table: dict[str, Any] = {"prompts": "sums.jsonl", "scorer": {"python": "mine:half"}}
    with pytest.raises(EditkitError, match="--allow-code-execution"):
        jsonl.task(table, folder=folder)
    found = jsonl.task(table, folder=folder, allow_python=True)
    assert found.score(found.examples()[1], ["It is 3"]).value == 0.5
    bad = jsonl.task(table | {"scorer": {"python": "mine:bad"}}, folder=folder, allow_python=True)
    with pytest.raises(EditkitError, match="mine:bad must return a number from 0 to 1, found 7"):
        bad.score(bad.examples()[1], ["It is 3"])
    for name, says in [("mine:gone", "no function 'gone'"), ("gone:half", "cannot be imported"), ("mine", "module:f")]:
        with pytest.raises(EditkitError, match=says):
            jsonl.task(table | {"scorer": {"python": name}}, folder=folder, allow_python=True)


def test_a_python_scorer_that_fails_is_named_with_its_line_and_the_answer(folder: Path) -> None:
    table: dict[str, Any] = {"prompts": "sums.jsonl", "scorer": {"python": "mine:half"}}
    (folder / "mine.py").write_text("def half(answer, row):\n    return 1 / 0\n")
    found = jsonl.task(table, folder=folder, allow_python=True, where="my.yaml")
    with pytest.raises(
        EditkitError, match=r"my\.yaml: .*'mine:half' failed in line 2 of mine\.py.*zero.*'It is 3 0 1 "
    ):
        found.score(found.examples()[1], ["It is 3 " + " ".join(map(str, range(100)))])
    for text, says in [("\nhalf = (", "line 2 of mine.py (SyntaxError"), ("\n\n1 / 0", "line 3 of mine.py (ZeroDiv")]:
        (folder / "mine.py").write_text(text)
        with pytest.raises(EditkitError, match=rf"mine failed in {re.escape(says)}"):
            jsonl.task(table, folder=folder, allow_python=True)


def test_choices_are_compared_per_character(folder: Path) -> None:
    rows = [{"prompt": f"Q{n}?", "choices": ["no", "certainly"], "answer": n % 2} for n in range(30)]
    (folder / "choices.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    found = jsonl.task({"prompts": "choices.jsonl", "scorer": "choice", "chat": False}, folder=folder)
    assert isinstance(found, Choices) and found.chance == 0.5 and found.format == "choice-text"
    example = found.examples()[1]
    assert found.requests(example) == (
        Loglikelihood("Q1?", " no", chat=False),
        Loglikelihood("Q1?", " certainly", chat=False),
    )
    # -2 over 2 characters is less likely than -4 over 9.
    assert found.score(example, [Likelihood(-2, 1, False), Likelihood(-4, 3, False)]).value == 1
    assert found.score(example, [Likelihood(-0.2, 1, False), Likelihood(-4, 3, False)]).value == 0
    assert not found.score(example, [Likelihood(float("nan"), 1, False), Likelihood(-4, 3, False)]).valid
    assert not found.score(example, [Likelihood(-2, 1, False), Likelihood(-9, 3, False)]).valid


def test_a_prompt_that_ends_in_a_space_gets_no_second_one(folder: Path) -> None:
    for end, space in (("", " "), (" ", ""), ("\n", "")):
        example = Example("0", f"Q?{end}", facts={"choices": ["no", "yes"], "answer": "no"})
        asked = Choices("choices", (example,), 0.5, chat=False).requests(example)
        assert [getattr(each, "continuation", "") for each in asked] == [f"{space}no", f"{space}yes"]


def test_choices_of_a_csv_are_joined_by_bars(folder: Path) -> None:
    lines = [f"Capital {n}?,Rome | Paris | Cairo,Paris" for n in range(30)]
    (folder / "choices.csv").write_text("prompt,choices,answer\n" + "\n".join(lines))
    found = jsonl.task({"prompts": "choices.csv", "scorer": "choice"}, folder=folder)
    assert found.examples()[0].facts == {"choices": ["Rome", "Paris", "Cairo"], "answer": "Paris"}
    assert found.chance == pytest.approx(1 / 3)


GOOD = '{"prompt": "a", "answer": "1"}\n'


@pytest.mark.parametrize(
    ("name", "text", "scorer", "says"),
    [
        (
            "a.jsonl",
            GOOD + '{"prompt": "b" "answer": 1}',
            "exact",
            r"a\.jsonl, line 2, column 16: not JSON .*Each line",
        ),
        ("a.jsonl", "\n\n[1]", "exact", r"line 3: expected an object"),
        ("a.jsonl", GOOD + '{"promt": "b"}', "exact", r"line 2, column 'prompt': expected text, found None"),
        ("a.jsonl", GOOD + '{"prompt": "b"}', "exact", r"line 2, column 'answer': .*compares with each row's answer"),
        ("a.jsonl", GOOD + GOOD, "exact", r"line 2, column 'prompt': the same as in line 1; remove one"),
        ("a.jsonl", '{"prompt": "b", "answer": "many"}', "numeric", r"column 'answer': expected one number"),
        ("a.jsonl", '{"prompt": "b", "answer": NaN}', "numeric", r"column 'answer': expected one number"),
        ("a.jsonl", '{"prompt": "b", "answer": []}', "contains", r"column 'answer': expected text"),
        ("a.jsonl", "[" * 100_000, "exact", r"line 1"),
        ("a.jsonl", GOOD, "exact", r"1 prompts are too few.*Give at least 30"),
        ("a.jsonl", "", "exact", r"0 prompts are too few"),
        ("a.jsonl", '{"prompt": "b", "choices": ["x"], "answer": "x"}', "choice", r"column 'choices': expected two"),
        ("a.jsonl", '{"prompt": "b", "choices": ["x", "y"], "answer": "z"}', "choice", r"column 'answer': 'z' is none"),
        ("a.jsonl", '{"prompt": "b", "choices": ["x", "y"], "answer": 2}', "choice", r"2 is none of the choices"),
        ("a.csv", "question,answer\na,b\n", "exact", r"a\.csv, line 1: no column named prompt, found 'question'"),
        ("a.csv", "x" * 900, "exact", r"line 1: no column named prompt, found 'x{199}\.{4} The first line"),
        ("a.csv", "", "exact", r"line 1: no column named prompt, found nothing"),
        ("a.csv", "prompt,answer\na,b\nHello, there,c\n", "exact", r"line 3: 3 fields under 2 columns.*double quotes"),
        ("a.csv", "prompt,answer\na\n", "exact", r"line 2: 1 fields under 2 columns"),
        ("a.csv", 'prompt,answer\n"a,b\n', "exact", "line [12]: not CSV .*Close every"),
        ("a.txt", "a\nb\n", "numeric", r"a\.txt, line 1, column 'answer'"),
        ("a.tsv", "a", "exact", r"\.jsonl, \.csv or \.txt file, found '\.tsv'"),
    ],
)
def test_mistakes_name_line_column_and_remedy(tmp_path: Path, name: str, text: str, scorer: Any, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(EditkitError, match=says):
        jsonl.task({"prompts": name, "scorer": scorer}, folder=tmp_path)


def test_a_file_that_is_not_utf8_is_named_by_place(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntw\xff\n")
    with pytest.raises(EditkitError, match=r"line 2, column 3: not UTF-8"):
        jsonl.task({"prompts": "a.txt", "scorer": {"contains": "x"}}, folder=tmp_path)
    with pytest.raises(EditkitError, match=r"gone\.txt cannot be read: No such file"):
        jsonl.task({"prompts": "gone.txt", "scorer": {"contains": "x"}}, folder=tmp_path)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"scorer": "exact", "promts": 1}, "found prompts, promts, scorer"),
        ({}, "needs the keys prompts and scorer"),
        ({"scorer": "exakt"}, "unknown scorer 'exakt'. Expected one of word, contains, regex"),
        ({"scorer": {"contains": ["a"], "regex": "b"}}, "alone or with its setting"),
        ({"scorer": {"contains": []}}, "needs texts"),
        ({"scorer": {"exact": "x"}}, "takes no setting"),
        ({"scorer": "regex"}, "needs text"),
        ({"scorer": {"regex": "("}}, "not valid: missing"),
        ({"scorer": {"word-list": "gone.txt"}}, "gone.txt cannot be read"),
        ({"scorer": "exact", "chance": 1}, "from 0 to below 1"),
        ({"scorer": "exact", "chat": "yes"}, "chat must be bool, found 'yes'"),
        ({"scorer": "exact", "max_new_tokens": 0}, "from 1 to"),
        ({"scorer": "exact", "name": "My Task"}, "lower-case"),
    ],
)
def test_a_wrong_table_is_refused(folder: Path, table: dict[str, Any], says: str) -> None:
    with pytest.raises(EditkitError, match=rf"my\.yaml: .*{re.escape(says)}"):
        make(folder, **table)


DOCS = Path(__file__).parents[2] / "docs" / "evaluation.md"


def documented() -> list[Any]:
    """Every scorer that the page on evaluation shows: the rows of its table, and those of its recipes."""
    text = DOCS.read_text("utf-8")
    rows = re.findall(r"^\| `(.+?)` \|", text.split("| scorer |", 1)[1].split("\n\n", 1)[0], flags=re.MULTILINE)
    recipes = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)]
    targets = [recipe["target"] for recipe in recipes if isinstance(recipe.get("target"), dict)]
    return [*map(yaml.safe_load, rows), *(target["scorer"] for target in targets if "scorer" in target)]


def test_every_scorer_in_the_docs_can_be_written_down_as_it_is(folder: Path) -> None:
    (folder / "rude.txt").write_text("darn")
    (folder / "my_module.py").write_text("def score(answer, row): return 1")
    kinds = []
    for given in documented():
        kinds.append(given if isinstance(given, str) else next(iter(given)))
        if kinds[-1] != "choice":
            assert jsonl.task({"prompts": "sums.jsonl", "scorer": given}, folder=folder, planning=True).examples()
    assert set(kinds) == {*SCORERS, "choice"}
    assert all(kinds.count(kind) == 2 for kind in ("refusal", "classifier", "judge")), "in the table and in a recipe"


def test_a_task_can_be_sent_to_another_process(folder: Path) -> None:
    found = make(folder, scorer={"word-list": ["ahoy"]})
    again = pickle.loads(pickle.dumps(found))
    assert again.score(again.examples()[0], ["Ahoy!"]).value == 1


DIGESTS = """
import json, sys
from pathlib import Path
from editkit.tasks import task
from editkit.tasks import jsonl
from editkit.tasks.builtin import TASKS
folder, tables = Path(sys.argv[1]), json.loads(sys.argv[2])
own = [jsonl.task({"prompts": name, "scorer": scorer}, folder=folder, allow_python=True) for name, scorer in tables]
print(*map(task.digest, [*TASKS.values(), *own]))
"""


def digests(folder: Path, tables: list[tuple[str, Any]]) -> list[str]:
    """Of the built-in tasks and of our own, as a process of its own sees them."""
    command = [sys.executable, "-c", DIGESTS, str(folder), json.dumps(tables)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_a_task_is_the_same_in_every_process_and_another_with_every_setting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured is kept under the digest: a run that another process began goes on from it."""
    choices = [{"prompt": f"Q{n}?", "choices": ["no", "yes"], "answer": n % 2} for n in range(30)]
    (folder / "choices.jsonl").write_text("\n".join(json.dumps(row) for row in choices))
    (folder / "mine.py").write_text("def half(answer, row):\n    return 0.5\n\ndef all(answer, row):\n    return 1\n")
    settings: list[Any] = ["exact", "numeric", "contains", {"contains": ["a", "b"]}, {"contains": ["a"]}]
    settings += ["word", {"word": ["a", "b"]}, {"word": ["a"]}]
    settings += [{"regex": "a"}, {"regex": "b"}, {"word-list": [*"abcdefgh"]}, {"word-list": [*"abcdefg"]}]
    (folder / "moods").mkdir()
    (folder / "moods" / "config.json").write_text('{"id2label": {"0": "calm", "1": "rude"}}')
    monkeypatch.setenv("EDITKIT_JUDGE_URL", "http://127.0.0.1:1/v1")  # nobody is asked
    judge = {"model": "m", "question": "q?"}
    settings += ["refusal", *({"classifier": {"model": "moods", "label": label}} for label in ("calm", "rude"))]
    settings += [{"judge": judge | more} for more in ({}, {"question": "p?"}, {"model": "n"}, {"unclear": 0})]
    settings += [{"python": "mine:half"}, {"python": "mine:all"}, {"python": "math:isclose"}]
    assert {next(iter(s)) if isinstance(s, dict) else s for s in settings} == set(jsonl.SCORERS)
    tables = [*(("sums.jsonl", setting) for setting in settings), ("choices.jsonl", "choice")]
    first = digests(folder, tables)
    assert digests(folder, tables) == first
    assert len(set(first)) == len(first) > len(tables)
    (folder / "mine.py").write_text("def half(answer, row):\n    return 0.25\n\ndef all(answer, row):\n    return 1\n")
    changed = [old != new for old, new in zip(first, digests(folder, tables), strict=True)][-len(tables) :]
    assert [tables[place][1] for place in np.flatnonzero(changed)] == settings[-3:-1]


def test_the_docs_name_scorers_and_tables_that_there_are() -> None:
    """Else a reader writes down a scorer that is refused."""
    docs = DOCS.read_text("utf-8")
    kinds = re.findall(r"^\| `\{?([a-z-]+)[:`]", docs.split("| scorer |", 1)[1].split("\n\n", 1)[0], flags=re.MULTILINE)
    assert sorted(kinds) == sorted((*jsonl.SCORERS, "choice"))
    tables = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", docs, flags=re.DOTALL))
    [harness] = [table for table in tables if any("lm_eval" in spec for spec in table.get("retain", ()))]
    assert harness["retain"][1]["lm_eval"] == "gsm8k"


@pytest.mark.parametrize("table", [*({kind: ["ahoy"]} for kind in ("word", "contains", "word-list")), "word", "choice"])
def test_a_rule_names_what_its_scorer_looks_for(folder: Path, table: Any) -> None:
    """Else `editkit try` does not tell a bad scorer from a bad model."""
    rows = ({"prompt": f"Say {n}.", "answer": "yes", "choices": ["yes", "no"]} for n in range(40))
    (folder / "said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = jsonl.task({"prompts": "said.jsonl", "scorer": table}, folder=folder)
    assert ("ahoy" if isinstance(table, dict) else "answer") in found.rule
