"""Nothing that is foreign reaches a terminal as anything but text: names, answers, the words of templates.

If one fails: a downloaded checkpoint moves the cursor, hides text or writes on the user's terminal.
"""

from __future__ import annotations

import io
import json
import sys

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from editkit.cli import streams
from editkit.errors import EditkitError, IntegrityError
from editkit.printable import is_printable, printable, visible

BAD = "a\x1b[2J\x07\x9b31m\u202eb\r\ud800c"
GOOD = r"a\x1b[2J\x07\x9b31m\x202eb\x0d\xd800c"


def test_what_a_terminal_obeys_is_spelled_out_and_the_rest_stays() -> None:
    assert visible(BAD) == GOOD == printable(BAD)
    honest = "naïve 日本語\n\tرفتن می\u200cخواهم 👩\u200d💻 −1"
    assert visible(honest) == honest


@given(st.text())
def test_printable_text_is_one_line(text: str) -> None:
    assert is_printable(printable(text)) and "\n" not in printable(text)
    assert visible(visible(text)) == visible(text)


@pytest.mark.parametrize("kind", [EditkitError, IntegrityError])
def test_every_message_passes(kind: type[EditkitError]) -> None:
    assert str(kind(f"The scorer {BAD} is odd.\nMend it.")) == f"The scorer {GOOD} is odd.\nMend it."


@pytest.mark.parametrize("terminal", [True, False])
def test_every_table_passes(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(streams, "console", lambda _: Console(file=out, force_terminal=terminal, width=80))
    table = Table("model")
    table.add_row(Text(BAD.replace("\r", "").replace("\x07", ""), style="bold"))
    streams.show(table)
    said = out.getvalue()
    assert r"a\x1b[2J\x9b31m\x202eb\xd800c" in said
    assert ("\x1b[1m" in said) == terminal, "our own styles are obeyed"


def test_every_sentence_and_object_passes(capsys: pytest.CaptureFixture[str]) -> None:
    streams.say(BAD)
    streams.note(BAD)
    with click.Context(click.Command("any")) as context:
        streams.print_json({"model_type": BAD})
        streams.print_document(context)
    out, err = capsys.readouterr()
    sentence, document = out.split("\n", 1)
    assert sentence == GOOD and err.strip() == GOOD
    assert json.loads(document) == {"model_type": BAD} and visible(document) == document
    assert sys.stdout is not None
