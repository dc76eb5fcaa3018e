"""Writing to a repository: upload modes, large files by signed link, copies between repositories, commits.

POST /api/models/alice/toy/commit/main   {"key": "header", "value": {"summary": "Remove 2 heads"}}
                                         {"key": "lfsFile", "value": {"path": "a.safetensors", "oid": "1ea1..."}}
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.hub import card
from tests.hub.store import REGULAR_LIMIT, Account, Refusal, checked_path, is_ignored, upload_mode, xet_hash

if TYPE_CHECKING:
    from tests.hub.server import Exchange


def may_commit(ask: Exchange, repo: str, rev: str) -> tuple[dict[str, Any], Account]:
    """A pull request needs reading only; its later commits, and everything else, writing."""
    state = ask.store.repo(repo, ask.member(), write="create_pr" not in ask.query)
    return state, ask.member()


def preupload(ask: Exchange, repo: str, rev: str) -> None:
    value = ask.json()
    state, _ = may_commit(ask, repo, rev)
    _, commit = ask.store.commit_of(state, rev)
    gitignore = value.get("gitIgnore") or text_of(ask, commit, ".gitignore")
    attributes = text_of(ask, commit, ".gitattributes")
    found = []
    for file in value["files"]:
        path, sample = checked_path(file["path"]), base64.b64decode(file["sample"])
        mode = upload_mode(path, file["size"], sample, attributes, ask.server.lfs_threshold)
        there = commit["files"].get(path)
        oid = there and (there["lfs"]["oid"] if there["lfs"] else there["oid"])
        ignored = is_ignored(path, gitignore)
        found.append({"path": path, "uploadMode": mode, "shouldIgnore": ignored} | ({"oid": oid} if oid else {}))
    ask.reply(200, {"files": found})


def text_of(ask: Exchange, commit: dict[str, Any], path: str) -> str:
    entry = commit["files"].get(path)
    return (ask.store.root / "blobs" / entry["oid"]).read_text() if entry and not entry["lfs"] else ""


def lfs_batch(ask: Exchange, repo: str) -> None:
    value = ask.json()
    member = ask.member()
    state = ask.store.repo(
        repo, member, write=value["operation"] == "upload" and not pull_request_only(ask, repo, member)
    )
    if value.get("hash_algo", "sha256") != "sha256" or "basic" not in value["transfers"]:
        raise Refusal(422, "", "Only sha256 and the basic transfer are supported")
    found = []
    for item in value["objects"]:
        oid, size = item["oid"], item["size"]
        if oid in state["lfs"] and ask.store.object(oid).exists():
            found.append({"oid": oid, "size": size})
            continue
        expires = int(time.time()) + 3600
        signature = ask.server.sign("put", repo, oid, size, expires)
        query = f"repo={quote(repo, safe='')}&size={size}&expires={expires}&signature={signature}"
        actions = {
            "upload": {"href": f"{storage(ask)}/put/{oid}?{query}"},
            "verify": {"href": f"{ask.server.endpoint}/{repo}.git/info/lfs/verify"},
        }
        found.append({"oid": oid, "size": size, "authenticated": True, "actions": actions})
    ask.reply(200, {"transfer": "basic", "objects": found})


def pull_request_only(ask: Exchange, repo: str, account: Account) -> bool:
    """Whoever can read may upload for a pull request; without write access a commit to a branch is refused later."""
    return not account.may_write_in(repo.split("/")[0]) and account.role != "read"


def storage(ask: Exchange) -> str:
    """Another origin than the endpoint, as real storage is: credentials must not follow."""
    return f"http://localhost:{ask.server.server_port}/_storage"


def put_object(ask: Exchange, oid: str) -> None:
    repo, size, expires = (ask.query[name][0] for name in ("repo", "size", "expires"))
    check_link(ask, "put", repo, oid, size, expires)
    digest, count = hashlib.sha256(), 0
    incoming = ask.store.root / "incoming" / uuid.uuid4().hex
    with incoming.open("wb") as file:
        for piece in ask.chunks():
            digest.update(piece)
            count += file.write(piece)
            spend(ask, len(piece))
    if digest.hexdigest() != oid or count != int(size):
        incoming.unlink()
        raise Refusal(400, "", "The content does not match its sha256 and size")
    incoming.rename(ask.store.object(oid))
    ask.store.link(repo, oid)
    ask.reply(200, None)


def spend(ask: Exchange, count: int) -> None:
    if ask.server.bytes_left is not None:
        ask.server.bytes_left -= count
        if ask.server.bytes_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def check_link(ask: Exchange, *parts: str) -> None:
    if ask.headers.get("Authorization"):
        raise Refusal(400, "", "Only one auth mechanism allowed: a signed link takes no Authorization header")
    if not hmac.compare_digest(ask.server.sign(*parts), ask.query["signature"][0]) or int(parts[-1]) < time.time():
        raise Refusal(403, "", "SignatureDoesNotMatch")


def lfs_verify(ask: Exchange, repo: str) -> None:
    value = ask.json()
    state = ask.store.repo(repo, ask.member())
    path = ask.store.object(value["oid"])
    if value["oid"] not in state["lfs"] or path.stat().st_size != value["size"]:
        raise Refusal(404, "", "The object was not uploaded")
    ask.reply(200, {})


def duplicate(ask: Exchange, repo: str) -> None:
    value = ask.json()
    if not ask.server.copies:
        raise Refusal(404, "", "Sorry, we can't find the page you are looking for.")
    source = ask.store.repo(repo, ask.member(), content=True)
    target = value["target"]["name"]
    ask.store.repo(target, ask.member(), write=True)
    failed = []
    for file in value["files"]:
        if file["sha256"] in source["lfs"] and file["xetHash"] == xet_hash(file["sha256"]):
            ask.store.link(target, file["sha256"])
        else:
            failed.append({"sha256": file["sha256"], "error": "not a file of the source repository"})
    ask.reply(200, {"success": [], "failed": failed})


def commit(ask: Exchange, repo: str, rev: str) -> None:
    if ask.headers.get("Content-Type") != "application/x-ndjson":
        raise Refusal(400, "", "Expected newline-delimited JSON")
    lines = [json.loads(line) for line in b"".join(ask.chunks()).splitlines() if line]
    state, account = may_commit(ask, repo, rev)
    head, parent = ask.store.commit_of(state, rev)
    if not lines or lines[0]["key"] != "header" or not lines[0]["value"].get("summary"):
        raise Refusal(400, "", "The first line must be a header with a summary")
    header = lines[0]["value"]
    if header.get("parentCommit") not in (None, head):
        raise Refusal(412, "", "A commit has happened since. Please refresh and try again.")
    files = dict(parent["files"])
    for line in lines[1:]:
        apply(ask, files, state, line["key"], line["value"])
    name_large(ask, files)
    pull = "create_pr" in ask.query
    number = sum(name.startswith("refs/pr/") for name in state["refs"]) + 1
    ref = f"refs/pr/{number}" if pull else rev
    if ref not in state["refs"] and not pull:
        raise Refusal(400, "", f"{rev} is not a branch")
    oid = ask.store.add_commit(repo, ref, files, header["summary"], header.get("description", ""), account, head)
    base = f"{ask.server.endpoint}/{repo}"
    value = {"success": True, "commitOid": oid, "commitUrl": f"{base}/commit/{oid}", "hookOutput": ""}
    ask.reply(200, value | ({"pullRequestUrl": f"{base}/discussions/{number}"} if pull else {}))


def name_large(ask: Exchange, files: dict[str, Any]) -> None:
    """As the Hub does: a line of .gitattributes for every large file that no pattern there names."""
    entry = files.get(".gitattributes")
    text = (ask.store.root / "blobs" / entry["oid"]).read_text() if entry else ""
    missing = [path for path, file in files.items() if file["lfs"] and upload_mode(path, 1, b"", text, 1) != "lfs"]
    if missing:
        text += "".join(f"{path} filter=lfs diff=lfs merge=lfs -text\n" for path in missing)
        files[".gitattributes"] = ask.store.add_blob(text.encode())


def apply(ask: Exchange, files: dict[str, Any], state: dict[str, Any], key: str, value: dict[str, Any]) -> None:
    path = checked_path(value["path"])
    if key == "file":
        content = base64.b64decode(value["content"], validate=True)
        if len(content) > REGULAR_LIMIT:
            raise Refusal(413, "", f"{path} is too large for git: send it as LFS")
        if path == "README.md" and (errors := card.faults(content.decode())[0]):
            raise Refusal(400, "", "Invalid metadata in README.md: " + "; ".join(errors))
        files[path] = ask.store.add_blob(content)
    elif key == "lfsFile":
        if value["oid"] not in state["lfs"] or not ask.store.object(value["oid"]).exists():
            raise Refusal(400, "", f"LFS pointer pointed to a file that does not exist: {path}")
        files[path] = ask.store.lfs_entry(value["oid"])
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
