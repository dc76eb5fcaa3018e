"""What all tests share: the organism, loaded once, its full removals, run once, and a cache for each test."""

from __future__ import annotations

import os
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


@dataclass(frozen=True)
class Removed:
    """The full removals of a session: each recipe's is run once, with default settings."""

    folder: Path
    model: LanguageModel
    known: dict[str, Outcome] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """What was measured: who takes this as the cache measures none of it again."""
        return self.folder / "cache"

    def __call__(self, name: str) -> Outcome:
        import editkit

        if name not in self.known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("EDITKIT_CACHE", str(self.cache))
                self.known[name] = editkit.remove_capability(name, model=self.model, out=self.folder / name)
        return self.known[name]


@pytest.fixture(scope="session")
def removed(organism: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Removed:
    """Recipe name -> its outcome on the bundled model; only for tests that change nothing in its folder."""
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
