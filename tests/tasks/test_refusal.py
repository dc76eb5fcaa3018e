"""Refusals are told from answers, as often as the docs say, by the patterns and through a task.

If one fails: a user's refusal rate is another one than the docs promise, or text that refuses nothing counts as
refusal. ``refusals.jsonl`` was labelled by hand. The patterns were written with its ``tuned`` part in view; the
``held out`` part was written afterwards, and nothing was changed for it.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from editkit.errors import EditkitError
from editkit.tasks import jsonl
from editkit.tasks.builtin import TASKS
from editkit.tasks.refusal import LONGEST, OPENING, refusal
from editkit.tasks.task import Example

HERE = Path(__file__).parent
LABELLED = [json.loads(line) for line in (HERE / "refusals.jsonl").read_text("utf-8").splitlines()]
DOCS = (HERE.parents[1] / "docs" / "evaluation.md").read_text("utf-8")


def errors(part: str) -> tuple[int, int, int, int]:
    """(missed, refusals, taken for refusals, others)."""
    rows = [row for row in LABELLED if row["part"] == part]
    refused = [bool(refusal(row["answer"])) for row in rows if row["refuses"]]
    others = [bool(refusal(row["answer"])) for row in rows if not row["refuses"]]
    return refused.count(False), len(refused), others.count(True), len(others)


@pytest.mark.parametrize("part", ["tuned", "held out"])
def test_the_error_rates_are_those_of_the_docs(part: str) -> None:
    missed, refusals, taken, others = errors(part)
    assert refusals >= 20 and others >= 20
    assert re.search(rf"\| {part} \| {missed} of {refusals} \| {taken} of {others} \|", DOCS), errors(part)


def test_texts_of_the_built_in_tasks_refuse_nothing() -> None:
    """Prompts and texts written long before the patterns, for other ends."""
    texts = [example.prompt for name in ("prose", "story", "swear", "rhyme") for example in TASKS[name].examples()]
    assert len(texts) > 500
    assert [text for text in texts if refusal(text)] == []


@pytest.mark.parametrize(
    "form",
    ["I can't help with that.", "I CAN’T HELP WITH THAT.", "**I can`t** help\nwith that.", "  > _I cannot_  help you."],
)
def test_spelling_and_markup_do_not_hide_a_refusal(form: str) -> None:
    assert refusal(form)


def test_a_refusal_counts_where_an_answer_begins_and_a_plain_one_anywhere() -> None:
    before = "The tale begins by the sea. " * (OPENING // 20)
    assert refusal("I refuse to go, he said.") and not refusal(f"{before}I refuse to go, he said.")
    assert refusal(f"{before}I'm afraid that I can't help you with that.")


@pytest.mark.parametrize(
    "text", ["i " * 50_000, "sorry " * 20_000, "as an ai " * 20_000, "i won't " * 20_000, "", "\ud800"]
)
def test_hostile_answers_take_no_time(text: str) -> None:
    started = time.monotonic()
    refusal(text)
    assert time.monotonic() - started < 1


def test_what_lies_beyond_the_longest_answer_is_not_read() -> None:
    assert not refusal("x" * LONGEST + " I can't help with that.")


def test_a_task_scores_refusals(tmp_path: Path) -> None:
    (tmp_path / "asked.txt").write_text("\n".join(f"Question {n}?" for n in range(60)))
    made = jsonl.task({"prompts": "asked.txt", "scorer": "refusal"}, folder=tmp_path)
    said = {"I'm sorry, but I can't help with that.": 1.0, "Sure: take the left road.": 0.0}
    assert {text: made.score(Example("x", "Say it."), [text]).value for text in said} == said
    assert "refuses" in made.rule
    with pytest.raises(EditkitError, match=r"refusal takes no setting, found \['no'\]; write `refusal`"):
        jsonl.task({"prompts": "asked.txt", "scorer": {"refusal": ["no"]}}, folder=tmp_path)
