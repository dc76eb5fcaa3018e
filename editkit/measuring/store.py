"""Measurements on disk: one cell per (space, knockout, example), written once, in SQLite.

A *space* names everything else a score depends on: model, its config, tokenizer, task, scoring mode, dtype. So
several recipes on one model share what they have in common, and resuming is a set difference: wanted minus stored.

    store.put(space, [(knockout, "add 23 45", Cell(1.0, True, "68"))])
    store.get(space, knockout)   ->  {"add 23 45": Cell(1.0, True, "68")}

A knockout is stored as the 16 bytes of its ``key``, be it one head or half a million neurons. Every cell carries a
checksum over its space, knockout, example and contents: a damaged or moved cell is an error, never a number. Stores of
format 2 had none; opening one adds them, for all of its cells, in one transaction.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.checkpoints.knockout import Knockout
from editkit.errors import EditkitError
from editkit.measuring.network_disk import claimed
from editkit.printable import printable

FORMAT = 3
PATIENCE = 60.0
"""Seconds to wait for another process that has the store."""
_PAGES = 10_000
"""40 MB, in memory and in the log. SQLite's own are 2 and 4: as the cells of one knockout come with many batches, its
pages would be written again and again."""
_APPLICATION = 0x6564_6B74  # "edkt": tells our files from other SQLite databases

_SCHEMA = """
CREATE TABLE space (id INTEGER PRIMARY KEY, digest TEXT UNIQUE NOT NULL, value TEXT NOT NULL);
CREATE TABLE cell (
  space INTEGER NOT NULL REFERENCES space (id),
  knockout BLOB NOT NULL, example TEXT NOT NULL,
  value REAL NOT NULL CHECK (value BETWEEN 0 AND 1), valid INTEGER NOT NULL, output TEXT NOT NULL,
  checksum BLOB NOT NULL,
  PRIMARY KEY (space, knockout, example)
) WITHOUT ROWID;
"""
_FROM_2 = """
ALTER TABLE cell ADD COLUMN checksum BLOB NOT NULL DEFAULT x'';
UPDATE cell SET checksum = checksum_of(
  (SELECT digest FROM space WHERE id = cell.space), knockout, example, value, valid, output
);
"""


@dataclass(frozen=True)
class Cell:
    """One measurement: a score in [0, 1], whether the output was valid, and the output itself where it is text."""

    value: float
    valid: bool = True
    output: str = ""


@dataclass(frozen=True)
class Store:
    """Cells are only ever added. Every ``put`` is one transaction: a kill loses at most the batch in flight."""

    path: Path
    connection: sqlite3.Connection

    def space(self, value: Mapping[str, Any]) -> int:
        """The number of the space described by ``value`` (JSON), made if it is new."""
        text = json.dumps(value, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._transaction():
            self.connection.execute("INSERT OR IGNORE INTO space (digest, value) VALUES (?, ?)", (digest, text))
            return self.connection.execute("SELECT id FROM space WHERE digest = ?", (digest,)).fetchone()[0]

    def get(self, space: int, knockout: Knockout) -> dict[str, Cell]:
        """Everything stored for one knockout: example id -> cell.

        Raises:
            EditkitError: the store cannot be read, or a cell is not what was put there.
        """
        with _told(self.path):
            rows = self.connection.execute(
                "SELECT example, value, valid, output, checksum FROM cell WHERE space = ? AND knockout = ?",
                (space, knockout.key),
            ).fetchall()
        digest = self._digest(space)
        for *cell, checksum in rows:
            if checksum != _checksum(digest, knockout.key, *cell):
                raise EditkitError(
                    f"{self.path} is damaged: the measurement of example {printable(str(cell[0]))!r} is not what was "
                    "stored. Delete the file to measure again, or choose another --work."
                )
        return {example: Cell(value, bool(valid), output) for example, value, valid, output, _ in rows}

    def put(self, space: int, cells: Iterable[tuple[Knockout, str, Cell]]) -> None:
        """Add cells; one that is there already stays as it is."""
        digest = self._digest(space)
        plain = [(each.key, example, float(cell.value), int(cell.valid), cell.output) for each, example, cell in cells]
        rows = [(space, *row, _checksum(digest, *row)) for row in plain]
        with self._transaction():
            self.connection.executemany(
                "INSERT INTO cell VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (space, knockout, example) DO NOTHING", rows
            )

    def examples(self, wanted: Callable[[Mapping[str, Any]], bool]) -> set[str]:
        """The examples that have a cell in any space whose description is ``wanted``, whatever was out."""
        with _told(self.path):
            spaces = self.connection.execute("SELECT id, value FROM space").fetchall()
            query = "SELECT DISTINCT example FROM cell WHERE space = ?"
            chosen = [space for space, value in spaces if wanted(json.loads(value))]
            return {example for space in chosen for (example,) in self.connection.execute(query, (space,))}

    def knockouts(self, space: int) -> int:
        """How many different knockouts a space has cells of."""
        with _told(self.path):
            query = "SELECT count(DISTINCT knockout) FROM cell WHERE space = ?"
            return self.connection.execute(query, (space,)).fetchone()[0]

    def count(self) -> int:
        """How many cells are stored."""
        with _told(self.path):
            return self.connection.execute("SELECT count(*) FROM cell").fetchone()[0]

    def _digest(self, space: int) -> str:
        with _told(self.path):
            row = self.connection.execute("SELECT digest FROM space WHERE id = ?", (space,)).fetchone()
        return row[0] if row else ""

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _told(self.path), self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            yield


@contextmanager
def opened(path: Path | None) -> Iterator[Store]:
    """Open or create the store at ``path``; None keeps it in memory.

    Raises:
        EditkitError: the file is damaged, is not a measurement store, or was written by another format; or it lies on a
            network disk, and another machine has it.
    """
    with ExitStack() as stack:
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(claimed(path))
            connection = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=PATIENCE)
        except (OSError, sqlite3.Error) as error:
            raise EditkitError(
                f"The measurement store {path} cannot be opened: {error}. Choose another --work."
            ) from error
        stack.callback(connection.close)
        _prepare(connection, path or Path(":memory:"))
        yield Store(path or Path(":memory:"), connection)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    with _told(path):
        _journal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES}")
        connection.execute(f"PRAGMA cache_size = {_PAGES}")
        with connection:
            # Looked at and created in one transaction: another process may be creating the same store.
            connection.execute("BEGIN IMMEDIATE")
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            kinds, strange = connection.execute("SELECT count(*), sum(rootpage = 0) FROM sqlite_master").fetchone()
            if not kinds and application == 0:
                _run(connection, _SCHEMA)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                return
            if application == _APPLICATION and strange:  # a view may have no end, and a trigger changes what is put
                raise EditkitError(f"{path} holds views or triggers, which editkit never makes. Choose another --work.")
            if application == _APPLICATION and version == 2:
                connection.create_function("checksum_of", 6, _checksum, deterministic=True)
                _run(connection, _FROM_2)
                version = FORMAT
        if application != _APPLICATION:
            raise EditkitError(f"{path} is a database, but not a measurement store. Choose another --work.")
        if version != FORMAT:
            raise EditkitError(
                f"{path} is a measurement store of format {version}; this editkit reads formats 2 and {FORMAT}. "
                "Choose another --work, or delete the file to measure again."
            )
        if connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
            raise EditkitError(f"{path} is damaged. Delete it to measure again, or choose another --work.")


def _run(connection: sqlite3.Connection, statements: str) -> None:
    """The statements, after which the store has our format."""
    for statement in statements.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def _checksum(space: str, knockout: bytes, example: str, value: float, valid: int, output: str) -> bytes:
    """Eight bytes: enough for what is damaged by chance, and no more than a seventh of a cell."""
    return hashlib.sha256(repr((space, knockout, example, value, valid, output)).encode()).digest()[:8]


def _journal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging. SQLite does not wait here for another process that does the same: we do."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What SQLite refuses, as a sentence: a full disk, a lost table, text that is none."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # what SQLite says of a damaged file may quote it
        raise EditkitError(
            f"The measurement store {path} cannot be used: {error}. Free disk space if the disk is full; "
            "otherwise delete the file to measure again, or choose another --work."
        ) from error
