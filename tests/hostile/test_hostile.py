"""Every hostile checkpoint is refused with one clear error; nothing runs, nothing is written outside OUT.

If one fails: a downloaded checkpoint runs code, fills the memory, or writes outside the output folder.
"""

from __future__ import annotations

import errno
import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from editkit.checkpoints.source import resolve
from editkit.checkpoints.staging import check_free
from editkit.edit import Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.planning.inspection import inspect
from editkit.units import Head
from editkit.writing import manifest
from editkit.writing.export import EXPORTS, checkpoint
from editkit.writing.undo import undo
from editkit.writing.verify import verify
from tests import small_checkpoints as checkpoints
from tests.hostile.cases import CASES, RECORDS


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with checkpoints.in_memory() as folder:
        monkeypatch.setenv("EDITKIT_CACHE", str(folder / "cache"))
        (folder / "cache").mkdir()
        yield folder


def bake(base: Path, out: Path) -> None:
    """What a user does with a downloaded checkpoint."""
    source = resolve(base)
    checkpoint.write(Edit(source.base, frozenset({Head(0, 1)})), source, out)


def test_the_honest_checkpoint_is_baked(place: Path) -> None:
    """So that the refusals below are refusals of what was changed."""
    bake(checkpoints.write(place / "base"), place / "out")
    assert (place / "out" / "model.safetensors").exists()


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40


def _too_long(*_: object) -> None:
    raise TimeoutError("still busy after a minute")


@pytest.mark.parametrize("name", CASES)
def test_each_case_ends_in_one_clear_error(name: str, place: Path) -> None:
    base = checkpoints.write(place / "models--x--y" / "snapshots" / "base")
    CASES[name](base)
    before = present(place)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(60)  # a pipe or a device must not be read
    try:
        with pytest.raises(EditkitError) as caught:
            bake(base, place / "out")
    finally:
        signal.alarm(0)
    message = str(caught.value)
    assert 20 < len(message) < 1500 and message.replace("\n", "").isprintable(), message
    assert present(place) == before, "nothing was left"


@pytest.mark.parametrize("name", CASES)
def test_a_look_at_each_case_ends_in_facts_or_one_clear_error(name: str, place: Path) -> None:
    base = checkpoints.write(place / "models--x--y" / "snapshots" / "base")
    CASES[name](base)
    before = present(place)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(60)
    try:
        text = json.dumps(inspect(base).to_dict())
    except EditkitError as error:
        text = str(error)
    finally:
        signal.alarm(0)
    assert len(text) < 5000 and text.replace("\n", "").isprintable()
    assert present(place) == before


@pytest.mark.parametrize("form", EXPORTS)
@pytest.mark.parametrize("name", RECORDS)
def test_each_undo_record_ends_in_one_clear_error(name: str, form: str, place: Path) -> None:
    source = resolve(checkpoints.write(place / "base"))
    EXPORTS[form](Edit(source.base, frozenset({Head(0, 1)})), source, place / "out")
    RECORDS[name](place / "out")
    manifest.write(place / "out", manifest.read(place / "out"))
    before = present(place)
    for look in (lambda: undo(place / "out", place / "back"), lambda: verify(place / "out")):
        with pytest.raises(IntegrityError) as caught:
            look()
        message = str(caught.value)
        assert 20 < len(message) < 1500 and message.replace("\n", "").isprintable(), message
    assert present(place) == before, "nothing was left"


def test_what_undo_cannot_read_is_not_blamed_on_where_it_writes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything: the refusal is made up."""
    bake(checkpoints.write(place / "base"), place / "out")
    honest = shutil.copyfile

    def refused(source: Path, target: Path) -> None:
        if source == place / "out" / "config.json":
            raise PermissionError(errno.EACCES, "Permission denied", str(source))
        honest(source, target)

    monkeypatch.setattr("shutil.copyfile", refused)
    with pytest.raises(EditkitError, match=r"out/config\.json cannot be read \(Permission denied\)"):
        undo(place / "out", place / "back")


def present(place: Path) -> list[str]:
    """Everything but empty folders of the user's cache."""
    found = (path for path in place.rglob("*") if not (path.is_dir() and path.is_relative_to(place / "cache")))
    return sorted(path.relative_to(place).as_posix() for path in found)


def test_the_pickles_would_run_if_they_were_opened(place: Path) -> None:
    """The bombs are live: otherwise the cases above prove nothing."""
    import pickle

    base = checkpoints.write(place / "base")
    CASES["pickle: code that runs"](base)
    pickle.loads((base / "pytorch_model.bin").read_bytes())
    assert (place / "executed").exists()


def test_a_full_disk_leaves_nothing(place: Path) -> None:
    """A limit on file sizes stands for the disk: the write fails in the middle of a file."""
    base = checkpoints.write(place / "base")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        with pytest.raises(EditkitError, match="disk is full or a size limit"):
            bake(base, place / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(path.name for path in place.iterdir()) == ["base", "cache"]


def test_too_little_space_is_said_before_anything_is_written(place: Path) -> None:
    with pytest.raises(EditkitError, match=r"needs 1000000000\.\d GB of disk"):
        check_free(place / "out", needed=10**18)
    assert sorted(path.name for path in place.iterdir()) == ["cache"]


_AS_NOBODY = """
import os, sys
from pathlib import Path
from tests.hostile.test_hostile import bake
from editkit.errors import EditkitError
base, out, other = map(Path, sys.argv[1:])
bake(base, other)  # everything is imported before the rights are dropped
if sys.argv[2].endswith("unread"):
    (base / "model.safetensors").chmod(0)
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
try:
    bake(base, out)
except EditkitError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("name", "message"), [("closed/out", "cannot be written to"), ("open/unread", "cannot be read")]
)
def test_what_may_not_be_read_or_written_is_one_clear_error(place: Path, name: str, message: str) -> None:
    base = checkpoints.write(place / "base")
    place.chmod(0o755)
    (place / "closed").mkdir()
    (place / "closed").chmod(0o555)
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    command = [sys.executable, "-c", _AS_NOBODY, base, place / name, place / "before"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("EditkitError") and message in done.stdout, done.stderr
    assert not any((place / name).parent.iterdir())
