"""What fuzzing once found stays mended: every input of ``corpus/`` ends in success or in one clear error.

If one fails: an odd file ends a command in a traceback, hangs it, or fills the memory.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from editkit.errors import EditkitError
from editkit.render import figures
from tests import small_checkpoints as checkpoints
from tests.hostile.laws import CORPUS, LONGEST, Broken, attempt, folder_of, limited, sketched
from tests.hostile.loaders import LOADERS, Loader

INPUTS = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("*/*"))
BY_FOLDER = {folder_of(name): name for name in LOADERS}


@pytest.fixture(scope="module")
def place_of() -> Iterator[Callable[[Loader], Path]]:
    """Where a loader's valid input lies, prepared once for all loaders that share it."""
    import matplotlib.font_manager  # noqa: F401  # makes folders for its settings

    with pytest.MonkeyPatch.context() as patch, checkpoints.in_memory() as folder:
        patch.setattr(figures, "_drawn", sketched)
        patch.setenv("HF_HUB_OFFLINE", "1")
        places: dict[object, Path] = {}

        def prepared(loader: Loader) -> Path:
            if loader.prepare not in places:
                place = folder / str(len(places))
                (place / "cache").mkdir(parents=True, exist_ok=True)
                patch.setenv("EDITKIT_CACHE", str(place / "cache"))
                patch.chdir(place)
                loader.prepare(place)
                places[loader.prepare] = place
            return places[loader.prepare]

        yield prepared


@pytest.fixture
def tried(place_of: Callable[[Loader], Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Attempt an input, the valid one if there is none, and put the valid one back."""

    def one(name: str, content: bytes | None = None) -> str:
        loader = LOADERS[name]
        place = place_of(loader)
        for variable in ("EDITKIT_CACHE", "TORCHINDUCTOR_CACHE_DIR"):
            monkeypatch.setenv(variable, str(place / "cache"))
        monkeypatch.setattr(tempfile, "tempdir", str(place / "cache"))
        monkeypatch.chdir(place)
        valid = (place / loader.file).read_bytes()
        try:
            with limited():
                return attempt(loader, place, valid if content is None else content)
        finally:
            (place / loader.file).write_bytes(valid)

    def too_long(*_: object) -> None:
        raise TimeoutError("still busy after a minute")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    yield one
    signal.alarm(0)


@pytest.mark.parametrize("name", LOADERS)
def test_a_valid_input_is_accepted(name: str, tried: Callable[..., str]) -> None:
    """So that what is refused is refused for what was changed."""
    assert tried(name) == ""


@pytest.mark.parametrize("name", INPUTS)
def test_what_once_broke_a_law_keeps_it(name: str, tried: Callable[..., str]) -> None:
    folder, _, _ = name.partition("/")
    tried(BY_FOLDER[folder], (CORPUS / name).read_bytes())


def _refuse(place: Path) -> None:
    raise EditkitError("x" * (LONGEST + 1))


def _write(place: Path) -> None:
    (place.parent / "stray").write_text("x")


def _change(place: Path) -> None:
    (place / "other").write_text("x")


def _call(place: Path) -> None:
    with socket.socket() as one:
        one.settimeout(0.1)
        one.connect_ex(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("load", "kind"),
    [
        (lambda place: 1 / 0, "ZeroDivisionError"),
        (lambda place: bytearray(3 << 30), "MemoryError"),
        (lambda place: os.system("true"), "reaches out: os.system"),
        (_refuse, "a message of no use"),
        (_write, "reaches out: open"),
        (_change, "changes files beside its output"),
        (_call, "reaches out: socket.connect"),
    ],
)
def test_each_law_can_be_broken(
    load: Callable[[Path], object], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    loader = Loader("input", lambda _: None, load, lambda _: pytest.fail("nothing is drawn"))
    with pytest.raises(Broken) as caught, limited():
        attempt(loader, place, b"")
    assert caught.value.kind.startswith(kind)
    assert attempt(Loader("input", lambda _: None, lambda _: time.sleep(0), loader.inputs), place, b"") == ""
