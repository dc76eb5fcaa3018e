"""A command that was killed, or lost its cluster, is run again and ends as if nothing had happened.

If one fails: a driver that is killed leaves workers behind, or a second run measures again, or writes other weights.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_ray import cells, files
from tests.conftest import Removed, cells_in

pytestmark = pytest.mark.commit

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
"""Seconds for anything here."""


def _until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def _measuring(command: subprocess.Popen[bytes], work: Path, stored: int = 300) -> int:
    """Waits until it is in the middle of it; how many cells there are then, more than ``stored``."""
    counted = [0]
    _until(lambda: counted.append(cells_in(work)) or counted[-1] > stored or command.poll() is not None)
    assert command.poll() is None, (work / "log").read_text()
    return counted[-1]


def _processes() -> list[tuple[int, int, str]]:
    """Number, parent and command line of each."""
    shown = subprocess.run(["ps", "axww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in shown.splitlines()]
    return [(int(number), int(parent), command) for number, parent, command in rows]


def _of_ray(folder: str) -> list[int]:
    """The processes of the cluster that has this folder: Ray names it in every command line but its workers' own."""
    return [number for number, _, command in _processes() if folder in command]


def _copies(folder: str) -> list[int]:
    """Its workers that have a copy of the model: one that is busy is called after its piece."""
    own, shown = _of_ray(folder), _processes()
    return [number for number, parent, command in shown if parent in own and re.match(r"ray::(Copy|asked)", command)]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where Ray keeps its sockets, whose paths may have 107 characters."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'editkit[ray]'")
    path = tempfile.mkdtemp(prefix="ek", dir="/tmp")
    monkeypatch.setenv("RAY_TMPDIR", path)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else ~/.ray/auth_token is written, or asked for
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _started(recipe: Path, work: Path, *options: str) -> subprocess.Popen[bytes]:
    """The command of a user, in a session of its own."""
    command = [sys.executable, "-m", "editkit", "remove-capability", str(recipe), "--json", *options]
    command += ["--work", str(work), "--out", str(work / "out")]
    with (work / "log").open("ab") as log, (work / "result").open("wb") as result:
        return subprocess.Popen(command, stdout=result, stderr=log, start_new_session=True)


def _same(work: Path, alone: Removed) -> None:
    assert json.loads((work / "result").read_text()), "nothing else is on stdout"
    expected = alone("quick")
    [store] = alone.cache.rglob("*.sqlite")
    assert files(work / "out") == files(expected.out)
    assert cells(work / "measurements.sqlite") == cells(store)


def test_a_killed_driver_leaves_no_process_and_its_command_goes_on_where_it_was(
    removed: Removed, folder: str, tmp_path: Path
) -> None:
    """Else each crash of a machine's session keeps its GPUs, and the night's measurements are lost."""
    command = _started(removed.recipe, tmp_path, "--workers", "2")
    stored = _measuring(command, tmp_path)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    assert not (tmp_path / "out").exists()
    _until(lambda: not _of_ray(folder))

    again = _started(removed.recipe, tmp_path, "--workers", "2")
    _until(lambda: _copies(folder) or again.poll() is not None)
    _measuring(again, tmp_path, 3 * stored)
    os.kill(_copies(folder)[0], signal.SIGKILL)
    assert again.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    assert stored < cells_in(tmp_path) and "A worker is gone" in (tmp_path / "log").read_text()
    _same(tmp_path, removed)


def test_a_command_whose_own_ray_dies_says_so(removed: Removed, folder: str, tmp_path: Path) -> None:
    """Else it waits for ever for workers that nobody starts."""
    command = _started(removed.recipe, tmp_path, "--workers", "2")
    _measuring(command, tmp_path)
    shown = _processes()
    raylets = [number for number, _, line in shown if folder in line and "/raylet/raylet " in line]
    for number, parent, _ in shown:
        if number in raylets or parent in raylets:
            os.kill(number, signal.SIGKILL)
    assert command.wait(PATIENCE) == 1
    assert "Ray has ended on this machine" in (tmp_path / "log").read_text()


def test_a_cluster_whose_head_dies_ends_the_command_and_a_new_head_lets_it_go_on(
    removed: Removed, folder: str, tmp_path: Path
) -> None:
    """Else it waits for ever for a machine that is gone. The second time it comes from outside of the cluster."""
    ray = [sys.executable, "-m", "ray.scripts.scripts"]

    def head(port: int) -> str:
        start = ["start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
        options = [
            f"--ray-client-server-port={port + 1}",
            f"--temp-dir={folder}",
            "--object-store-memory=100000000",
            "--disable-usage-stats",
        ]
        subprocess.run([*ray, *start, *options], check=True, capture_output=True)
        return f"127.0.0.1:{port}"

    def kill_head() -> None:
        own = _of_ray(folder)
        for number, parent, line in _processes():  # neither children nor the servers of clients name the folder
            served = "ray.util.client.server" in line and re.search(r":(26379|26380) ", line)
            if number in own or parent in own or served:
                os.kill(number, signal.SIGKILL)

    try:
        command = _started(removed.recipe, tmp_path, "--workers", "2", "--ray", head(26379))
        stored = _measuring(command, tmp_path)
        kill_head()
        assert command.wait(PATIENCE) != 0
        assert not (tmp_path / "out").exists()

        head(26380)
        again = _started(removed.recipe, tmp_path, "--workers", "2", "--ray", "ray://127.0.0.1:26381")
        _until(lambda: _copies(folder) or again.poll() is not None)
        _measuring(again, tmp_path, 3 * stored)
        os.kill(_copies(folder)[0], signal.SIGKILL)
        assert again.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
        _same(tmp_path, removed)
    finally:
        kill_head()
