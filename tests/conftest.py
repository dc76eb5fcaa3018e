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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The simulated devices come first: autograd knows only devices that were there at its first backward pass."""
    items.sort(key=lambda item: item.path.name != "test_devices.py")


@pytest.fixture(scope="session")
def organism() -> Iterator[object]:
    """The bundled model, in memory."""
    from editkit.loading import load

    yield load()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("EDITKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
