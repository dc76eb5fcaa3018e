"""The store keeps what it was given, refuses what is not its own, and survives a kill.

If one fails: a resumed run reads numbers of another model, or none of its own.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editkit.checkpoints.knockout import Knockout
from editkit.errors import EditkitError
from editkit.measuring.store import Cell, opened

MASK = Knockout.of(np.array([0, 2]))
OTHER = Knockout.of(np.array([1]))


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()),
        st.tuples(st.floats(0, 1), st.booleans(), st.text(max_size=40).filter(lambda text: text.isprintable())),
        max_size=8,
    )
)
def test_what_is_put_is_got_back_and_other_masks_and_spaces_stay_empty(cells) -> None:
    with opened(None) as store:
        space, other = store.space({"task": "a"}), store.space({"task": "b"})
        wanted = {example: Cell(*cell) for example, cell in cells.items()}
        store.put(space, [(MASK, example, cell) for example, cell in wanted.items()])
        assert store.get(space, MASK) == wanted
        assert store.get(space, OTHER) == {}
        assert store.get(other, MASK) == {}


def test_a_cell_is_written_once_and_survives_reopening(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "measurements.sqlite"
    with opened(path) as store:
        space = store.space({"task": "a", "dtype": "float32"})
        store.put(space, [(MASK, "one", Cell(0.25, True, "x"))])
        store.put(space, [(MASK, "one", Cell(0.75, True, "y"))])
    with opened(path) as store:
        assert store.space({"dtype": "float32", "task": "a"}) == space
        assert store.get(space, MASK) == {"one": Cell(0.25, True, "x")}


def test_several_may_create_one_store_at_once(tmp_path: Path) -> None:
    """Two runs on one model begin with the same absent file."""

    def use(path: Path, start: Barrier, name: str) -> None:
        start.wait()
        with opened(path) as store:
            store.put(store.space({"task": "a"}), [(MASK, name, Cell(1.0))])

    for attempt in range(12):
        path, start = tmp_path / f"{attempt}.sqlite", Barrier(6)
        with ThreadPoolExecutor(6) as pool:
            for found in [pool.submit(use, path, start, str(name)) for name in range(6)]:
                found.result()
        with opened(path) as store:
            assert store.count() == 6


def _garbage(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")


def _other_format(path: Path) -> None:
    with opened(path) as store:
        store.connection.execute("PRAGMA user_version = 99")


def _torn(path: Path) -> None:
    with opened(path) as store:
        space = store.space({"task": "a"})
        store.put(space, [(MASK, f"example {i}", Cell(0.5, True, "text " * 50)) for i in range(500)])
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[4096 : len(data) // 2] = os.urandom(len(data) // 2 - 4096)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("spoil", [_garbage, _foreign, _other_format, _torn])
def test_a_damaged_or_foreign_store_is_refused_with_a_remedy(spoil, tmp_path: Path) -> None:
    path = tmp_path / "measurements.sqlite"
    spoil(path)
    with pytest.raises(EditkitError, match="--work") as caught, opened(path):
        pass
    assert str(path) in str(caught.value)


def _kept(path: Path) -> None:
    """A store with two cells of one knockout in each of two spaces, numbered 1 and 2."""
    with opened(path) as store:
        for task, mask in (("a", MASK), ("b", OTHER)):
            cells = [(mask, "one", Cell(0.25, True, "x")), (mask, "two", Cell(1.0, False, "y"))]
            store.put(store.space({"task": task}), cells)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE cell SET value = 0.5 WHERE example = 'one'",
        "UPDATE cell SET valid = 1 - valid",
        "UPDATE cell SET output = output || ' '",
        "UPDATE cell SET example = 'three' WHERE example = 'one'",
        "UPDATE cell SET example = x'ff' WHERE example = 'one'",
        "UPDATE cell SET checksum = x''",
        "UPDATE cell SET checksum = 5",
        "UPDATE space SET digest = digest || 'a'",
        "UPDATE OR REPLACE cell SET knockout = (SELECT knockout FROM cell WHERE space = 1)",
        "UPDATE OR REPLACE cell SET space = 3 - space, knockout = (SELECT knockout FROM cell WHERE space = 1)",
        "UPDATE cell SET output = CAST(x'ff' AS TEXT)",
        "UPDATE cell SET example = CAST(x'c3' AS TEXT) WHERE example = 'one'",
        "DROP TABLE cell",
        "DROP TABLE space",
        "ALTER TABLE cell DROP COLUMN output",
        "DELETE FROM space",
    ],
)
def test_a_damaged_cell_is_an_error_and_never_a_number(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "measurements.sqlite"
    _kept(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(damage)
    with pytest.raises(EditkitError, match="--work") as caught, opened(path) as store:
        for each, mask in ((1, MASK), (2, MASK), (2, OTHER)):
            store.get(each, mask)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("table", ["cell", "space"])
def test_every_use_of_a_store_without_a_table_ends_in_a_sentence(table: str, tmp_path: Path) -> None:
    path = tmp_path / "measurements.sqlite"
    _kept(path)
    with opened(path) as store:
        store.connection.execute(f"DROP TABLE {table}")
        uses = [lambda: store.get(1, MASK), lambda: store.put(1, [(MASK, "three", Cell(1.0))])]
        for use in [*uses, *([lambda: store.space({})] if table == "space" else [store.count])]:
            with pytest.raises(EditkitError, match="cannot be used: no such table"):
                use()


FORMAT_2 = """
CREATE TABLE space (id INTEGER PRIMARY KEY, digest TEXT UNIQUE NOT NULL, value TEXT NOT NULL);
CREATE TABLE cell (
  space INTEGER NOT NULL REFERENCES space (id),
  knockout BLOB NOT NULL, example TEXT NOT NULL,
  value REAL NOT NULL CHECK (value BETWEEN 0 AND 1), valid INTEGER NOT NULL, output TEXT NOT NULL,
  PRIMARY KEY (space, knockout, example)
) WITHOUT ROWID;
PRAGMA application_id = 1701079924;
PRAGMA user_version = 2;
"""


def test_a_store_of_format_2_goes_on_with_every_cell(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    _kept(new)
    with sqlite3.connect(new) as connection, sqlite3.connect(old) as other:
        other.executescript(FORMAT_2)
        other.executemany("INSERT INTO space VALUES (?, ?, ?)", connection.execute("SELECT * FROM space"))
        rows = connection.execute("SELECT space, knockout, example, value, valid, output FROM cell")
        other.executemany("INSERT INTO cell VALUES (?, ?, ?, ?, ?, ?)", rows)
    for _ in range(2):  # once and again
        with opened(old) as store, opened(new) as right:
            assert store.count() == 4
            cells = "SELECT * FROM cell ORDER BY space, example"
            assert store.connection.execute(cells).fetchall() == right.connection.execute(cells).fetchall()
            assert store.get(1, MASK) == {"one": Cell(0.25, True, "x"), "two": Cell(1.0, False, "y")}
    with opened(old) as store:
        store.put(1, [(MASK, "three", Cell(0.5))])
        assert store.get(1, MASK)["three"] == Cell(0.5)
    with sqlite3.connect(old) as connection:
        connection.execute("UPDATE cell SET value = 0.5")
    with opened(old) as store, pytest.raises(EditkitError, match="is not what was stored"):
        store.get(1, MASK)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_score_outside_the_unit_interval_is_refused(value: float) -> None:
    with opened(None) as store, pytest.raises(EditkitError):
        store.put(store.space({}), [(MASK, "one", Cell(value))])


def test_a_kill_loses_at_most_the_batch_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "measurements.sqlite"
    script = textwrap.dedent(f"""
        from editkit.checkpoints.knockout import Knockout
        from pathlib import Path
        from editkit.measuring.store import Cell, opened
        with opened(Path({str(path)!r})) as store:
            space = store.space({{"task": "a"}})
            for batch in range(10**6):
                store.put(space, [(Knockout(), f"{{batch}}/{{i}}", Cell(1.0)) for i in range(10)])
                print(batch, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    seen += [int(line) for line in process.stdout.read().split("\n")[:-1] if line]
    with opened(path) as store:
        stored = set(store.get(store.space({"task": "a"}), Knockout()))
    assert {f"{batch}/{i}" for batch in seen for i in range(10)} <= stored
    assert len(stored) % 10 == 0


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE cell RENAME TO c; CREATE VIEW cell AS SELECT * FROM c",
        "CREATE TRIGGER t AFTER INSERT ON space BEGIN DELETE FROM space; END",
    ],
)
def test_a_store_of_views_and_triggers_is_refused(tmp_path: Path, change: str) -> None:
    """A view may have no end, and a trigger may lose what was put."""
    path = tmp_path / "measurements.sqlite"
    with opened(path):
        pass
    connection = sqlite3.connect(path)
    connection.executescript(change)
    connection.close()
    with pytest.raises(EditkitError, match="views or triggers"), opened(path) as store:
        store.space({"task": "a"})
