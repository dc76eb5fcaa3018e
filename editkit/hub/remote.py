"""The Hub as the rest of this folder sees it: one client, file listings, byte ranges, and errors a person can act on.

    api = connect()
    listing(api, "alice/no-swear", "main")["model.safetensors"]
    RemoteFile(path="model.safetensors", size=2471645608, blob="8d03...", sha256="1ea1...", copyable=True)

The library's own exceptions hold the request and with it the token. None of them leaves this file: ``ask`` replaces
each with an ``EditkitError`` that has no cause and no context, and whose text holds no token and no signed link.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from editkit.checkpoints.files import printable
from editkit.errors import EditkitError, IntegrityError, Unreachable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Answer = TypeVar("Answer")

PIECE = 64 * 1024 * 1024
"""Bytes fetched per request: few requests, little to repeat when one breaks, little memory."""

NO_XET = (
    "this server has no Xet storage. Set HF_HUB_DISABLE_XET=1 in the environment and run the same command again: "
    "large files then travel as Git LFS."
)


@dataclass(frozen=True)
class RemoteFile:
    """One file of a repository at one revision.

    Args:
        blob: git's sha1 of the file, or of its pointer where the file is large.
        sha256: of the content, for large files only: the Hub knows no sha256 of small ones.
        copyable: the server can copy it into another repository.
    """

    path: str
    size: int
    blob: str
    sha256: str | None = None
    copyable: bool = False


def connect(api: HfApi | None = None) -> HfApi:
    """The client to use: ``api``, or the one that huggingface_hub is set to; with the stored token if it has none."""
    from huggingface_hub import HfApi, get_token

    api = api or HfApi()
    return HfApi(endpoint=api.endpoint, token=get_token() or False if api.token is None else api.token)


def ask(api: HfApi, doing: str, call: Callable[[], Answer]) -> Answer:
    """Run a call of the library; its failures become an ``EditkitError`` that starts with ``doing``."""
    from huggingface_hub import errors as hub

    try:
        return call()
    except (network(), hub.FileDuplicationError, OSError, ValueError, RuntimeError) as error:
        problem, unreached = _explain(error, api), _is_unreached(error)
    kind = Unreachable if unreached else EditkitError
    raise kind(f"{doing}: {problem}")  # outside the handler: the original, which holds the token, is gone


def network() -> type[Exception]:
    """The root of what the library's HTTP stack raises."""
    from huggingface_hub.errors import HfHubHTTPError

    return HfHubHTTPError.__bases__[0]


def head_of(api: HfApi, repo: str, revision: str | None = None) -> str | None:
    """The commit a revision names; None where the repository has no commit yet."""
    return ask(api, repo, lambda: api.model_info(repo, revision=revision)).sha


def listing(api: HfApi, repo: str, revision: str | None) -> dict[str, RemoteFile]:
    """Every file of a revision, by path."""
    from huggingface_hub import errors as hub
    from huggingface_hub.hf_api import RepoFile

    def call() -> dict[str, RemoteFile]:
        try:
            entries = list(api.list_repo_tree(repo, recursive=True, revision=revision))
        except (hub.RevisionNotFoundError, hub.RemoteEntryNotFoundError):
            if revision is not None:
                raise
            return {}  # a repository without any commit
        return {entry.path: _remote_file(entry) for entry in entries if isinstance(entry, RepoFile)}

    return ask(api, f"{repo}: listing its files", call)


def read_bytes(api: HfApi, repo: str, revision: str, path: str, start: int, end: int) -> bytes:
    """``file[start:end]`` of a remote file, fetched now (no cache)."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_backoff

    if start == end:
        return b""
    url = hf_hub_url(repo, path, revision=revision, endpoint=api.endpoint)

    def call() -> bytes:
        headers = {**build_hf_headers(token=api.token), "Range": f"bytes={start}-{end - 1}"}
        response = http_backoff("GET", url, headers=headers)
        hf_raise_for_status(response)
        whole = response.status_code == 200 and len(response.content) >= end  # a server without ranges
        return response.content[start:end] if whole else response.content

    content = ask(api, f"{repo}: reading {printable(path)}", call)
    if len(content) != end - start:
        raise IntegrityError(
            f"{repo}: {printable(path)}: asked for {end - start} bytes from byte {start}, received {len(content)}: "
            "the file is shorter than its listing says."
        )
    return content


def clean(text: str, token: str | bool | None) -> str:
    """The text without the token, without anything that looks like one, and without the signatures of signed links."""
    if isinstance(token, str) and token:
        text = text.replace(token, "***")
    text = re.sub(r"\bhf_[A-Za-z0-9_]{6,}", "***", text)
    return re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]+", r"\1", text)


def _remote_file(entry: object) -> RemoteFile:
    from huggingface_hub.hf_api import RepoFile

    assert isinstance(entry, RepoFile)
    sha256 = entry.lfs.sha256.lower().removeprefix("sha256:") if entry.lfs else None
    return RemoteFile(entry.path, entry.size, entry.blob_id, sha256, copyable=bool(sha256 and entry.xet_hash))


def _is_unreached(error: BaseException) -> bool:
    from huggingface_hub import errors as hub

    answered = getattr(getattr(error, "response", None), "status_code", None) is not None
    return isinstance(error, hub.OfflineModeIsEnabled) or (isinstance(error, network() | OSError) and not answered)


def _explain(error: BaseException, api: HfApi) -> str:
    """What went wrong and what to do."""
    from huggingface_hub import errors as hub

    told = " ".join(dict.fromkeys(str(each) for each in (error, error.__cause__) if each))
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "xet-write-token" in told or "xet-read-token" in told:
        return NO_XET
    if isinstance(error, hub.OfflineModeIsEnabled):
        return "offline mode is on. Unset HF_HUB_OFFLINE and connect."
    if isinstance(error, hub.GatedRepoError):
        return "the repository is gated. Accept its terms on its page, then log in with `hf auth login`."
    if isinstance(error, hub.RepositoryNotFoundError):
        return "no such repository, or it is private. Check the spelling and log in with `hf auth login`."
    if isinstance(error, hub.RevisionNotFoundError):
        return "no such revision. Give a commit, a branch, a tag or refs/pr/N."
    if isinstance(error, hub.RemoteEntryNotFoundError):
        return "no such file there."
    if status == 401:
        return "the token is not valid. Log in with `hf auth login`, or set HF_TOKEN."
    if status == 403:
        method = getattr(getattr(getattr(error, "response", None), "request", None), "method", None)
        needed = "that may read this repository" if method in ("GET", "HEAD") else "with write permission"
        return f"the token does not allow this ({_server_message(error, api)}). Use one {needed}."
    if status == 412:
        return "somebody committed meanwhile. Look at their commit, then run the same command again."
    if type(error).__name__ in ("ConnectError", "ConnectTimeout"):
        return f"{api.endpoint} cannot be reached ({printable(clean(told, api.token))}). Connect, then run this again."
    if isinstance(error, RuntimeError) or _is_unreached(error):
        return (
            f"the connection broke ({printable(clean(told, api.token))}). Run the same command again: "
            "what has arrived is kept."
        )
    return printable(clean(_server_message(error, api), api.token))


def _server_message(error: BaseException, api: HfApi) -> str:
    message = getattr(error, "server_message", None) or str(error)
    return printable(clean(" ".join(message.split()), api.token))
