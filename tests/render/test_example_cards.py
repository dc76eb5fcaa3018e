"""The example cards are what today's templates make of their evidence.

If one fails: the examples in the repository show cards that the program no longer writes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from editkit.render import evidence_folder

CARDS = Path(__file__).parents[2] / "cards"
EXAMPLES = sorted(path.parent.parent for path in CARDS.glob("*/editkit/report.json"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_in_step_with_the_templates(example):
    """Figures are compared by their text only: their layout follows the plotting library's version."""
    found = evidence_folder.read(example)
    say = f"run `make cards` to write cards/{example.name} again"
    card, page = evidence_folder.texts(found)
    assert (example / "README.md").read_text("utf-8") == card, say
    assert shown((example / "editkit" / "report.html").read_text("utf-8")) == shown(page), say
    figures = re.findall(r"\(editkit/(\w+\.png)\)", card)
    assert "deltas.png" in figures
    for name in figures:
        assert (example / "editkit" / name).read_bytes().startswith(b"\x89PNG"), say


def shown(html: str) -> str:
    figure = re.compile(r"<svg [^>]*class=\"figure\".*?</svg>", flags=re.DOTALL)
    return figure.sub(lambda match: " ".join(re.findall(r"<text[^>]*>([^<]*)", match[0])), html)
