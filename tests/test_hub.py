"""Publishing, end to end: the unmodified client against a server that speaks the Hub's protocol on loopback."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from editkit.edit import Base
from editkit.errors import EditkitError, IntegrityError, UsageError
from editkit.hub import preflight, pull_verify, push
from editkit.manifest import NAME as MANIFEST
from editkit.verify import verify
from tests.hub_checkpoint import CARD, REASON, UNITS, finish, save_base
from tests.hub_server import Hub

ROOT = Path(__file__).parents[1]
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
        command = [sys.executable, "-m", "tests.hub_server", str(self.data), "--port", port, *options]
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

    def api(self, token: str | bool = ALICE) -> Any:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=token)


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


def publish_base(hub: Server, base: Path, *, private: bool = False) -> Base:
    hub.api().create_repo("team/base", private=private)
    commit = hub.api().upload_folder(repo_id="team/base", folder_path=base)
    return Base("team/base", commit.oid)


# Preflight


def test_preflight_of_a_new_repository(hub: Server, named: Base, out: Path) -> None:
    found = preflight("no-swear", base=named, out=out, endpoint=hub.endpoint, token=ALICE)
    assert (found.repo, found.user, found.exists, found.private) == ("alice/no-swear", "alice", False, True)
    assert (found.base_on_hub, found.license, found.gated) == (True, "apache-2.0", False)
    assert found.bytes == sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert not hub.data.joinpath("repos/alice").exists()


@pytest.mark.parametrize(
    "name",
    [
        "a/b/c",
        "../x",
        "alice/..",
        "alice/x.git",
        "alice/a--b",
        "alice/-x",
        "alice/" + "x" * 97,
        "alice/ü",
        "a b",
        "alice/x\x1b[31m",
        "",
        "alice/",
        "https://x/y",
    ],
)
def test_names_the_hub_would_refuse_are_refused_first(hub: Server, name: str) -> None:
    with pytest.raises(UsageError, match="no repository name") as caught:
        preflight(name, base=None, endpoint=hub.endpoint, token=ALICE)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("token", "repo", "message"),
    [
        (None, "alice/x", "No Hub token"),
        ("hf_nobody", "alice/x", "token is not valid"),
        (READER, "alice/x", "may only read"),
        (ALICE, "bob/x", "may not create repositories there. Your names are: alice, lab, team"),
        (ALICE, "lab/x", "your role there is to read"),
        (BOB, "team/base", "write permission"),
    ],
)
def test_who_may_not_write_is_told_so(hub: Server, named: Base, token: str | None, repo: str, message: str) -> None:
    with pytest.raises(EditkitError, match=message):
        preflight(repo, base=named, public=True, endpoint=hub.endpoint, token=token)


def test_a_pull_request_needs_a_repository(hub: Server, named: Base) -> None:
    with pytest.raises(EditkitError, match="nothing to open a pull request on"):
        preflight("alice/none", base=named, create_pr=True, endpoint=hub.endpoint, token=ALICE)


def test_other_peoples_files_are_not_replaced(hub: Server, named: Base) -> None:
    with pytest.raises(EditkitError, match="files that editkit did not put there"):
        preflight("team/base", base=named, public=True, endpoint=hub.endpoint, token=ALICE)


@pytest.mark.parametrize("exists_private", [True, False])
def test_visibility_never_comes_as_a_surprise(hub: Server, named: Base, exists_private: bool) -> None:
    hub.api().create_repo("alice/x", private=exists_private)
    with pytest.raises(EditkitError, match="exists and is"):
        preflight("alice/x", base=named, public=exists_private, endpoint=hub.endpoint, token=ALICE)
    found = preflight("alice/x", base=named, public=not exists_private, endpoint=hub.endpoint, token=ALICE)
    assert found.exists and found.private is exists_private


@pytest.mark.parametrize("restriction", ["gated", "private"])
def test_a_restricted_base_is_not_given_away(hub: Server, base: Path, restriction: str) -> None:
    named = publish_base(hub, base, private=restriction == "private")
    if restriction == "gated":
        hub.api().update_repo_settings("team/base", gated="auto")
    ask = {"base": named, "endpoint": hub.endpoint, "token": ALICE}
    with pytest.raises(EditkitError, match=f"team/base is {restriction}"):
        preflight("alice/x", public=True, **ask)
    assert preflight("alice/x", public=True, allow_gated=True, **ask).gated
    assert preflight("alice/x", **ask).gated


def test_the_bases_licence_and_notices_travel(hub: Server, tmp_path: Path, base: Path, named: Base) -> None:
    other = finish(tmp_path / "mit", base, named, card=CARD.replace("apache-2.0", "mit"))
    with pytest.raises(EditkitError, match="says licence mit, the base is under apache-2.0"):
        preflight("alice/x", base=named, out=other, endpoint=hub.endpoint, token=ALICE)
    bare = finish(tmp_path / "bare", base, named)
    (bare / "LICENSE").unlink()
    with pytest.raises(EditkitError, match="LICENSE of team/base is missing"):
        preflight("alice/x", base=named, out=bare, endpoint=hub.endpoint, token=ALICE)


# Push


def test_the_round_trip(hub: Server, out: Path, tmp_path: Path) -> None:
    pushed = push(out, "alice/no-swear", endpoint=hub.endpoint, token=ALICE)
    there = {
        file.path: file for file in hub.api().list_repo_tree("alice/no-swear", recursive=True, revision=pushed.commit)
    }
    assert pushed.private and hub.api().model_info("alice/no-swear").private
    for path in (path for path in out.rglob("*") if path.is_file()):
        assert there[path.relative_to(out).as_posix()].size == path.stat().st_size
    checked = pull_verify("alice/no-swear", endpoint=hub.endpoint, token=ALICE)
    assert checked.units == UNITS and checked.commit == pushed.commit
    assert checked.zeroed == 2 * 64 * 16 * 4 and checked.unchanged >= 6
    got = load_elsewhere(hub, tmp_path, "alice/no-swear")
    verify(got)
    assert snapshot(got) == {**snapshot(out), ".gitattributes": (got / ".gitattributes").read_bytes()}


def test_unchanged_shards_are_copied_on_the_server(hub: Server, out: Path) -> None:
    before = len(hub.uploads())
    pushed = push(out, "alice/no-swear", endpoint=hub.endpoint, token=ALICE)
    edited = {row["file"] for row in json.loads((out / MANIFEST).read_text())["edited"]}
    shards = {path.name for path in out.glob("*.safetensors")}
    kinds = {operation.path: operation.kind for operation in pushed.operations}
    assert len(shards) >= 4 and len(edited) == 1
    assert {path for path, kind in kinds.items() if kind == "copy"} == shards - edited
    arrived = hub.uploads()[before:]
    sizes = [(out / path).stat().st_size for path in (*edited, "editkit/undo.safetensors")]
    assert sorted(arrived) == sorted(sizes)


def test_a_server_that_cannot_copy_gets_uploads(hub: Server, out: Path) -> None:
    assert hub.thread is not None
    hub.thread.copies = False
    pushed = push(out, "alice/no-swear", endpoint=hub.endpoint, token=ALICE)
    assert pushed.bytes("copy") == 0 and any("could not copy" in note for note in pushed.notes)
    assert pull_verify("alice/no-swear", endpoint=hub.endpoint, token=ALICE).units == UNITS


def test_a_base_from_elsewhere_is_uploaded_whole(hub: Server, tmp_path: Path, base: Path) -> None:
    from editkit.source import resolve

    local = resolve(base).base
    out = finish(tmp_path / "out", base, local)
    pushed = push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert pushed.bytes("copy") == 0 and any("not on this server" in note for note in pushed.notes)
    with pytest.raises(EditkitError, match="--base"):
        pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE)
    assert pull_verify("alice/x", base=base, endpoint=hub.endpoint, token=ALICE).units == UNITS


def test_pushing_again_sends_nothing_and_a_changed_edit_replaces_the_old(
    hub: Server, out: Path, tmp_path: Path, base: Path, named: Base
) -> None:
    first = push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    again = push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert again.commit == first.commit and {operation.kind for operation in again.operations} == {"keep"}
    (base_with_more := tmp_path / "more").mkdir()
    for path in base.iterdir():
        (base_with_more / path.name).write_bytes(path.read_bytes())
    leaner = finish(tmp_path / "leaner", base, named, report=True, card=CARD + "\nAgain.\n")
    (leaner / "editkit/report.html").unlink()
    rewrite_manifest(leaner)
    third = push(leaner, "alice/x", endpoint=hub.endpoint, token=ALICE)
    kinds = {operation.path: operation.kind for operation in third.operations if operation.kind != "keep"}
    assert kinds == {"README.md": "upload", MANIFEST: "upload", "editkit/report.html": "delete"}
    assert pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE).units == UNITS


def test_a_dry_run_lists_everything_and_touches_nothing(hub: Server, out: Path) -> None:
    before = snapshot(hub.data)
    seen = len(hub.requests())
    dry = push(out, "alice/x", dry_run=True, endpoint=hub.endpoint, token=ALICE)
    assert snapshot(hub.data) == before and dry.commit is None
    assert {row["method"] for row in hub.requests()[seen:]} <= {"GET", "HEAD"}
    pushed = push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert pushed.operations == dry.operations
    files = {path.relative_to(out).as_posix(): path.stat().st_size for path in out.rglob("*") if path.is_file()}
    assert {operation.path: operation.bytes for operation in dry.operations} == files


def test_a_pull_request_proposes_and_changes_nothing(hub: Server, out: Path) -> None:
    hub.api().create_repo("alice/x", private=False)
    head = hub.api().model_info("alice/x").sha
    pushed = push(out, "alice/x", create_pr=True, endpoint=hub.endpoint, token=BOB)
    assert pushed.pull_request is not None and pushed.pull_request.endswith("/alice/x/discussions/1")
    assert hub.api().model_info("alice/x").sha == head
    assert pull_verify("alice/x", revision="refs/pr/1", endpoint=hub.endpoint, token=BOB).units == UNITS


def test_a_changed_file_is_never_pushed(hub: Server, out: Path) -> None:
    with (out / "config.json").open("a") as file:
        file.write(" ")
    with pytest.raises(IntegrityError, match="config.json"):
        push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert not hub.data.joinpath("repos/alice").exists()


@pytest.mark.parametrize("report", [True, False])
def test_an_unmet_verdict_is_published_only_on_purpose_and_says_so(
    hub: Server, tmp_path: Path, base: Path, named: Base, report: bool
) -> None:
    out = finish(tmp_path / "out", base, named, met=False, report=report)
    files = snapshot(out)
    with pytest.raises(EditkitError, match="--allow-unmet"):
        push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert not hub.data.joinpath("repos/alice").exists()
    pushed = push(out, "alice/x", allow_unmet=True, endpoint=hub.endpoint, token=ALICE)
    assert snapshot(out) == files
    got = Path(hub.api().snapshot_download("alice/x", local_dir=tmp_path / "got"))
    card = (got / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0") and "**Published although its verdict was not met.**" in card
    assert "<b>" not in card
    [commit, *_] = hub.api().list_repo_commits("alice/x")
    assert commit.commit_id == pushed.commit and "verdict was not met" in commit.message
    if report:
        assert REASON in json.loads((got / "editkit/override.json").read_text())["reasons"]
    verify(got)
    assert pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE).units == UNITS


def test_a_commit_in_between_is_noticed(hub: Server, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.api().create_repo("alice/x", private=True)
    from editkit.hub import push as module  # noqa: F401

    real = sys.modules["editkit.hub.push"].plan

    def meanwhile(*args: Any) -> Any:
        hub.api().upload_file(repo_id="alice/x", path_or_fileobj=b"hello", path_in_repo="theirs.txt")
        return real(*args)

    monkeypatch.setattr(sys.modules["editkit.hub.push"], "plan", meanwhile)
    with pytest.raises(EditkitError, match="somebody committed meanwhile"):
        push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert "config.json" not in hub.api().list_repo_files("alice/x")


def test_a_gitignore_that_leaves_files_out_is_noticed(hub: Server, out: Path) -> None:
    hub.api().create_repo("alice/x", private=True)
    hub.api().upload_file(repo_id="alice/x", path_or_fileobj=b"*.html\n", path_in_repo=".gitignore")
    with pytest.raises(IntegrityError, match="report.html is missing.*gitignore"):
        push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)


def test_a_card_the_hub_refuses_stops_before_any_upload(hub: Server, tmp_path: Path, base: Path, named: Base) -> None:
    broken = finish(tmp_path / "out", base, named, card=CARD.replace("team/base", "/home/me/base"))
    before = len(hub.uploads())
    with pytest.raises(EditkitError, match="Invalid metadata in README.md.*/home/me/base"):
        push(broken, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert len(hub.uploads()) == before


def test_without_xet_the_remedy_is_named(hub: Server, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hf_xet")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    with pytest.raises(EditkitError, match="HF_HUB_DISABLE_XET=1"):
        push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)


# Interrupted uploads

PUSH = "import sys; from pathlib import Path; from editkit.hub import push; push(Path(sys.argv[1]), sys.argv[2])"


def start_push(hub: Server, out: Path, home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PUSH, str(out), "alice/x"], env=environment(hub, home), cwd=ROOT)


def environment(hub: Server, home: Path) -> dict[str, str]:
    mine = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": ALICE, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    return {**os.environ, **mine, "HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "1"}


def test_an_upload_resumes_after_server_and_client_were_killed(hub: Server, tmp_path: Path, base: Path) -> None:
    from editkit.source import resolve

    out = finish(tmp_path / "out", base, resolve(base).base)
    largest = max(path.stat().st_size for path in out.glob("*.safetensors"))
    total = sum(path.stat().st_size for path in out.rglob("*.safetensors"))
    hub.stop()
    hub.start("--die-after-bytes", str(largest + largest // 2))
    client = start_push(hub, out, tmp_path / "home")
    assert hub.process is not None
    hub.process.wait(timeout=60)
    assert hub.process.returncode == -signal.SIGKILL
    client.kill()
    client.wait()
    first = hub.uploads()
    assert 0 < sum(first) < total
    hub.start()
    assert not {"config.json", MANIFEST} & set(hub.api().list_repo_files("alice/x")), (
        "nothing may show before the commit"
    )
    push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert sum(hub.uploads()) == total, "what arrived whole must not be sent again"
    assert pull_verify("alice/x", base=base, endpoint=hub.endpoint, token=ALICE).units == UNITS


def test_a_client_outlives_a_server_that_comes_back(hub: Server, tmp_path: Path, base: Path) -> None:
    from editkit.source import resolve

    out = finish(tmp_path / "out", base, resolve(base).base)
    hub.stop()
    hub.start("--die-after-bytes", "250000")
    client = start_push(hub, out, tmp_path / "home")
    assert hub.process is not None
    hub.process.wait(timeout=60)
    hub.start()
    assert client.wait(timeout=60) == 0
    assert pull_verify("alice/x", base=base, endpoint=hub.endpoint, token=ALICE).units == UNITS


# The token


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
        push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
        pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE)
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
    ask = {"endpoint": hub.endpoint, "token": ALICE}
    yield lambda: preflight("bob/x", base=None, **ask)
    yield lambda: preflight("alice/x", base=None, endpoint=hub.endpoint, token=ALICE + "wrong")
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
    yield lambda: preflight("alice/x", base=None, endpoint="http://127.0.0.1:9", token=ALICE)


# Checking what others published


def test_a_stranger_can_check_a_public_edit(hub: Server, out: Path) -> None:
    push(out, "alice/x", public=True, endpoint=hub.endpoint, token=ALICE)
    seen = len(hub.requests())
    checked = pull_verify("alice/x", endpoint=hub.endpoint, token=BOB)
    assert checked.units == UNITS
    edited = [row["file"] for row in json.loads((out / MANIFEST).read_text())["edited"]]
    fetched = {row["path"].rpartition("/")[2] for row in hub.requests()[seen:] if "/resolve/" in row["path"]}
    assert checked.edited == tuple(sorted(set(edited)))
    assert not any(row["path"].startswith("/team/base/resolve") for row in hub.requests()[seen:]), (
        "the base is not fetched"
    )
    weights = sum((out / file).stat().st_size for file in edited)
    assert checked.read < weights + 100_000 and "config.json" in fetched


def corrupt(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("where", ["edited slice", "edited shard", "undo"])
def test_tampering_on_the_server_is_found(hub: Server, out: Path, where: str) -> None:
    """Stored bytes change behind the server's back: its listings still tell the old hashes."""
    push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    record = json.loads((out / MANIFEST).read_text())
    file = "editkit/undo.safetensors" if where == "undo" else record["edited"][0]["file"]
    from editkit.headers import read

    tensor = read(out).tensors[record["edited"][0]["tensor"]]
    place = -1 if where != "edited slice" else tensor.start + record["edited"][0]["spans"][0][0] * 4
    stored = hub.data / "objects" / record["files"][file]["sha256"]
    corrupt(stored, place if place >= 0 else stored.stat().st_size - 1)
    expected = (
        "is not zero" if where == "edited slice" else f"{file}: (its bytes are not those|not the file) of the manifest"
    )
    with pytest.raises(IntegrityError, match=expected):
        pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE)


