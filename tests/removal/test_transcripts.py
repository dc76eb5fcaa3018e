"""What of the answers is published.

If one fails: the answers of a sensitive task are readable in what goes to the Hub, or those of others are lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from editkit.errors import EditkitError
from editkit.evidence.examples import sha256
from editkit.measuring.store import Cell
from editkit.removal.capability import capability
from editkit.removal.transcripts import examples, transcripts
from editkit.removal.trial import Answers, Sheet
from editkit.tasks.builtin import TASKS
from editkit.tasks.find import find
from editkit.tasks.task import Task
from tests.known_heads import RECIPE


def sheet(task: Task, text: str) -> Sheet:
    asked = tuple(task.examples()[:2])
    return Sheet(task, asked, tuple(Cell(1.0, output=text) for _ in asked))


def test_hidden_answers_leave_hashes_and_no_transcript(tmp_path: Path) -> None:
    """Else a task that its owner hides is readable on the card, or in the examples."""
    (tmp_path / "rude.txt").write_text("twit\n")
    own = find({"swear": "rude.txt"}, folder=tmp_path)
    for task, hidden, readable in [(TASKS["swear"], (), True), (TASKS["swear"], ("swear",), False), (own, (), False)]:
        before, after = (sheet(task, text) for text in ("Damn.\n", "Hello."))
        found = examples(Answers((before,), (after,), (before,)), hidden=hidden)
        texts = ("Damn.", "Hello.") if readable else (sha256("Damn."), sha256("Hello."))
        assert [each.answers for each in found] == [texts] * 2
        assert {each.hidden for each in found} == {not readable}
    assert not transcripts((before,), (after,), hidden=("swear",)) and transcripts((before,), (after,))


def test_what_is_hidden_must_be_a_task_of_the_recipe() -> None:
    """Else a slip of the pen publishes what was to be hidden."""
    with pytest.raises(EditkitError, match="hides 'swaer', which is none of its tasks"):
        capability(RECIPE.model_copy(update={"hide": ("swaer",)}))
    assert capability(RECIPE.model_copy(update={"hide": ("swear",)})).recipe.hide == ("swear",)
