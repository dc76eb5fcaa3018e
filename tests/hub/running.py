"""A server to test against, who may do what on it, and what a publisher without editkit would do to it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.edit import Base
from editkit.writing import manifest
from tests.hub.server import Hub

ROOT = Path(__file__).parents[2]
ALICE, BOB, READER = "hf_sentinelAlice", "hf_sentinelBob", "hf_sentinelReader"
ACCOUNTS = {
    ALICE: {"name": "alice", "role": "write", "orgs": {"team": "write", "lab": "read"}},
    BOB: {"name": "bob", "role": "write", "orgs": {}},
    READER: {"name": "alice", "role": "read", "orgs": {}},
}


@dataclass
class Server:
    """The server: in a thread of this process, or with options in a process of its own, so that it can be killed."""

    data: Path
    endpoint: str = ""
    thread: Hub | None = None
    process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        port = self.endpoint.rpartition(":")[2] or "0"
        if not options:
            self.thread = Hub(self.data, int(port))
            threading.Thread(target=self.thread.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            self.endpoint = self.thread.endpoint
            return
        command = [sys.executable, "-m", "tests.hub.server", str(self.data), "--port", port, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        self.endpoint = self.process.stdout.readline().strip()

    def stop(self) -> None:
        if self.thread is not None:
            self.thread.shutdown()
            self.thread.server_close()
            self.thread = None
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def requests(self) -> list[dict[str, Any]]:
        log = self.data / "requests.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def uploads(self) -> list[int]:
        """Bytes of each large file that arrived whole."""
        return [row["received"] for row in self.requests() if row["method"] == "PUT" and row["status"] == 200]

    def api(self, token: str | bool | None = ALICE) -> Any:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=token)


def environment(hub: Server, home: Path) -> dict[str, str]:
    mine = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": ALICE, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    return {**os.environ, **mine, "HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "1"}


def publish_base(hub: Server, base: Path, *, private: bool = False) -> Base:
    hub.api().create_repo("team/base", private=private)
    commit = hub.api().upload_folder(repo_id="team/base", folder_path=base)
    return Base("team/base", commit.oid)


def rewrite_manifest(out: Path) -> None:

    manifest.write(out, manifest.read(out))


def publish_anyway(hub: Server, out: Path, repo: str) -> None:
    """As somebody would who does not use editkit to push."""
    hub.api().create_repo(repo)
    with contextlib.redirect_stderr(io.StringIO()):
        hub.api().upload_folder(repo_id=repo, folder_path=out)


def snapshot(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "requests.jsonl")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def corrupt(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))