def test_a_publisher_who_rewrites_the_manifest_is_found(hub: Server, tmp_path: Path, base: Path, named: Base) -> None:
    """Other weights in a shard that should be the base's, an altered config, a smuggled file; manifest in order."""
    honest = finish(tmp_path / "honest", base, named)
    edited = json.loads((honest / MANIFEST).read_text())["edited"][0]["file"]
    other = next(path.name for path in sorted(honest.glob("*.safetensors")) if path.name != edited)

    def shard(out: Path) -> None:
        corrupt(out / other, (out / other).stat().st_size - 1)

    def config(out: Path) -> None:
        text = (out / "config.json").read_text()
        (out / "config.json").write_text(text.replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-02'))

    def smuggled(out: Path) -> None:
        (out / "modeling_llama.py").write_text("print('run me')")

    def missing(out: Path) -> None:
        (out / "generation_config.json").unlink()

    def edited_shard(out: Path) -> None:
        corrupt(out / edited, (out / edited).stat().st_size - 1)

    for number, (tamper, expected) in enumerate(
        [
            (shard, other),
            (config, "config.json"),
            (smuggled, "modeling_llama.py"),
            (missing, "generation_config.json"),
            (edited_shard, edited),
        ]
    ):
        out = finish(tmp_path / f"out{number}", base, named)
        tamper(out)
        rewrite_manifest(out)
        publish_anyway(hub, out, f"alice/x{number}")
        with pytest.raises(IntegrityError, match=expected.replace(".", r"\.")):
            pull_verify(f"alice/x{number}", endpoint=hub.endpoint, token=ALICE)
    publish_anyway(hub, honest, "alice/honest")
    assert pull_verify("alice/honest", endpoint=hub.endpoint, token=ALICE).units == UNITS


def test_a_file_of_the_base_left_out_in_silence_is_found(hub: Server, tmp_path: Path, base: Path, named: Base) -> None:
    """Other formats of the weights must stay behind; a chat template must not."""
    hub.api().upload_file(repo_id="team/base", path_or_fileobj=b"pickle", path_in_repo="pytorch_model.bin")
    fine = hub.api().model_info("team/base").sha
    hub.api().upload_file(repo_id="team/base", path_or_fileobj=b"{{ x }}", path_in_repo="chat_template.jinja")
    more = hub.api().model_info("team/base").sha
    publish_anyway(hub, finish(tmp_path / "fine", base, Base("team/base", fine)), "alice/fine")
    assert pull_verify("alice/fine", endpoint=hub.endpoint, token=ALICE).units == UNITS
    publish_anyway(hub, finish(tmp_path / "more", base, Base("team/base", more)), "alice/more")
    with pytest.raises(IntegrityError, match="chat_template.jinja: a file of the base that is missing here"):
        pull_verify("alice/more", endpoint=hub.endpoint, token=ALICE)


def test_fewer_or_other_units_than_stated_are_found(hub: Server, out: Path) -> None:
    text = (out / "editkit/edit.json").read_text()
    (out / "editkit/edit.json").write_text(text.replace("L1H2", "L2H2"))
    rewrite_manifest(out)
    publish_anyway(hub, out, "alice/x")
    with pytest.raises(IntegrityError, match="undo file does not hold the slices of L1H0, L2H2"):
        pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE)


