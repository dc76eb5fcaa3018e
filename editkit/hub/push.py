"""Publish a finished checkpoint: re-hash it, plan, send it in one commit, and compare what arrived with the manifest.

    push(Path("no-swear"), "alice/no-swear", dry_run=True).operations
    (Operation("upload", "README.md", 9120), Operation("copy", "model-00002-of-00002.safetensors", 4999802720), ...)

Everything arrives in a single commit, so a broken push leaves no half release; large files that arrived before it broke
are not sent again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import editkit
from editkit.checkpoints.files import printable
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.hub.changes import LocalFile, Operation, is_same, needed, sent_again, strangers
from editkit.hub.preflight import Allow, Preflight, preflight
from editkit.hub.release import Release, read_release
from editkit.hub.remote import Answer, RemoteFile, ask, connect, listing, read_bytes
from editkit.units import show
from editkit.writing import manifest

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Files = Mapping[str, LocalFile]
"""By path in the repository."""


@dataclass(frozen=True)
class Pushed:
    """What a push did, or with ``dry_run`` would do. ``commit`` is None for a dry run."""

    repo: str
    url: str
    private: bool
    operations: tuple[Operation, ...]
    commit: str | None = None
    pull_request: str | None = None
    notes: tuple[str, ...] = ()

    def bytes(self, kind: str) -> int:
        """How many bytes the operations of one kind move."""
        return sum(operation.bytes for operation in self.operations if operation.kind == kind)


def push(
    out: Path,
    repo: str,
    *,
    public: bool = False,
    create_pr: bool = False,
    dry_run: bool = False,
    allow: Allow = Allow(),
    api: HfApi | None = None,
) -> Pushed:
    """Publish ``out`` as ``repo``, private unless ``public``.

    Args:
        create_pr: as a pull request to a repository that exists.
        dry_run: list every operation and its bytes, and change nothing anywhere.
        allow: what to publish in spite of: a verdict that was not met (the published card, its manifest and the commit
            say so), a gated base, files that look like secrets.
        api: the Hub to publish on; default: the one that huggingface_hub is set to, with the stored token.

    Raises:
        IntegrityError: when ``out`` is not what its manifest says, or what arrived is not what was sent.
        EditkitError: when anything is in the way; nothing was sent then.
    """
    release = read_release(out, allow_unmet=allow.unmet)
    api, base = connect(api), release.edit.base
    checked = preflight(
        repo, base=base, out=out, public=public, create_pr=create_pr, dry_run=dry_run, allow=allow, api=api
    )
    files = release.files_for(checked.repo)
    there = listing(api, checked.repo, checked.head) if checked.head else {}
    shelf = listing(api, base.model, base.revision) if checked.base_on_hub else {}
    operations = needed(files.values(), there, shelf, _earlier(api, checked, there))
    theirs, notes = strangers(operations, there), checked.notes
    if theirs:
        notes = (*notes, f"Not from editkit, so they stay; `editkit pull-verify` will name them: {_listed(theirs)}.")
    if repeated := sent_again(operations, files, shelf):
        size = sum(files[path].size for path in repeated)
        notes = (
            *notes,
            f"Uploaded again, as this server copies no files of the base: {_listed(repeated)}, {size:,} bytes.",
        )
    pushed = Pushed(checked.repo, f"{api.endpoint}/{checked.repo}", checked.private, operations, notes=notes)
    return pushed if dry_run else _send(api, release, files, checked, pushed, create_pr=create_pr)


def _earlier(api: HfApi, checked: Preflight, there: Mapping[str, RemoteFile]) -> Mapping[str, tuple[str, int]]:
    """What the manifest lists that is in the repository; nothing where there is none, or none that is whole."""
    if checked.head is None or manifest.NAME not in there:
        return {}
    raw = read_bytes(api, checked.repo, checked.head, manifest.NAME, 0, there[manifest.NAME].size)
    try:
        return manifest.parse(raw).files
    except IntegrityError:
        return {}


def _listed(names: Sequence[str]) -> str:
    return printable(", ".join(names[:10])) + (", ..." if len(names) > 10 else "")


def push_finished(out: Path, repo: str) -> Pushed:
    """``push`` at the end of a long run: should it fail, the error says that the run's work is not lost.

    Raises:
        EditkitError: as ``push``, with the command that sends the finished directory.
    """
    try:
        return push(out, repo)
    except EditkitError as error:
        again = f"editkit push {shlex.quote(str(out))} {shlex.quote(repo)}"
        told = type(error)(f"{error}\n{printable(str(out))} is finished and stays. To publish it: {again}")
    raise told


def _send(api: HfApi, release: Release, files: Files, checked: Preflight, pushed: Pushed, *, create_pr: bool) -> Pushed:
    repo, operations, notes = checked.repo, pushed.operations, pushed.notes
    if not checked.exists:
        ask(api, f"Creating {repo}", lambda: api.create_repo(repo, private=checked.private, exist_ok=True))
    if all(operation.kind == "keep" for operation in operations):
        _compare(api, repo, checked.head, files)
        return replace(pushed, commit=checked.head, notes=(*notes, NOTHING_NEW))
    commit = _commit_or_none(api, release, files, checked, operations, create_pr=create_pr)
    if commit is None:
        notes = (*notes, "The server could not copy files of the base; they were uploaded instead.")
        operations = tuple(
            Operation("upload", one.path, one.bytes) if one.kind == "copy" else one for one in operations
        )
        commit = ask(
            api, f"Pushing to {repo}", lambda: _commit(api, release, files, checked, operations, create_pr=create_pr)
        )
    _compare(api, repo, commit.oid, files)
    return replace(pushed, operations=operations, commit=commit.oid, pull_request=commit.pr_url, notes=notes)


NOTHING_NEW = "The repository already holds exactly these files; nothing was sent."


def _commit_or_none(
    api: HfApi,
    release: Release,
    files: Files,
    checked: Preflight,
    operations: Sequence[Operation],
    *,
    create_pr: bool,
) -> Any:
    """The commit, or None where the server cannot copy between repositories."""
    from huggingface_hub import errors as hub

    def call() -> Any:
        try:
            return _commit(api, release, files, checked, operations, create_pr=create_pr)
        except hub.FileDuplicationError:
            return None
        except hub.HfHubHTTPError as error:
            if not error.response.request.url.path.endswith("/lfs-files/duplicate"):
                raise
            return None

    return ask(api, f"Pushing to {checked.repo}", call)


def _commit(
    api: HfApi,
    release: Release,
    files: Files,
    checked: Preflight,
    operations: Sequence[Operation],
    *,
    create_pr: bool,
) -> Any:
    from huggingface_hub.constants import REGEX_COMMIT_OID

    head = checked.head if checked.head and REGEX_COMMIT_OID.fullmatch(checked.head) else None

    def commit() -> Any:
        made = (_as_commit_operation(operation, release.edit.base, files) for operation in operations)
        return api.create_commit(
            checked.repo,
            [each for each in made if each],
            commit_message=_title(release.edit),
            commit_description=_description(release),
            create_pr=create_pr,
            parent_commit=head,
        )

    return with_fresh_clients(commit)


CLOSED, RESETS = "client has been closed", 3


def with_fresh_clients(commit: Callable[[], Answer]) -> Answer:
    """The commit, begun again where its client was closed: what has arrived is not sent again.

    The uploads of a commit share a client, and huggingface_hub closes it under all of them when one loses its
    connection.
    """
    for _ in range(RESETS):
        try:
            return commit()
        except RuntimeError as error:
            if CLOSED not in f"{error} {error.__cause__}":
                raise
    return commit()


def _as_commit_operation(operation: Operation, base: Base, files: Files) -> Any:
    from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete

    if operation.kind == "upload":
        return CommitOperationAdd(operation.path, files[operation.path].content)
    if operation.kind == "copy":
        assert operation.source is not None
        return CommitOperationCopy(
            operation.source, operation.path, base.revision, src_repo_id=base.model, src_repo_type="model"
        )
    return CommitOperationDelete(operation.path) if operation.kind == "delete" else None


def _title(edit: Edit) -> str:
    kind = edit.kind if len(edit.units) == 1 else f"{edit.kind}s"
    return f"Remove {len(edit.units)} {kind} with editkit {editkit.__version__}"


def _description(release: Release) -> str:
    lines = [f"Units: {', '.join(show(release.edit.units))}", f"Edit: sha256 {release.edit.digest}"]
    if release.reduced:
        lines.append("The capability is reduced, not removed: the goal was missed, as the card says.")
    if release.override:
        lines += ["Published although its verdict was not met:", *(f"- {reason}" for reason in release.override)]
    return "\n".join(lines)


def _compare(api: HfApi, repo: str, commit: str | None, files: Files) -> None:
    """What the server now holds must be what the manifest lists."""
    there = listing(api, repo, commit)
    absent = sorted(files.keys() - there.keys())
    other = sorted(
        path for path in files.keys() & there.keys() if not _arrived(api, repo, commit, files[path], there[path])
    )
    if absent or other:
        lines = [f"{printable(path)} is missing" for path in absent] + [f"{printable(path)} differs" for path in other]
        raise IntegrityError(
            f"{repo} at {commit}: not what was sent: {'; '.join(lines)}. Do not use this commit; "
            "check for a .gitignore there that leaves files out, then push again."
        )


def _arrived(api: HfApi, repo: str, commit: str | None, file: LocalFile, there: Any) -> bool:
    if is_same(file, there):
        return True
    # A server may name small files in another way than git does: then only their bytes tell.
    if there.sha256 is not None or there.size != file.size or commit is None:
        return False
    return read_bytes(api, repo, commit, file.path, 0, file.size) == file.read()
