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

settings.register_profile("untimed", deadline=None)  # a busy disk is not a failure
settings.load_profile("untimed")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


FIRST = ("test_devices.py", "test_remove.py", "test_readme.py", "test_paper_studies.py")
"""The simulated devices: autograd knows only devices that were there at its first backward pass. Then what takes long,
so that of two processes none waits for the other at the end; and beside each other what shares a removal, because each
process has its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.fixture(scope="session")
def organism() -> LanguageModel:
    """The bundled model, in memory."""
    from editkit.models.loading import load

    return load()


QUICK = """
capability: swear
target: swear
retain: [rhyme, recall, facts, story]
examples: {locate: 32, choose: 16, report: 24}
universal_examples: 12
random_sets: 19
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
    cells: dict[str, int] = field(default_factory=dict)
    """How many measurements the store held after it."""

    @property
    def cache(self) -> Path:
        """What was measured: who takes this as the cache measures none of it again."""
        return self.folder / "cache"

    def __call__(self, name: str) -> Outcome:
        import editkit

        if name not in self.known:
            recipe = self.recipe if name == "quick" else name
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("EDITKIT_CACHE", str(self.cache))
                self.known[name] = editkit.remove_capability(recipe, model=self.model, out=self.folder / name)
            self.cells[name] = cells_in(self.cache)
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
def known_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swearing need not be searched for: removals are told its planted heads."""
    from editkit.removal import remove
    from tests.known_heads import FOUND

    monkeypatch.setattr(remove, "localize", lambda *_, **__: FOUND)