def test_what_is_no_edit_is_told_so(hub: Server, named: Base) -> None:
    with pytest.raises(IntegrityError, match="not a published edit"):
        pull_verify("team/base", endpoint=hub.endpoint, token=ALICE)


def test_an_undo_file_that_lies_is_found(hub: Server, out: Path) -> None:
    """Removed bytes that are not the base's: the edit could not be undone, and proves nothing."""
    undo = out / "editkit/undo.safetensors"
    corrupt(undo, undo.stat().st_size - 1)
    rewrite_manifest(out)
    publish_anyway(hub, out, "alice/x")
    with pytest.raises(IntegrityError, match="in more than the removed slices"):
        pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE)


def test_awkward_file_names_survive_and_hostile_ones_are_refused(hub: Server, tmp_path: Path, base: Path) -> None:
    import shutil

    shutil.copytree(base, tmp_path / "base")
    for name in ("template #1 (50%) & more.jinja", "ünïcödé 模型.txt", "a=b;c,d+e.txt"):
        (tmp_path / "base" / name).write_text(name)
    named = publish_base(hub, tmp_path / "base")
    out = finish(tmp_path / "out", tmp_path / "base", named)
    push(out, "alice/x", endpoint=hub.endpoint, token=ALICE)
    assert pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE).unchanged >= 9
    hub.api().upload_file(repo_id="alice/x", path_or_fileobj=b"x", path_in_repo="evil\u202egpj.py")
    with pytest.raises(IntegrityError, match="is no name of a file") as caught:
        pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE)
    assert "\u202e" not in str(caught.value)


