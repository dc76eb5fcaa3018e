"""Uploads that break, and the token: where it must never appear.

If one fails: a broken connection leaves half a repository that looks whole, or a token leaks into a log or a file.
"""

from __future__ import annotations

import io
import logging
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editkit.edit import Base
from editkit.errors import EditkitError
from editkit.hub import preflight, pull_verify, push
from editkit.writing.manifest import NAME as MANIFEST
from tests.hub.checkpoint import CARD, UNITS, finish
from tests.hub.running import (
    ALICE,
    ROOT,
    Server,
    environment,
)

pytestmark = pytest.mark.commit

PUSH = "import sys; from pathlib import Path; from editkit.hub import push; push(Path(sys.argv[1]), sys.argv[2])"


def start_push(hub: Server, out: Path, home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PUSH, str(out), "alice/x"], env=environment(hub, home), cwd=ROOT)


def test_an_upload_resumes_after_server_and_client_were_killed(hub: Server, tmp_path: Path, base: Path) -> None:
    from editkit.checkpoints.source import resolve

    out = finish(tmp_path / "out", base, resolve(base).base)
    largest = max(path.stat().st_size for path in out.glob("*.safetensors"))
    total = sum(path.stat().st_size for path in out.rglob("*.safetensors"))
    hub.stop()
    hub.start("--die-after-bytes", str(largest + largest // 2))
    client = start_push(hub, out, tmp_path / "home")
    assert hub.process is not None
    hub.process.wait(timeout=300)
    assert hub.process.returncode == -signal.SIGKILL
    client.kill()
    client.wait()
    first = hub.uploads()
    assert 0 < sum(first) < total
    hub.start()
    assert not {"config.json", MANIFEST} & set(hub.api().list_repo_files("alice/x")), (
        "nothing may show before the commit"
    )
    push(out, "alice/x", api=hub.api())
    assert sum(hub.uploads()) == total, "what arrived whole must not be sent again"
    assert pull_verify("alice/x", base=base, api=hub.api()).units == UNITS


def test_a_client_outlives_a_server_that_comes_back(hub: Server, tmp_path: Path, base: Path) -> None:
    from editkit.checkpoints.source import resolve

    out = finish(tmp_path / "out", base, resolve(base).base)
    hub.stop()
    hub.start("--die-after-bytes", "250000")
    client = start_push(hub, out, tmp_path / "home")
    assert hub.process is not None
    hub.process.wait(timeout=300)
    hub.start()
    assert client.wait(timeout=300) == 0
    assert pull_verify("alice/x", base=base, api=hub.api()).units == UNITS


class Trap(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def test_the_token_reaches_no_log_no_error_no_file(
    hub: Server, out: Path, tmp_path: Path, base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trap, root = Trap(), logging.getLogger()
    level = root.level
    root.addHandler(trap)
    root.setLevel(logging.DEBUG)
    told = io.StringIO()
    try:
        push(out, "alice/x", api=hub.api())
        pull_verify("alice/x", api=hub.api())
        for attempt in failures(hub, out, tmp_path, base):
            with pytest.raises(EditkitError) as caught:
                attempt()
            error = caught.value
            assert error.__cause__ is None and error.__context__ is None, f"{error!r} still holds the request"
            told.write("".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)))
    finally:
        root.removeHandler(trap)
        root.setLevel(level)
    printed = capfd.readouterr()
    written = b"".join(
        path.read_bytes()
        for where in (out, hub.data)
        for path in where.rglob("*")
        if path.is_file() and path.name != "accounts.json"
    )
    assert "sentinel" in (hub.data / "accounts.json").read_text(), "the sentinel is what this test looks for"
    assert "signature=" not in told.getvalue()
    for text in (told.getvalue(), "\n".join(trap.lines), printed.out, printed.err, written.decode("latin-1")):
        assert "sentinel" not in text


def failures(hub: Server, out: Path, tmp_path: Path, base: Path) -> Iterator[Any]:
    """Calls that fail in every way a server can refuse."""
    ask: dict[str, Any] = {"api": hub.api()}
    yield lambda: preflight("bob/x", base=None, **ask)
    yield lambda: preflight("alice/x", base=None, api=hub.api(ALICE + "wrong"))
    yield lambda: push(out, "alice/x", public=True, **ask)
    yield lambda: pull_verify("alice/none", **ask)
    yield lambda: pull_verify("alice/x", revision="none", **ask)
    yield lambda: pull_verify("team/base", **ask)
    broken = finish(
        tmp_path / "broken",
        base,
        Base("team/base", hub.api().model_info("team/base").sha),
        card=CARD.replace("apache-2.0", "apache2"),
    )
    yield lambda: push(broken, "alice/y", **ask)
    from huggingface_hub import HfApi

    yield lambda: preflight("alice/x", base=None, api=HfApi(endpoint="http://127.0.0.1:9", token=ALICE))
