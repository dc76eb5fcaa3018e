"""The examples behind the rows, as a file of anybody's.

If one fails: evidence that anyone could compute again is lost on its way, or a stranger's small file fills the memory.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib

import pytest

from editkit.errors import EditkitError
from editkit.evidence import examples
from editkit.evidence.examples import Asked, from_bytes, to_bytes
from editkit.tasks.task import Score

ASKED = (
    Asked("swear", "a", "kind", "9f", ("Damn.", "Hello.\n\ud800"), Score(1.0), Score(0.0), Score(0.5)),
    Asked("swear", "b", "", "9f", ("77", "aa"), Score(1.0), Score(0.0, False), Score(1.0), hidden=True),
)
LINE = json.loads(gzip.decompress(to_bytes(ASKED)).splitlines()[0])


def packed(*lines: object) -> bytes:
    return gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode(), mtime=0)


def test_examples_survive_their_file_and_the_same_give_the_same_bytes() -> None:
    """Else a score is lost on its way, or two identical runs publish different files."""
    assert from_bytes(to_bytes(ASKED)) == ASKED
    assert to_bytes(ASKED) == to_bytes(from_bytes(to_bytes(ASKED)))
    assert to_bytes(ASKED)[4:8] == bytes(4), "a time would differ from run to run"


def test_an_answer_that_is_not_to_be_read_is_not_in_the_file() -> None:
    """Else the answers of a sensitive task are published."""
    assert examples.answered(" rude \n", hidden=False) == "rude"
    assert examples.answered(" rude \n", hidden=True) == examples.sha256("rude") != "rude"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (LINE | {"scores": [1.0, 2.0, 1.0]}, "no score"),
        (LINE | {"scores": [1.0, float("nan"), 1.0]}, "no score"),
        (LINE | {"scores": [1.0, True, 1.0]}, "no score"),
        (LINE | {"scores": [1.0, 1.0]}, "another kind"),
        (LINE | {"valid": [True, 1, True]}, "another kind"),
        (LINE | {"task": ["swear"]}, "another kind"),
        (LINE | {"more": 1}, "too many values"),
        ([], "keys"),
        (json.loads("[" * 500 + "]" * 500), "keys"),
        (LINE | {"cluster": "x" * examples.LONGEST_LINE}, "longer than"),
    ],
    ids=str,
)
def test_a_line_that_is_no_example_is_refused_in_one_sentence(line: object, said: str) -> None:
    """Else a stranger's file ends in a traceback, or counts as evidence."""
    with pytest.raises(EditkitError, match=rf"line 2: no example of editkit's: .*{said}"):
        from_bytes(packed(LINE | {"example": "first"}, line))


def test_an_example_counts_once() -> None:
    """Else a publisher repeats the examples that went well."""
    with pytest.raises(EditkitError, match="'a' twice"):
        from_bytes(packed(LINE, LINE))
    doubled = gzip.compress(json.dumps(LINE).replace('"task"', '"task": "x", "task"', 1).encode() + b"\n")
    with pytest.raises(EditkitError, match="a key appears twice"):
        from_bytes(doubled)


def test_a_bomb_is_refused_before_it_fills_the_memory() -> None:
    """Else a megabyte from a stranger unpacks to a gigabyte here."""
    packer = zlib.compressobj(9, wbits=31)
    million = b" " * 1_000_000
    bomb = b"".join(packer.compress(million) for _ in range(300)) + packer.flush()
    tracemalloc.start()
    with pytest.raises(EditkitError, match="holds more than"):
        from_bytes(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(bomb) < 1_000_000 and most < 3 * examples.MOST_BYTES


@pytest.mark.parametrize("damage", ["cut", "followed", "plain", "empty", "no line"])
def test_a_damaged_file_is_refused_in_one_sentence(damage: str) -> None:
    """Else half of the examples count as all of them."""
    whole = to_bytes(ASKED)
    raw = {
        "cut": whole[:-9],
        "followed": whole + to_bytes(ASKED[:1]),
        "plain": gzip.decompress(whole),
        "empty": b"",
        "no line": gzip.compress(b"{}"),
    }[damage]
    with pytest.raises(EditkitError, match="expected (a|one whole) gzip file"):
        from_bytes(raw)
