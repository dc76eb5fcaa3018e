"""Fixtures: a running server, a base of a few shards published there, and an edit of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from editkit.edit import Base
from tests.hub.checkpoint import finish, save_base
from tests.hub.running import (
    ACCOUNTS,
    Server,
    publish_base,
)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server = Server(tmp_path / "hub")
    server.data.mkdir()
    (server.data / "accounts.json").write_text(json.dumps(ACCOUNTS))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def named(hub: Server, base: Path) -> Base:
    """The base, published by a team, public."""
    return publish_base(hub, base)


@pytest.fixture
def out(tmp_path: Path, base: Path, named: Base) -> Path:
    return finish(tmp_path / "out", base, named)
