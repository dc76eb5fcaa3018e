"""What judges on the network have said, on disk: asked once, kept at once, read by every later run.

keep(key, asked, Said("yes", "qwen2.5-7b-instruct"))
known(key, asked)     Said("yes", "qwen2.5-7b-instruct")
names(key)            ["qwen2.5-7b-instruct"]

One SQLite file in the user's cache, beside the stores of measurements. It holds hashes of what was asked, and the
replies: no prompt, no answer, no key.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from editkit.errors import EditkitError
from editkit.workspace import cache

NAME = "verdicts.sqlite"
PATIENCE = 60.0
"""Seconds to wait for another process that writes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdict (
  judge BLOB NOT NULL, asked BLOB NOT NULL, word TEXT NOT NULL, model TEXT NOT NULL, PRIMARY KEY (judge, asked)
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Said:
    """A judge's reply, as it came, and the name that the endpoint gave the model; empty if it gave none."""

    word: str
    model: str


def known(judge: str, asked: str) -> Said | None:
    """What this judge said when it was asked this; None if it was not."""
    with _opened() as connection:
        query = "SELECT word, model FROM verdict WHERE judge = ? AND asked = ?"
        row = connection.execute(query, (_hash(judge), _hash(asked))).fetchone()
    return None if row is None else Said(*row)


def keep(judge: str, asked: str, said: Said) -> None:
    """Add what this judge said; what is there already stays as it is."""
    with _opened() as connection, connection:
        row = (_hash(judge), _hash(asked), said.word, said.model)
        connection.execute("INSERT OR IGNORE INTO verdict VALUES (?, ?, ?, ?)", row)


def names(judge: str) -> list[str]:
    """What its endpoint has called this judge's model, sorted: several if it was exchanged meanwhile."""
    with _opened() as connection:
        query = "SELECT DISTINCT model FROM verdict WHERE judge = ? AND model != '' ORDER BY model"
        return [name for (name,) in connection.execute(query, (_hash(judge),))]


@contextmanager
def _opened() -> Iterator[sqlite3.Connection]:
    path = cache() / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=PATIENCE)) as connection:
            connection.execute(_SCHEMA)
            yield connection
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # what SQLite says of a damaged file may quote it
        raise EditkitError(
            f"The verdicts of judges, {path}, cannot be used: {error}. Free disk space if the disk is full; otherwise "
            "delete the file, and what it held is asked again."
        ) from error


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
