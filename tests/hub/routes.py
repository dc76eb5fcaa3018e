"""The routes of the Hub's protocol, one function each: what is allowed, what is kept, what is answered.

    GET /api/models/alice/toy/tree/main  ->  [{"type": "file", "path": "config.json", "size": 612}, ...]

``ROUTES`` at the end is the table; ``server.py`` reads requests and writes answers.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.hub import card
from tests.hub.store import Refusal, as_file
from tests.hub.uploads import check_link, commit, duplicate, lfs_batch, lfs_verify, preupload, put_object, storage

if TYPE_CHECKING:
    from tests.hub.server import Exchange

REGULAR_LIMIT = 10 * 1024 * 1024
NAME = r"(?P<repo>[\w.-]+/[\w.-]+)"
REV = r"(?P<rev>[^/]+)"


# accounts and repositories


def whoami(ask: Exchange) -> None:
    account = ask.member()
    orgs = [{"type": "org", "name": name, "roleInOrg": role} for name, role in account.orgs.items()]
    token = {"type": "access_token", "accessToken": {"displayName": "test", "role": account.role}}
    ask.reply(200, {"type": "user", "id": account.name, "name": account.name, "orgs": orgs, "auth": token})


def create(ask: Exchange) -> None:
    value = ask.json()
    account = ask.member()
    name, owner = value.get("name", ""), value.get("organization") or account.name
    if not re.fullmatch(r"(?!.*(--|\.\.))[A-Za-z0-9_](?:[\w.-]{0,94}[\w])?", name, re.ASCII) or name.endswith(".git"):
        raise Refusal(400, "", f"Invalid repo name: {name}")
    if value.get("type", "model") != "model":
        raise Refusal(400, "", "This server keeps models only")
    private = value.get("visibility") == "private" or bool(value.get("private"))
    repo = f"{owner}/{name}"
    try:
        ask.store.create(repo, private=private, account=account)
    except Refusal as refusal:
        if refusal.status != 409:
            raise
        return ask.reply(409, {"error": refusal.message, "url": f"{ask.server.endpoint}/{repo}"})
    return ask.reply(200, {"url": f"{ask.server.endpoint}/{repo}", "name": repo, "id": repo})


def settings(ask: Exchange, repo: str) -> None:
    value = ask.json()
    state = ask.store.repo(repo, ask.account(), write=True)
    if "visibility" in value or "private" in value:
        state["private"] = value.get("visibility") == "private" or bool(value.get("private"))
    state["gated"] = value.get("gated", state["gated"])
    ask.store.save(repo, state)
    ask.reply(200, {"private": state["private"], "gated": state["gated"]})


def auth_check(ask: Exchange, repo: str, write: str) -> None:
    ask.store.repo(repo, ask.account(), write=bool(write), content=True)
    ask.reply(200, {})


def validate_yaml(ask: Exchange) -> None:
    errors, warnings = card.faults(ask.json()["content"])
    found = {"errors": [{"message": text} for text in errors], "warnings": [{"message": text} for text in warnings]}
    ask.reply(400 if errors else 200, found)


def info(ask: Exchange, repo: str, rev: str = "main") -> None:
    state = ask.store.repo(repo, ask.account())
    oid, commit = ask.store.commit_of(state, rev)
    siblings = [
        {"rfilename": path, **(entry if "blobs" in ask.query else {})} for path, entry in commit["files"].items()
    ]
    card = card_of(ask, commit)
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
    ask.reply(200, value | ({"cardData": card} if card and ask.server.tells_card else {}))


def card_of(ask: Exchange, commit: dict[str, Any]) -> dict[str, Any]:
    entry = commit["files"].get("README.md")
    if entry is None:
        return {}
    match = re.match(r"\A---\s*\n(.*?)\n?---", (ask.store.root / "blobs" / entry["oid"]).read_text(), re.DOTALL)
    value = yaml.safe_load(match[1]) if match else None
    return value if isinstance(value, dict) else {}


def refs(ask: Exchange, repo: str) -> None:
    refs = ask.store.repo(repo, ask.account())["refs"]
    branches = [
        {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid}
        for name, oid in refs.items()
        if "/" not in name
    ]
    pulls = [
        {"name": name, "ref": name, "targetCommit": oid} for name, oid in refs.items() if name.startswith("refs/pr/")
    ]
    ask.reply(200, {"branches": branches, "tags": [], "converts": [], "pullRequests": pulls})


def commits(ask: Exchange, repo: str, rev: str) -> None:
    state = ask.store.repo(repo, ask.account())
    at: str | None = ask.store.commit_of(state, rev)[0]
    found = []
    while at is not None:
        commit = ask.store.commit(at)
        about = {"title": commit["title"], "message": commit["description"], "date": commit["date"]}
        found.append({"id": at, **about, "authors": [{"user": commit["author"]}]})
        at = commit["parent"]
    ask.reply(200, found)


# listings


def tree(ask: Exchange, repo: str, rev: str, path: str) -> None:
    state = ask.store.repo(repo, ask.account())
    _, commit = ask.store.commit_of(state, rev)
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
    if ask.query.get("recursive", ["false"])[0].lower() != "true":
        found = [item for item in found if "/" not in item["path"][len(inside) :]]
    found.sort(key=lambda item: item["path"])
    size, start = 50, int(ask.query.get("cursor", ["0"])[0])
    links = {}
    if start + size < len(found):
        query = f"recursive={ask.query.get('recursive', ['false'])[0]}&cursor={start + size}"
        links["Link"] = f'<{ask.server.endpoint}{urlsplit(ask.path).path}?{query}>; rel="next"'
    ask.reply(200, found[start : start + size], **links)


def paths_info(ask: Exchange, repo: str, rev: str) -> None:
    body = b"".join(ask.chunks())
    kind = ask.headers.get("Content-Type", "")
    paths = json.loads(body)["paths"] if "json" in kind else parse_qs(body.decode()).get("paths", [])
    _, commit = ask.store.commit_of(ask.store.repo(repo, ask.account()), rev)
    ask.reply(200, [as_file(path, commit["files"][path]) for path in paths if path in commit["files"]])


# downloading


def resolve(ask: Exchange, repo: str, rev: str, path: str) -> None:
    state = ask.store.repo(repo, ask.account(), content=True)
    oid, commit = ask.store.commit_of(state, rev)
    entry = commit["files"].get(path)
    if entry is None:
        raise Refusal(404, "EntryNotFound", "Entry not found")
    headers = {
        "X-Repo-Commit": oid,
        "Access-Control-Expose-Headers": "X-Repo-Commit,X-Linked-Size,X-Linked-ETag,ETag",
    }
    if not entry["lfs"]:
        return ask.send_file(ask.store.root / "blobs" / entry["oid"], entry["oid"], **headers)
    sha256, expires = entry["lfs"]["oid"], int(time.time()) + 3600
    link = f"{storage(ask)}/get/{sha256}?expires={expires}&signature={ask.server.sign('get', sha256, expires)}"
    headers |= {"X-Linked-Size": str(entry["size"]), "X-Linked-ETag": f'"{sha256}"', "Location": link}
    return ask.reply(302, None, **headers)


def get_object(ask: Exchange, oid: str) -> None:
    check_link(ask, "get", oid, ask.query["expires"][0])
    ask.send_file(ask.store.object(oid), oid)


def xet_token(ask: Exchange, repo: str) -> None:
    raise Refusal(404, "", "Not Found")


ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("GET", "/api/whoami-v2", whoami),
    ("POST", "/api/repos/create", create),
    ("POST", "/api/validate-yaml", validate_yaml),
    ("PUT", f"/api/models/{NAME}/settings", settings),
    ("GET", f"/api/models/{NAME}/auth-check(?P<write>/write)?", auth_check),
    ("GET", f"/api/models/{NAME}", info),
    ("GET", f"/api/models/{NAME}/revision/{REV}", info),
    ("GET", f"/api/models/{NAME}/refs", refs),
    ("GET", f"/api/models/{NAME}/commits/{REV}", commits),
    ("GET", f"/api/models/{NAME}/tree/{REV}/?(?P<path>.*)", tree),
    ("POST", f"/api/models/{NAME}/paths-info/{REV}", paths_info),
    ("POST", f"/api/models/{NAME}/preupload/{REV}", preupload),
    ("POST", f"/api/models/{NAME}/commit/{REV}", commit),
    ("POST", f"/api/models/{NAME}/lfs-files/duplicate", duplicate),
    ("GET", f"/api/models/{NAME}/xet-(read|write)-token/.*", xet_token),
    ("POST", rf"/{NAME}\.git/info/lfs/objects/batch", lfs_batch),
    ("POST", rf"/{NAME}\.git/info/lfs/verify", lfs_verify),
    ("PUT", "/_storage/put/(?P<oid>[0-9a-f]{64})", put_object),
    ("GET HEAD", "/_storage/get/(?P<oid>[0-9a-f]{64})", get_object),
    ("GET HEAD", f"/{NAME}/resolve/{REV}/(?P<path>.+)", resolve),
]
