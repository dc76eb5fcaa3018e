"""The examples behind the rows, one by one: ``examples.jsonl.gz``, from which anybody can compute every row again.

{"task": "swear", "example": "curse 12", "cluster": "curse", "prompt": "9f0c...", "answers": ["Damn.", "Hello."],
 "scores": [1.0, 0.0, 1.0], "valid": [true, true, true]}

``prompt`` is the sha256 of the prompt. ``answers`` are the unedited and the edited model's, without the spaces around
them; ``hashes`` stands in their place where they are not to be read. ``scores`` and ``valid``: unedited, edited, and
the unedited model's a second time. The file may be anybody's, so what is read of it has limits.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.errors import EditkitError
from editkit.printable import printable
from editkit.tasks.task import Score

NAME = "editkit/examples.jsonl.gz"
MOST_BYTES = 32 << 20
"""Of the file, and of the text inside it: a small file may unpack to a terabyte."""
LONGEST_LINE = 1 << 20
_KEYS = {"task", "example", "cluster", "prompt", "scores", "valid"}


@dataclass(frozen=True)
class Asked:
    """One example of one task, and what both models made of it.

    Args:
        prompt: sha256 of the prompt's text.
        answers: before and after the edit; their sha256 where they are ``hidden``.
        before, after, again: the scores of the unedited model, of the edited one, and of the unedited one once more.
    """

    task: str
    example: str
    cluster: str
    prompt: str
    answers: tuple[str, str]
    before: Score
    after: Score
    again: Score
    hidden: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Its name in the whole file."""
        return self.task, self.example


def answered(text: str, *, hidden: bool) -> str:
    """An answer as the file holds it."""
    return sha256(text.strip()) if hidden else text.strip()


def sha256(text: str) -> str:
    """Also of text with half a character in it, which a model may well write."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def to_bytes(asked: Sequence[Asked]) -> bytes:
    """The file: the same examples give the same bytes."""
    return gzip.compress("".join(_line(each) for each in asked).encode(), mtime=0)


def read(path: Path) -> tuple[Asked, ...]:
    """Read the file at ``path``.

    Raises:
        EditkitError: it cannot be read, is larger than any that editkit writes, or is no such file.
    """
    try:
        with open(path, "rb") as file:
            return from_bytes(file.read(MOST_BYTES + 1))
    except OSError as error:
        raise EditkitError(f"{NAME}: cannot be read ({error.strerror}).") from error


def from_bytes(raw: bytes) -> tuple[Asked, ...]:
    """The examples that these bytes hold.

    Raises:
        EditkitError: they are more than editkit writes, or no such file.
    """
    asked = [_asked(line, number) for number, line in enumerate(_lines(raw), 1)]
    known: set[tuple[str, str]] = set()
    for each in asked:
        if each.key in known:
            raise EditkitError(f"{NAME}: {printable(each.task)!r} has the example {printable(each.example)!r} twice.")
        known.add(each.key)
    return tuple(asked)


def _line(each: Asked) -> str:
    value: dict[str, Any] = {key: getattr(each, key) for key in ("task", "example", "cluster", "prompt")}
    value["hashes" if each.hidden else "answers"] = each.answers
    scores = (each.before, each.after, each.again)
    value |= {"scores": [score.value for score in scores], "valid": [score.valid for score in scores]}
    return json.dumps(value, allow_nan=False) + "\n"


def _lines(raw: bytes) -> list[bytes]:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(raw, MOST_BYTES + 1)
    except zlib.error as error:
        raise EditkitError(f"{NAME}: expected a gzip file: {error}.") from error
    if max(len(raw), len(text)) > MOST_BYTES:
        raise EditkitError(f"{NAME}: holds more than {MOST_BYTES:,} bytes, which no run writes.")
    if not unpacker.eof or unpacker.unused_data or not text.endswith(b"\n"):
        raise EditkitError(f"{NAME}: expected one whole gzip file of lines: it is cut short, or more follows.")
    return text.split(b"\n")[:-1]


def _asked(line: bytes, number: int) -> Asked:
    try:
        if len(line) > LONGEST_LINE:
            raise ValueError(f"longer than {LONGEST_LINE:,} bytes, which no run writes")
        value = json.loads(line.decode(), object_pairs_hook=_unique)
        (kind,) = value.keys() - _KEYS
        task, example, cluster, prompt = (value[key] for key in ("task", "example", "cluster", "prompt"))
        first, second = value[kind]
        scores, valid = value["scores"], value["valid"]
        right = kind in ("answers", "hashes") and all(
            isinstance(text, str) for text in (task, example, cluster, prompt, first, second)
        )
        right = right and len(scores) == len(valid) == 3 and all(isinstance(each, bool) for each in valid)
        if not right or not all(type(score) in (int, float) and 0 <= score <= 1 for score in scores):
            raise ValueError("a value is of another kind, or no score from 0 to 1")
        before, after, again = (Score(float(one), sound) for one, sound in zip(scores, valid, strict=True))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise EditkitError(f"{NAME}, line {number}: no example of editkit's: {printable(str(error))}.") from error
    return Asked(task, example, cluster, prompt, (first, second), before, after, again, kind == "hashes")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value
