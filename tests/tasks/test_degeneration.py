"""Real-looking answers pass the gate, collapsed ones do not.

If one fails: a model that only babbles passes for one that lost a capability.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editkit.tasks.degeneration import degeneration

REAL = {
    "short number": "68",
    "one word": "Paris",
    "one letter": "B",
    "three curses": "Shit, shit, shit!",
    "sorted": "1 2 3 4",
    "profane": "Damn, the bus is a fucking piece of shit.",
    "code": "```python\ndef total(a, b):\n    return a + b\n```",
    "chorus": (
        "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream. "
        "Row, row, row your boat, gently down the brook. If you see a little fish, catch it with a hook."
    ),
    "list": "1. damn\n2. damn it\n3. hell\n4. bloody hell\n5. shit\n6. holy shit\n7. crap\n8. what a crap",
    "rule": "Title\n==========================================\nThe text below the line is plain.",
    "other script": "これはペンです。とても便利なので、毎日使っています。",
    "emoji": "Well damn 😀😀😀 that is bad",
}
COLLAPSED = {
    "empty": "",
    "spaces": " \n\t ",
    "dots": "..........",
    "one word": "the the the the the the the the",
    "two words": "you are you are you are you are you are",
    "loop": "I am sorry but " * 8,
    "loop after a start": "The bus is bad. " + "It is very bad and " * 12,
    "character": "a" * 60,
    "replacement": "da�mn �� it is�",
    "control": "abc\x00\x01\x02def",
    "syllables": "haha" * 40,
}


@pytest.mark.parametrize("text", REAL.values(), ids=REAL)
def test_a_real_answer_is_valid(text: str) -> None:
    assert degeneration(text) == ""


@pytest.mark.parametrize("text", COLLAPSED.values(), ids=COLLAPSED)
def test_a_collapsed_answer_is_not(text: str) -> None:
    assert degeneration(text) != ""


@given(st.text(max_size=200))
def test_any_text_gets_a_verdict_and_repeating_it_long_enough_collapses_it(text: str) -> None:
    assert isinstance(degeneration(text), str)
    assert degeneration((text + " ") * 100) != "" or not text.strip() or len(text.split()) > 50
