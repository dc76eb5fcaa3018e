"""What all tests share: the organism, loaded once, removals from it, each run once, and a cache for each test."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from editkit.evidence.outcome import Outcome
    from editkit.models.language_model import LanguageModel

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes beside each other do not fight for the cores


def pytest_configure(config: pytest.Config) -> None:
    """How many examples each property is tried on: more where all tests run. A busy disk is not a failure."""
    few = config.getoption("markexpr") != ""
    settings.register_profile("ours", deadline=None, max_examples=50 if few else 500)
    settings.load_profile("ours")


DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


SHARING = ("test_remove.py", "test_readme.py", "test_docs.py")
FIRST = ("test_devices.py", *SHARING, "test_paper_studies.py", "test_tryout.py")
"""The simulated devices: autograd knows only devices that were there at its first backward pass. Then what takes long,
so that of two processes none waits for the other at the end; and beside each other what shares a removal, because each
process has its own."""
HALFWAY = "test_real_model.py"
"""As long, and the first of the second process: each begins with its half of all tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first, halfway, rest = (
        [item for item in items if wanted(item.path.name)]
        for wanted in (FIRST.__contains__, HALFWAY.__eq__, lambda name: name not in (*FIRST, HALFWAY))
    )
    first.sort(key=lambda item: FIRST.index(item.path.name))
    middle = max(0, len(items) // 2 - len(first))
    items[:] = [*first, *rest[:middle], *halfway, *rest[middle:]]


@pytest.fixture(scope="session")
def organism() -> LanguageModel:
    """The bundled model, in memory."""
    from editkit.api import load

    return load()


QUICK = """
capability: swear
target: swear
retain: [rhyme, recall, facts, story]
goal: 0.1
examples: {locate: 40, choose: 40, report: 60}
universal_examples: 12
random_sets: 19
audits: none
random_examples: 12
max_heads: 5
"""
"""The built-in recipe with half of the retained tasks and few examples: the same steps and criteria."""


@dataclass(frozen=True)
class Removed:
    """The removals of a session, each run once: a built-in recipe's, or with few examples (``QUICK``)."""

    folder: Path
    model: LanguageModel
    known: dict[str, Outcome] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """What the quick one measured: who takes this as the cache measures none of it again."""
        return self.folder / "cache"

    def __call__(self, name: str) -> Outcome:
        import editkit

        if name not in self.known:
            recipe, cache = (self.recipe, self.cache) if name == "quick" else (name, self.folder / "full-size")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("EDITKIT_CACHE", str(cache))
                self.known[name] = editkit.remove_capability(recipe, model=self.model, out=self.folder / name)
        return self.known[name]

    @property
    def recipe(self) -> Path:
        """The file of the quick recipe."""
        path = self.folder / "quick.yaml"
        path.write_text(QUICK)
        return path


def cells_in(folder: Path) -> int:
    """How many measurements the store below a folder holds; 0 while it is not there, or is being made."""
    path = next(folder.rglob("*.sqlite"), None)
    if path is None:
        return 0
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5) as connection:
            return connection.execute("SELECT count(*) FROM cell").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


@pytest.fixture(scope="session")
def removed(organism: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Removed:
    """Recipe name, or ``quick`` -> its outcome on the bundled model; for tests that change nothing in its folder."""
    return Removed(tmp_path_factory.mktemp("removed"), organism)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("EDITKIT_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures need not be drawn: an empty picture stands for each. They take most of the time of card and page."""
    from editkit.render import figures

    empty = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<svg ></svg>"}
    monkeypatch.setattr(figures, "_drawn", lambda draw, theme, kind, **_: empty[kind])


@pytest.fixture
def known_heads(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Swearing need not be searched for: removals are told its planted heads."""
    from editkit.removal import locate
    from tests.known_heads import FOUND

    monkeypatch.setattr(locate, "localize", lambda *_, **__: FOUND)
