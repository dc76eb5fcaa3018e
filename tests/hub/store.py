"""What a Hub keeps on disk: accounts, repositories, commits, large files. The HTTP side is ``server.py``.

    accounts.json            {"hf_alice": {"name": "alice", "role": "write", "orgs": {"team": "write"}}}
    repos/alice/toy/repo.json   {"private": true, "gated": false, "accepted": [], "refs": {"main": "<oid>"}, ...}
    commits/<oid>.json       {"parent", "title", "description", "author", "date", "files": {path: {"oid", "size", ...}}}
    blobs/<git sha1>         small files        objects/<sha256>      large files

Everything is written beside and renamed, so the server can be killed at any time and started again on the same folder.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REGULAR_LIMIT = 10 * 1024 * 1024
GITATTRIBUTES = "".join(
    f"{pattern} filter=lfs diff=lfs merge=lfs -text\n"
    for pattern in (
        "*.safetensors",
        "*.bin",
        "*.pt",
        "*.onnx",
        "*.h5",
        "*.npz",
        "*.zip",
        "*.gz",
        "*.model",
        "*.msgpack",
    )
)


@dataclass
class Refusal(Exception):
    """An HTTP error: status, the X-Error-Code header (or nothing) and a message."""

    status: int
    code: str
    message: str


@dataclass(frozen=True)
class Account:
    name: str
    role: str
    orgs: dict[str, str]

    def may_write_in(self, namespace: str) -> bool:
        member = namespace == self.name or self.orgs.get(namespace) in ("write", "contributor", "admin")
        return self.role != "read" and member


class HubStore:
    """One folder. Every public method takes the lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.RLock()
        for name in ("repos", "commits", "blobs", "objects", "incoming"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def account(self, token: str | None) -> Account | None:
        """The token's owner; None without a token; a refusal for a token nobody owns."""
        if token is None:
            return None
        accounts = json.loads((self.root / "accounts.json").read_text())
        if token not in accounts:
            raise Refusal(401, "", "Invalid credentials in Authorization header")
        return Account(**accounts[token])

    def create(self, repo: str, *, private: bool, account: Account | None) -> None:
        if account is None:
            raise Refusal(401, "", "Invalid username or password.")
        namespace = repo.split("/")[0]
        if not account.may_write_in(namespace):
            raise Refusal(403, "", f'You don\'t have the rights to create a model under the namespace "{namespace}"')
        with self.lock:
            if self._repo_file(repo).exists():
                raise Refusal(409, "", "You already created this model repo")
            state = {"private": private, "gated": False, "accepted": [], "refs": {}, "lfs": []}
            self.save(repo, state)
            self.add_commit(
                repo, "main", {".gitattributes": self.add_blob(GITATTRIBUTES.encode())}, "initial commit", "", account
            )

    def repo(self, repo: str, account: Account | None, *, write: bool = False, content: bool = False) -> dict[str, Any]:
        """The repository's state, if the account may see it (write to it; read its files)."""
        owner = account is not None and (repo.split("/")[0] == account.name or repo.split("/")[0] in account.orgs)
        state = self._load(repo)
        if state is None or (state["private"] and not owner):
            raise Refusal(404 if account else 401, "RepoNotFound", "Repository not found")
        if content and state["gated"] and not owner and (account is None or account.name not in state["accepted"]):
            raise Refusal(403 if account else 401, "GatedRepo", f"Access to model {repo} is restricted.")
        if write and (account is None or not account.may_write_in(repo.split("/")[0])):
            raise Refusal(403 if account else 401, "", "You don't have write permission on this repository")
        return state

    def commit_of(self, state: dict[str, Any], revision: str) -> tuple[str, dict[str, Any]]:
        """The commit a branch, a PR ref or a (prefix of a) commit oid names."""
        oid = state["refs"].get(revision) or state["refs"].get(f"refs/heads/{revision}")
        if oid is None and 7 <= len(revision) <= 40:
            known = [path.stem for path in (self.root / "commits").glob(f"{revision}*.json")]
            reachable = set(self.history(state))
            oid = next((commit for commit in known if commit in reachable), None)
        if oid is None:
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return oid, self.commit(oid)

    def history(self, state: dict[str, Any]) -> list[str]:
        seen: list[str] = []
        for head in state["refs"].values():
            at: str | None = head
            while at is not None and at not in seen:
                seen.append(at)
                at = self.commit(at)["parent"]
        return seen

    def commit(self, oid: str) -> dict[str, Any]:
        return json.loads((self.root / "commits" / f"{oid}.json").read_text())

    def add_commit(
        self,
        repo: str,
        ref: str,
        files: dict[str, Any],
        title: str,
        description: str,
        account: Account,
        parent: str | None = None,
    ) -> str:
        with self.lock:
            state = self._load(repo)
            assert state is not None
            value = {
                "parent": parent or state["refs"].get(ref),
                "title": title,
                "description": description,
                "author": account.name,
                "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "files": files,
            }
            text = json.dumps(value)
            oid = hashlib.sha1(text.encode()).hexdigest()
            write(self.root / "commits" / f"{oid}.json", text.encode())
            state["refs"][ref] = oid
            self.save(repo, state)
            return oid

    def add_blob(self, content: bytes) -> dict[str, Any]:
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        write(self.root / "blobs" / oid, content)
        return {"oid": oid, "size": len(content), "lfs": None}

    def lfs_entry(self, sha256: str) -> dict[str, Any]:
        """A committed large file is a pointer blob that names an object."""
        size = self.object(sha256).stat().st_size
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
        entry = self.add_blob(pointer)
        return {"oid": entry["oid"], "size": size, "lfs": {"oid": sha256, "size": size, "pointerSize": len(pointer)}}

    def object(self, sha256: str) -> Path:
        return self.root / "objects" / sha256

    def link(self, repo: str, sha256: str) -> None:
        """Give a repository a large file: only then may a commit name it."""
        with self.lock:
            state = self._load(repo)
            assert state is not None
            state["lfs"] = sorted({*state["lfs"], sha256})
            self.save(repo, state)

    def save(self, repo: str, state: dict[str, Any]) -> None:
        self._repo_file(repo).parent.mkdir(parents=True, exist_ok=True)
        write(self._repo_file(repo), json.dumps(state).encode())

    def _load(self, repo: str) -> dict[str, Any] | None:
        path = self._repo_file(repo)
        return json.loads(path.read_text()) if path.exists() else None

    def _repo_file(self, repo: str) -> Path:
        return self.root / "repos" / repo / "repo.json"


def write(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    beside.write_bytes(content)
    os.replace(beside, path)


def upload_mode(path: str, size: int, sample: bytes, attributes: str, threshold: int) -> str:
    """``lfs`` for what .gitattributes names, for what is large and for what looks binary."""
    named = any(
        fnmatch.fnmatch(Path(path).name, line.split()[0]) for line in attributes.splitlines() if "filter=lfs" in line
    )
    return "lfs" if size and (named or size > threshold or b"\0" in sample) else "regular"


def is_ignored(path: str, gitignore: str) -> bool:
    rules = [line.strip() for line in gitignore.splitlines() if line.strip() and not line.startswith("#")]
    parts = path.split("/")
    return any(
        fnmatch.fnmatch(path, rule.strip("/")) or any(fnmatch.fnmatch(part, rule.strip("/")) for part in parts)
        for rule in rules
    )


def as_file(path: str, entry: dict[str, Any]) -> dict[str, Any]:
    value = {"type": "file", "oid": entry["oid"], "size": entry["size"], "path": path}
    return value | ({"lfs": entry["lfs"], "xetHash": xet_hash(entry["lfs"]["oid"])} if entry["lfs"] else {})


def xet_hash(sha256: str) -> str:
    return hashlib.sha256(f"xet {sha256}".encode()).hexdigest()


def checked_path(path: str) -> str:
    parts = path.split("/")
    if (
        not path
        or path.startswith("/")
        or any(part in ("", ".", "..", ".git") for part in parts)
        or re.search(r"[\x00-\x1f\\]", path)
    ):
        raise Refusal(400, "", f"Invalid path in the repository: {path!r}")
    return path
