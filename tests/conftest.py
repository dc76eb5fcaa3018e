"""What all tests share: the organism, loaded once, and a cache of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile("untimed", deadline=None)  # a busy disk is not a failure
settings.load_profile("untimed")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


FIRST = ("test_devices.py", "test_remove.py", "test_paper.py")
"""The simulated devices: autograd knows only devices that were there at its first backward pass. Then what takes long,
so that of two processes none waits for the other at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.fixture(scope="session")
def organism() -> Iterator[object]:
    """The bundled model, in memory."""
    from editkit.models.loading import load

    yield load()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("EDITKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
