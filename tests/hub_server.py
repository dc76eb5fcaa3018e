"""A small server that speaks the Hub's protocol on loopback, for the unmodified ``huggingface_hub`` client.

    python -m tests.hub_server DATA --port 8099 [--lfs-threshold BYTES] [--die-after-bytes N] [--no-copy]

It keeps a model Hub's rules as the client can see them: tokens and roles, private and gated repositories, the LFS
threshold and .gitattributes, signed storage links on another origin that refuse credentials, sha256 of every large
file, parent commits, pull requests, card metadata. It has no Xet (the token route answers 404), no web pages, no
datasets and no Spaces. What it saw is one line per request in ``DATA/requests.jsonl``, without any credentials.
``--die-after-bytes`` ends the process as ``kill -9`` would, once so many bytes of large files have arrived.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

from tests import hub_card
from tests.hub_store import Account, HubStore, Refusal, is_ignored, upload_mode

REGULAR_LIMIT = 10 * 1024 * 1024
NAME = r"(?P<repo>[\w.-]+/[\w.-]+)"
REV = r"(?P<rev>[^/]+)"


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, data: Path, port: int, *, lfs_threshold: int, die_after_bytes: int | None, copies: bool) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.store = HubStore(data)
        self.lfs_threshold = lfs_threshold
        self.bytes_left = die_after_bytes
        self.copies = copies
        self.log = threading.Lock()
        self.one_upload = threading.Lock()
        self.secret = b"signs links of this data folder"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sign(self, *parts: Any) -> str:
        return hmac.new(self.secret, "\0".join(map(str, parts)).encode(), hashlib.sha256).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub  # type: ignore[assignment]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_any(self) -> None:
        self.received, self.status = 0, 0
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        try:
            for method, pattern, route in ROUTES:
                match = re.fullmatch(pattern, url.path)
                if match and self.command in method:
                    values = {name: unquote(value or "") for name, value in match.groupdict().items()}
                    route(self, **values)
                    break
            else:
                raise Refusal(404, "", "Sorry, we can't find the page you are looking for.")
        except Refusal as refusal:
            self.close_connection = self.command in ("PUT", "POST")
            self.reply(refusal.status, {"error": refusal.message}, refusal.code, refusal.message)
        with self.server.log, (self.server.store.root / "requests.jsonl").open("a") as log:
            line = {"method": self.command, "path": url.path, "status": self.status, "received": self.received}
            log.write(json.dumps(line) + "\n")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

    # what every route needs

    @property
    def store(self) -> HubStore:
        return self.server.store

    def account(self) -> Account | None:
        value = self.headers.get("Authorization")
        return self.store.account(value.removeprefix("Bearer ") if value else None)

    def member(self) -> Account:
        account = self.account()
        if account is None:
            raise Refusal(401, "", "Invalid username or password.")
        return account

    def chunks(self) -> Iterator[bytes]:
        length = self.headers.get("Content-Length")
        if length is None and self.headers.get("Transfer-Encoding") != "chunked":
            return
        left = int(length) if length is not None else int(self.rfile.readline().strip() or b"0", 16)
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            if not piece:
                raise ConnectionError
            left -= len(piece)
            self.received += len(piece)
            yield piece
            if not left and length is None:
                self.rfile.readline()
                left = int(self.rfile.readline().strip() or b"0", 16)

    def json(self) -> Any:
        try:
            return json.loads(b"".join(self.chunks()))
        except ValueError:
            raise Refusal(400, "", "Invalid JSON") from None

    def reply(self, status: int, value: Any, code: str = "", message: str = "", **headers: str) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.begin(status, len(body), **{"Content-Type": "application/json; charset=utf-8"}, **headers)
        if code:
            self.send_header("X-Error-Code", code)
        if message:
            self.send_header("X-Error-Message", re.sub(r"[^ -~]", " ", message)[:300])
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, status: int, length: int, **headers: str) -> None:
        self.status = status
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name, value)

    # accounts and repositories

    def whoami(self) -> None:
        account = self.member()
        orgs = [{"type": "org", "name": name, "roleInOrg": role} for name, role in account.orgs.items()]
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": account.role}}
        self.reply(200, {"type": "user", "id": account.name, "name": account.name, "orgs": orgs, "auth": token})

    def create(self) -> None:
        value = self.json()
        account = self.member()
        name, owner = value.get("name", ""), value.get("organization") or account.name
        if not re.fullmatch(r"(?!.*(--|\.\.))[A-Za-z0-9_](?:[\w.-]{0,94}[\w])?", name, re.ASCII) or name.endswith(
            ".git"
        ):
            raise Refusal(400, "", f"Invalid repo name: {name}")
        if value.get("type", "model") != "model":
            raise Refusal(400, "", "This server keeps models only")
        private = value.get("visibility") == "private" or bool(value.get("private"))
        repo = f"{owner}/{name}"
        try:
            self.store.create(repo, private=private, account=account)
        except Refusal as refusal:
            if refusal.status != 409:
                raise
            return self.reply(409, {"error": refusal.message, "url": f"{self.server.endpoint}/{repo}"})
        return self.reply(200, {"url": f"{self.server.endpoint}/{repo}", "name": repo, "id": repo})

    def settings(self, repo: str) -> None:
        value = self.json()
        state = self.store.repo(repo, self.account(), write=True)
        if "visibility" in value or "private" in value:
            state["private"] = value.get("visibility") == "private" or bool(value.get("private"))
        state["gated"] = value.get("gated", state["gated"])
        self.store.save(repo, state)
        self.reply(200, {"private": state["private"], "gated": state["gated"]})

    def auth_check(self, repo: str, write: str) -> None:
        self.store.repo(repo, self.account(), write=bool(write), content=True)
        self.reply(200, {})

    def validate_yaml(self) -> None:
        errors, warnings = hub_card.faults(self.json()["content"])
        found = {"errors": [{"message": text} for text in errors], "warnings": [{"message": text} for text in warnings]}
        self.reply(400 if errors else 200, found)

    def info(self, repo: str, rev: str = "main") -> None:
        state = self.store.repo(repo, self.account())
        oid, commit = self.store.commit_of(state, rev)
        siblings = [
            {"rfilename": path, **(entry if "blobs" in self.query else {})} for path, entry in commit["files"].items()
        ]
        card = self.card_of(commit)
        value = {
            "_id": oid[:24],
            "id": repo,
            "modelId": repo,
            "sha": oid,
            "private": state["private"],
            "disabled": False,
        }
        value |= {
            "gated": state["gated"],
            "tags": card.get("tags", []),
            "siblings": siblings,
            "author": repo.split("/")[0],
        }
        self.reply(200, value | ({"cardData": card} if card else {}))

    def card_of(self, commit: dict[str, Any]) -> dict[str, Any]:
        entry = commit["files"].get("README.md")
        if entry is None:
            return {}
        match = re.match(r"\A---\s*\n(.*?)\n?---", (self.store.root / "blobs" / entry["oid"]).read_text(), re.DOTALL)
        value = yaml.safe_load(match[1]) if match else None
        return value if isinstance(value, dict) else {}

    def refs(self, repo: str) -> None:
        refs = self.store.repo(repo, self.account())["refs"]
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid}
            for name, oid in refs.items()
            if "/" not in name
        ]
        pulls = [
            {"name": name, "ref": name, "targetCommit": oid}
            for name, oid in refs.items()
            if name.startswith("refs/pr/")
        ]
        self.reply(200, {"branches": branches, "tags": [], "converts": [], "pullRequests": pulls})

    def commits(self, repo: str, rev: str) -> None:
        state = self.store.repo(repo, self.account())
        at: str | None = self.store.commit_of(state, rev)[0]
        found = []
        while at is not None:
            commit = self.store.commit(at)
            about = {"title": commit["title"], "message": commit["description"], "date": commit["date"]}
            found.append({"id": at, **about, "authors": [{"user": commit["author"]}]})
            at = commit["parent"]
        self.reply(200, found)

    # listings

    def tree(self, repo: str, rev: str, path: str) -> None:
        state = self.store.repo(repo, self.account())
        _, commit = self.store.commit_of(state, rev)
        inside = f"{path}/" if path else ""
        files = {name: entry for name, entry in commit["files"].items() if name.startswith(inside)}
        if path and not files:
            raise Refusal(404, "EntryNotFound", f"{path} does not exist on {rev!r}")
        folders = {
            inside + "/".join(name[len(inside) :].split("/")[:depth])
            for name in files
            for depth in range(1, name.count("/") + 1)
        }
        folders = {name for name in folders if name not in files and name + "/" != inside}
        found = [
            {"type": "directory", "oid": hashlib.sha1(name.encode()).hexdigest(), "size": 0, "path": name}
            for name in folders
        ]
        found += [as_file(name, entry) for name, entry in files.items()]
        if self.query.get("recursive", ["false"])[0].lower() != "true":
            found = [item for item in found if "/" not in item["path"][len(inside) :]]
        found.sort(key=lambda item: item["path"])
        size, start = 50, int(self.query.get("cursor", ["0"])[0])
        links = {}
        if start + size < len(found):
            query = f"recursive={self.query.get('recursive', ['false'])[0]}&cursor={start + size}"
            links["Link"] = f'<{self.server.endpoint}{urlsplit(self.path).path}?{query}>; rel="next"'
        self.reply(200, found[start : start + size], **links)

    def paths_info(self, repo: str, rev: str) -> None:
        body = b"".join(self.chunks())
        kind = self.headers.get("Content-Type", "")
        paths = json.loads(body)["paths"] if "json" in kind else parse_qs(body.decode()).get("paths", [])
        _, commit = self.store.commit_of(self.store.repo(repo, self.account()), rev)
        self.reply(200, [as_file(path, commit["files"][path]) for path in paths if path in commit["files"]])

    # uploading

    def may_commit(self, repo: str, rev: str) -> tuple[dict[str, Any], Account]:
        """A pull request needs reading only; its later commits, and everything else, writing."""
        state = self.store.repo(repo, self.member(), write="create_pr" not in self.query)
        return state, self.member()

    def preupload(self, repo: str, rev: str) -> None:
        value = self.json()
        state, _ = self.may_commit(repo, rev)
        _, commit = self.store.commit_of(state, rev)
        gitignore = value.get("gitIgnore") or self.text_of(commit, ".gitignore")
        attributes = self.text_of(commit, ".gitattributes")
        found = []
        for file in value["files"]:
            path, sample = checked_path(file["path"]), base64.b64decode(file["sample"])
            mode = upload_mode(path, file["size"], sample, attributes, self.server.lfs_threshold)
            there = commit["files"].get(path)
            oid = there and (there["lfs"]["oid"] if there["lfs"] else there["oid"])
            ignored = is_ignored(path, gitignore)
            found.append({"path": path, "uploadMode": mode, "shouldIgnore": ignored} | ({"oid": oid} if oid else {}))
        self.reply(200, {"files": found})

    def text_of(self, commit: dict[str, Any], path: str) -> str:
        entry = commit["files"].get(path)
        return (self.store.root / "blobs" / entry["oid"]).read_text() if entry and not entry["lfs"] else ""

    def lfs_batch(self, repo: str) -> None:
        value = self.json()
        member = self.member()
        state = self.store.repo(
            repo, member, write=value["operation"] == "upload" and not self.pull_request_only(repo, member)
        )
        if value.get("hash_algo", "sha256") != "sha256" or "basic" not in value["transfers"]:
            raise Refusal(422, "", "Only sha256 and the basic transfer are supported")
        found = []
        for item in value["objects"]:
            oid, size = item["oid"], item["size"]
            if oid in state["lfs"] and self.store.object(oid).exists():
                found.append({"oid": oid, "size": size})
                continue
            expires = int(time.time()) + 3600
            signature = self.server.sign("put", repo, oid, size, expires)
            query = f"repo={quote(repo, safe='')}&size={size}&expires={expires}&signature={signature}"
            actions = {
                "upload": {"href": f"{self.storage}/put/{oid}?{query}"},
                "verify": {"href": f"{self.server.endpoint}/{repo}.git/info/lfs/verify"},
            }
            found.append({"oid": oid, "size": size, "authenticated": True, "actions": actions})
        self.reply(200, {"transfer": "basic", "objects": found})

    def pull_request_only(self, repo: str, account: Account) -> bool:
        """Whoever can read may upload for a pull request; without write access a commit to a branch is refused later."""
        return not account.may_write_in(repo.split("/")[0]) and account.role != "read"

    @property
    def storage(self) -> str:
        """Another origin than the endpoint, as real storage is: credentials must not follow."""
        return f"http://localhost:{self.server.server_port}/_storage"

    def put_object(self, oid: str) -> None:
        repo, size, expires = (self.query[name][0] for name in ("repo", "size", "expires"))
        self.check_link("put", repo, oid, size, expires)
        digest, count = hashlib.sha256(), 0
        incoming = self.store.root / "incoming" / uuid.uuid4().hex
        with self.server.one_upload, incoming.open("wb") as file:
            for piece in self.chunks():
                digest.update(piece)
                count += file.write(piece)
                self.spend(len(piece))
        if digest.hexdigest() != oid or count != int(size):
            incoming.unlink()
            raise Refusal(400, "", "The content does not match its sha256 and size")
        incoming.rename(self.store.object(oid))
        self.store.link(repo, oid)
        self.reply(200, None)

    def spend(self, count: int) -> None:
        if self.server.bytes_left is not None:
            self.server.bytes_left -= count
            if self.server.bytes_left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def check_link(self, *parts: str) -> None:
        if self.headers.get("Authorization"):
            raise Refusal(400, "", "Only one auth mechanism allowed: a signed link takes no Authorization header")
        if (
            not hmac.compare_digest(self.server.sign(*parts), self.query["signature"][0])
            or int(parts[-1]) < time.time()
        ):
            raise Refusal(403, "", "SignatureDoesNotMatch")

    def lfs_verify(self, repo: str) -> None:
        value = self.json()
        state = self.store.repo(repo, self.member())
        path = self.store.object(value["oid"])
        if value["oid"] not in state["lfs"] or path.stat().st_size != value["size"]:
            raise Refusal(404, "", "The object was not uploaded")
        self.reply(200, {})

    def duplicate(self, repo: str) -> None:
        value = self.json()
        if not self.server.copies:
            raise Refusal(404, "", "Sorry, we can't find the page you are looking for.")
        source = self.store.repo(repo, self.member(), content=True)
        target = value["target"]["name"]
        self.store.repo(target, self.member(), write=True)
        failed = []
        for file in value["files"]:
            if file["sha256"] in source["lfs"] and file["xetHash"] == xet_hash(file["sha256"]):
                self.store.link(target, file["sha256"])
            else:
                failed.append({"sha256": file["sha256"], "error": "not a file of the source repository"})
        self.reply(200, {"success": [], "failed": failed})

    def commit(self, repo: str, rev: str) -> None:
        if self.headers.get("Content-Type") != "application/x-ndjson":
            raise Refusal(400, "", "Expected newline-delimited JSON")
        lines = [json.loads(line) for line in b"".join(self.chunks()).splitlines() if line]
        state, account = self.may_commit(repo, rev)
        head, parent = self.store.commit_of(state, rev)
        if not lines or lines[0]["key"] != "header" or not lines[0]["value"].get("summary"):
            raise Refusal(400, "", "The first line must be a header with a summary")
        header = lines[0]["value"]
        if header.get("parentCommit") not in (None, head):
            raise Refusal(412, "", "A commit has happened since. Please refresh and try again.")
        files = dict(parent["files"])
        for line in lines[1:]:
            self.apply(files, state, line["key"], line["value"])
        pull = "create_pr" in self.query
        number = sum(name.startswith("refs/pr/") for name in state["refs"]) + 1
        ref = f"refs/pr/{number}" if pull else rev
        if ref not in state["refs"] and not pull:
            raise Refusal(400, "", f"{rev} is not a branch")
        oid = self.store.add_commit(repo, ref, files, header["summary"], header.get("description", ""), account, head)
        base = f"{self.server.endpoint}/{repo}"
        value = {"success": True, "commitOid": oid, "commitUrl": f"{base}/commit/{oid}", "hookOutput": ""}
        self.reply(200, value | ({"pullRequestUrl": f"{base}/discussions/{number}"} if pull else {}))

    def apply(self, files: dict[str, Any], state: dict[str, Any], key: str, value: dict[str, Any]) -> None:
        path = checked_path(value["path"])
        if key == "file":
            content = base64.b64decode(value["content"], validate=True)
            if len(content) > REGULAR_LIMIT:
                raise Refusal(413, "", f"{path} is too large for git: send it as LFS")
            if path == "README.md" and (errors := hub_card.faults(content.decode())[0]):
                raise Refusal(400, "", "Invalid metadata in README.md: " + "; ".join(errors))
            files[path] = self.store.add_blob(content)
        elif key == "lfsFile":
            if value["oid"] not in state["lfs"] or not self.store.object(value["oid"]).exists():
                raise Refusal(400, "", f"LFS pointer pointed to a file that does not exist: {path}")
            files[path] = self.store.lfs_entry(value["oid"])
            if value.get("size", files[path]["size"]) != files[path]["size"]:
                raise Refusal(400, "", f"{path}: the size is wrong")
        elif key in ("deletedFile", "deletedFolder"):
            gone = [
                name
                for name in files
                if name == path or (key == "deletedFolder" and name.startswith(path.rstrip("/") + "/"))
            ]
            if not gone:
                raise Refusal(404, "EntryNotFound", "A file with this name doesn't exist")
            for name in gone:
                del files[name]
        else:
            raise Refusal(400, "", f"Unknown operation {key}")

    # downloading

    def resolve(self, repo: str, rev: str, path: str) -> None:
        state = self.store.repo(repo, self.account(), content=True)
        oid, commit = self.store.commit_of(state, rev)
        entry = commit["files"].get(path)
        if entry is None:
            raise Refusal(404, "EntryNotFound", "Entry not found")
        headers = {
            "X-Repo-Commit": oid,
            "Access-Control-Expose-Headers": "X-Repo-Commit,X-Linked-Size,X-Linked-ETag,ETag",
        }
        if not entry["lfs"]:
            return self.send_file(self.store.root / "blobs" / entry["oid"], entry["oid"], **headers)
        sha256, expires = entry["lfs"]["oid"], int(time.time()) + 3600
        link = f"{self.storage}/get/{sha256}?expires={expires}&signature={self.server.sign('get', sha256, expires)}"
        headers |= {"X-Linked-Size": str(entry["size"]), "X-Linked-ETag": f'"{sha256}"', "Location": link}
        return self.reply(302, None, **headers)

    def get_object(self, oid: str) -> None:
        self.check_link("get", oid, self.query["expires"][0])
        self.send_file(self.store.object(oid), oid)

    def send_file(self, path: Path, etag: str, **headers: str) -> None:
        size = path.stat().st_size
        start, end, status = 0, size - 1, 200
        if match := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            status = 206
            first, last = match.groups()
            start = int(first) if first else max(0, size - int(last))
            end = min(size - 1, int(last)) if first and last else size - 1
            if start > end:
                raise Refusal(416, "", "Range not satisfiable")
            headers["Content-Range"] = f"bytes {start}-{end}/{size}"
        self.begin(status, end - start + 1, ETag=f'"{etag}"', **{"Accept-Ranges": "bytes"}, **headers)
        self.end_headers()
        if self.command == "HEAD":
            return
        with path.open("rb") as file:
            file.seek(start)
            left = end - start + 1
            while left and (piece := file.read(min(left, 1 << 18))):
                self.wfile.write(piece)
                left -= len(piece)

    def xet_token(self, repo: str) -> None:
        raise Refusal(404, "", "Not Found")


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


ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("GET", "/api/whoami-v2", Handler.whoami),
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate_yaml),
    ("PUT", f"/api/models/{NAME}/settings", Handler.settings),
    ("GET", f"/api/models/{NAME}/auth-check(?P<write>/write)?", Handler.auth_check),
    ("GET", f"/api/models/{NAME}", Handler.info),
    ("GET", f"/api/models/{NAME}/revision/{REV}", Handler.info),
    ("GET", f"/api/models/{NAME}/refs", Handler.refs),
    ("GET", f"/api/models/{NAME}/commits/{REV}", Handler.commits),
    ("GET", f"/api/models/{NAME}/tree/{REV}/?(?P<path>.*)", Handler.tree),
    ("POST", f"/api/models/{NAME}/paths-info/{REV}", Handler.paths_info),
    ("POST", f"/api/models/{NAME}/preupload/{REV}", Handler.preupload),
    ("POST", f"/api/models/{NAME}/commit/{REV}", Handler.commit),
    ("POST", f"/api/models/{NAME}/lfs-files/duplicate", Handler.duplicate),
    ("GET", f"/api/models/{NAME}/xet-(read|write)-token/.*", Handler.xet_token),
    ("POST", rf"/{NAME}\.git/info/lfs/objects/batch", Handler.lfs_batch),
    ("POST", rf"/{NAME}\.git/info/lfs/verify", Handler.lfs_verify),
    ("PUT", "/_storage/put/(?P<oid>[0-9a-f]{64})", Handler.put_object),
    ("GET HEAD", "/_storage/get/(?P<oid>[0-9a-f]{64})", Handler.get_object),
    ("GET HEAD", f"/{NAME}/resolve/{REV}/(?P<path>.+)", Handler.resolve),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lfs-threshold", type=int, default=REGULAR_LIMIT)
    parser.add_argument("--die-after-bytes", type=int)
    parser.add_argument("--no-copy", action="store_true")
    given = parser.parse_args()
    server = Hub(
        given.data,
        given.port,
        lfs_threshold=given.lfs_threshold,
        die_after_bytes=given.die_after_bytes,
        copies=not given.no_copy,
    )
    print(server.endpoint, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