def test_an_adapter_is_pushed_too_and_pull_verify_says_what_to_do(
    hub: Server, tmp_path: Path, base: Path, named: Base
) -> None:
    from editkit.edit import Edit
    from editkit.export import lora
    from editkit.source import Source
    from editkit.units import parse_all

    lora.write(Edit(named, parse_all("L1H2")), Source(base, named), tmp_path / "lora")
    (tmp_path / "lora/README.md").write_text(CARD)
    rewrite_manifest(tmp_path / "lora")
    pushed = push(tmp_path / "lora", "alice/x", allow_unmet=True, endpoint=hub.endpoint, token=ALICE)
    assert "adapter_model.safetensors" in {operation.path for operation in pushed.operations}
    with pytest.raises(EditkitError, match="is a lora, not a whole checkpoint"):
        pull_verify("alice/x", endpoint=hub.endpoint, token=ALICE)


# Helpers of these tests


def rewrite_manifest(out: Path) -> None:
    from editkit import manifest

    manifest.write(out, manifest.read(out))


def publish_anyway(hub: Server, out: Path, repo: str) -> None:
    """As somebody would who does not use editkit to push."""
    hub.api().create_repo(repo)
    with contextlib.redirect_stderr(io.StringIO()):
        hub.api().upload_folder(repo_id=repo, folder_path=out)


def snapshot(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "requests.jsonl")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


LOAD = """
import sys
from pathlib import Path
from huggingface_hub import snapshot_download
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
assert not model.model.layers[1].self_attn.o_proj.weight[:, 0:16].any()
assert model.model.layers[1].self_attn.o_proj.weight[:, 16:32].any()
folder = Path(snapshot_download(sys.argv[1]))
print(folder)
"""


def load_elsewhere(hub: Server, tmp_path: Path, repo: str) -> Path:
    """Load the repository with transformers and download it, in a fresh process with an empty cache."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, repo],
        env=environment(hub, tmp_path / "elsewhere"),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])
