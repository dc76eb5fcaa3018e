"""Publishing through the unmodified client, against a server that speaks the Hub's protocol on loopback.

If one fails: what arrives on the Hub is not what was proved here.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.evidence.outcome import Outcome
from editkit.evidence.provenance import BaseModel
from editkit.hub import Allow, pull_verify, push
from editkit.hub.push import with_fresh_clients
from editkit.render import evidence_folder
from editkit.writing.manifest import NAME as MANIFEST
from editkit.writing.verify import verify
from tests.hub.checkpoint import CARD, REASON, UNITS, finish
from tests.hub.running import BOB, Server, rewrite_manifest, snapshot
from tests.made_evidence import evidence


def test_the_round_trip(hub: Server, out: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    pushed = push(out, "alice/no-swear", api=hub.api())
    there = {
        file.path: file for file in hub.api().list_repo_tree("alice/no-swear", recursive=True, revision=pushed.commit)
    }
    assert pushed.private and hub.api().model_info("alice/no-swear").private
    for path in (path for path in out.rglob("*") if path.is_file()):
        assert there[path.relative_to(out).as_posix()].size == path.stat().st_size
    checked = pull_verify("alice/no-swear", api=hub.api())
    assert checked.units == UNITS and checked.commit == pushed.commit
    assert checked.zeroed == 2 * 64 * 16 * 4 and checked.unchanged >= 6
    got = Path(hub.api().snapshot_download("alice/no-swear", cache_dir=tmp_path / "elsewhere"))
    verify(got)
    model = AutoModelForCausalLM.from_pretrained(got)
    zeroed = model.model.layers[1].self_attn.o_proj.weight
    assert not zeroed[:, 0:16].any() and zeroed[:, 16:32].any(), "as transformers reads what arrived"
    assert snapshot(got) == {**snapshot(out), ".gitattributes": (got / ".gitattributes").read_bytes()}


def test_unchanged_shards_are_copied_on_the_server(hub: Server, out: Path) -> None:
    before = len(hub.uploads())
    pushed = push(out, "alice/no-swear", api=hub.api())
    edited = {row["file"] for row in json.loads((out / MANIFEST).read_text())["edited"]}
    shards = {path.name for path in out.glob("*.safetensors")}
    kinds = {operation.path: operation.kind for operation in pushed.operations}
    assert len(shards) >= 4 and len(edited) == 1
    assert {path for path, kind in kinds.items() if kind == "copy"} == shards - edited
    arrived = hub.uploads()[before:]
    sizes = [(out / path).stat().st_size for path in (*edited, "editkit/undo.safetensors")]
    assert sorted(arrived) == sorted(sizes)


@pytest.mark.commit
def test_a_server_that_cannot_copy_gets_uploads(hub: Server, out: Path) -> None:
    assert hub.thread is not None
    hub.thread.copies = False
    pushed = push(out, "alice/no-swear", api=hub.api())
    assert pushed.bytes("copy") == 0 and any("could not copy" in note for note in pushed.notes)
    assert pull_verify("alice/no-swear", api=hub.api()).units == UNITS


@pytest.mark.commit
def test_a_base_from_elsewhere_is_uploaded_whole(hub: Server, tmp_path: Path, base: Path) -> None:
    from editkit.checkpoints.source import resolve

    local = resolve(base).base
    out = finish(tmp_path / "out", base, local)
    pushed = push(out, "alice/x", api=hub.api())
    assert pushed.bytes("copy") == 0 and any("not on this server" in note for note in pushed.notes)
    with pytest.raises(EditkitError, match="--base"):
        pull_verify("alice/x", api=hub.api())
    assert pull_verify("alice/x", base=base, api=hub.api()).units == UNITS


@pytest.mark.commit
def test_pushing_again_sends_nothing_and_a_changed_edit_replaces_the_old(
    hub: Server, out: Path, tmp_path: Path, base: Path, named: Base
) -> None:
    first = push(out, "alice/x", api=hub.api())
    again = push(out, "alice/x", api=hub.api())
    assert again.commit == first.commit and {operation.kind for operation in again.operations} == {"keep"}
    leaner = finish(tmp_path / "leaner", base, named, report=True, card=CARD + "\nAgain.\n")
    (leaner / "editkit/report.html").unlink()
    rewrite_manifest(leaner)
    third = push(leaner, "alice/x", api=hub.api())
    kinds = {operation.path: operation.kind for operation in third.operations if operation.kind != "keep"}
    assert kinds == {"README.md": "upload", MANIFEST: "upload", "editkit/report.html": "delete"}
    assert pull_verify("alice/x", api=hub.api()).units == UNITS


def test_a_push_deletes_only_what_an_earlier_one_put_there(
    hub: Server, out: Path, tmp_path: Path, base: Path, named: Base
) -> None:
    push(out, "alice/x", api=hub.api())
    theirs = {"notes.txt": b"mine", "adapter/weights.bin": b"a colleague's"}
    for name, raw in theirs.items():
        hub.api().upload_file(repo_id="alice/x", path_or_fileobj=raw, path_in_repo=name)
    leaner = finish(tmp_path / "leaner", base, named, card=CARD + "\nAgain.\n")
    (leaner / "editkit/report.html").unlink()
    rewrite_manifest(leaner)
    pushed = push(leaner, "alice/x", api=hub.api())
    assert [one.path for one in pushed.operations if one.kind == "delete"] == ["editkit/report.html"]
    assert any(all(name in note for name in theirs) for note in pushed.notes)
    assert theirs.keys() <= set(hub.api().list_repo_files("alice/x"))
    with pytest.raises(IntegrityError, match=r"notes\.txt: not in the manifest"):
        pull_verify("alice/x", api=hub.api())


@pytest.mark.commit
def test_a_broken_manifest_there_deletes_nothing(hub: Server, out: Path) -> None:
    push(out, "alice/x", api=hub.api())
    for name, raw in {MANIFEST: b"{}", "notes.txt": b"mine"}.items():
        hub.api().upload_file(repo_id="alice/x", path_or_fileobj=raw, path_in_repo=name)
    assert not [one for one in push(out, "alice/x", api=hub.api()).operations if one.kind == "delete"]


def test_a_dry_run_lists_everything_and_touches_nothing(hub: Server, out: Path) -> None:
    before = snapshot(hub.data)
    seen = len(hub.requests())
    dry = push(out, "alice/x", dry_run=True, api=hub.api())
    assert snapshot(hub.data) == before and dry.commit is None
    assert {row["method"] for row in hub.requests()[seen:]} <= {"GET", "HEAD"}
    pushed = push(out, "alice/x", api=hub.api())
    assert pushed.operations == dry.operations
    files = {path.relative_to(out).as_posix(): path.stat().st_size for path in out.rglob("*") if path.is_file()}
    assert {operation.path: operation.bytes for operation in dry.operations} == files


@pytest.mark.commit
def test_a_pull_request_proposes_and_changes_nothing(hub: Server, out: Path) -> None:
    hub.api().create_repo("alice/x", private=False)
    head = hub.api().model_info("alice/x").sha
    pushed = push(out, "alice/x", create_pr=True, api=hub.api(BOB))
    assert pushed.pull_request is not None and pushed.pull_request.endswith("/alice/x/discussions/1")
    assert hub.api().model_info("alice/x").sha == head
    assert pull_verify("alice/x", revision="refs/pr/1", api=hub.api(BOB)).units == UNITS


def test_a_changed_file_is_never_pushed(hub: Server, out: Path) -> None:
    with (out / "config.json").open("a") as file:
        file.write(" ")
    with pytest.raises(IntegrityError, match="config.json"):
        push(out, "alice/x", api=hub.api())
    assert not hub.data.joinpath("repos/alice").exists()


@pytest.mark.commit
@pytest.mark.parametrize("report", [True, False])
def test_an_unmet_verdict_is_published_only_on_purpose_and_says_so(
    hub: Server, tmp_path: Path, base: Path, named: Base, report: bool
) -> None:
    out = finish(tmp_path / "out", base, named, met=False, report=report)
    files = snapshot(out)
    with pytest.raises(EditkitError, match="--allow-unmet"):
        push(out, "alice/x", api=hub.api())
    assert not hub.data.joinpath("repos/alice").exists()
    pushed = push(out, "alice/x", allow=Allow(unmet=True), api=hub.api())
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
    assert pull_verify("alice/x", api=hub.api()).units == UNITS


@pytest.mark.commit
@pytest.mark.usefixtures("undrawn")
def test_an_override_is_on_the_card_and_the_page_of_a_measured_removal(
    hub: Server, tmp_path: Path, base: Path, named: Base
) -> None:
    out = finish(tmp_path / "out", base, named, met=False)
    found = measured(out, "goal-missed")
    evidence_folder.write(out, found)
    rewrite_manifest(out)
    files = snapshot(out)
    push(out, "alice/x", allow=Allow(unmet=True), api=hub.api())
    assert snapshot(out) == files
    got = Path(hub.api().snapshot_download("alice/x", local_dir=tmp_path / "got"))
    verify(got)
    assert pull_verify("alice/x", api=hub.api()).units == UNITS
    again = evidence_folder.read(got)
    assert again.provenance.override and found.report.verdict.reasons[0] in again.provenance.override
    for name in ("README.md", "editkit/report.html"):
        assert "Published although its verdict was not met" in (got / name).read_text("utf-8"), name
        assert "Published although" not in (out / name).read_text("utf-8"), name
    card, page = ((got / name).read_text("utf-8") for name in ("README.md", "editkit/report.html"))
    assert evidence_folder.texts(again) == (card, page)


def measured(out: Path, status: str) -> Outcome:
    """Evidence of a whole run for the edit in ``out``."""
    found = evidence(status)
    edit = Edit.from_json((out / "editkit/edit.json").read_text())
    origin = BaseModel("team/base", edit.base.revision, "hub", "apache-2.0")
    provenance = replace(found.provenance, base=origin, shape=())
    return replace(found, out=out, edit=edit, provenance=provenance)


def test_a_commit_in_between_is_noticed(hub: Server, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.api().create_repo("alice/x", private=True)
    real = sys.modules["editkit.hub.push"].needed

    def meanwhile(*args: Any) -> Any:
        hub.api().upload_file(repo_id="alice/x", path_or_fileobj=b"hello", path_in_repo="theirs.txt")
        return real(*args)

    monkeypatch.setattr(sys.modules["editkit.hub.push"], "needed", meanwhile)
    with pytest.raises(EditkitError, match="somebody committed meanwhile"):
        push(out, "alice/x", api=hub.api())
    assert "config.json" not in hub.api().list_repo_files("alice/x")


def test_a_gitignore_that_leaves_files_out_is_noticed(hub: Server, out: Path) -> None:
    hub.api().create_repo("alice/x", private=True)
    hub.api().upload_file(repo_id="alice/x", path_or_fileobj=b"*.html\n", path_in_repo=".gitignore")
    with pytest.raises(IntegrityError, match="report.html is missing.*gitignore"):
        push(out, "alice/x", api=hub.api())


def test_a_card_the_hub_refuses_stops_before_any_upload(hub: Server, tmp_path: Path, base: Path, named: Base) -> None:
    broken = finish(tmp_path / "out", base, named, card=CARD.replace("team/base", "/home/me/base"))
    before = len(hub.uploads())
    with pytest.raises(EditkitError, match="Invalid metadata in README.md.*/home/me/base"):
        push(broken, "alice/x", api=hub.api())
    assert len(hub.uploads()) == before


@pytest.mark.parametrize("text", [None, "a: b\n---\n# x", "<script>", "\u202e", "- [x](y)", "'\"{}`", "/home/me"])
def test_every_card_we_render_is_one_the_hub_takes(text: str | None) -> None:
    from editkit.render import card as renderer
    from tests.hub import card
    from tests.made_evidence import hostile

    found = evidence() if text is None else hostile(text)
    assert card.faults(renderer.render(found)) == ([], [])


def test_without_xet_the_remedy_is_named(hub: Server, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hf_xet")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    with pytest.raises(EditkitError, match="HF_HUB_DISABLE_XET=1"):
        push(out, "alice/x", api=hub.api())


@pytest.mark.commit
def test_shards_that_the_server_has_and_cannot_copy_are_named(
    hub: Server, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else gigabytes that did not change go up again, and nobody says why."""
    from editkit.hub import push as pushing
    from editkit.hub.remote import listing

    def without_xet(*asked: Any) -> Any:
        return {path: replace(file, copyable=False) for path, file in listing(*asked).items()}

    monkeypatch.setattr(sys.modules[pushing.__module__], "listing", without_xet)
    found = push(out, "alice/no-swear", api=hub.api(), dry_run=True)
    [note] = [note for note in found.notes if note.startswith("Uploaded again")]
    edited = {row["file"] for row in json.loads((out / MANIFEST).read_text())["edited"]}
    assert all((path.name in note) == (path.name not in edited) for path in out.glob("*.safetensors"))


@pytest.mark.parametrize("resets", [1, 3, 4])
def test_a_commit_whose_client_was_closed_under_it_is_begun_again(resets: int) -> None:
    """If this fails: one upload of several loses its connection, and the whole push ends."""
    calls: list[int] = []

    def commit() -> str:
        calls.append(1)
        if len(calls) <= resets:
            closed = RuntimeError("Cannot send a request, as the client has been closed.")
            raise RuntimeError("Error while uploading 'model.safetensors' to the Hub.") from closed
        return "done"

    if resets > 3:
        with pytest.raises(RuntimeError, match="while uploading"):
            with_fresh_clients(commit)
    else:
        assert with_fresh_clients(commit) == "done" and len(calls) == resets + 1

    def broken() -> str:
        calls.append(1)
        raise RuntimeError("Error while uploading 'model.safetensors' to the Hub.") from OSError("no space left")

    calls.clear()
    with pytest.raises(RuntimeError, match="while uploading"):
        with_fresh_clients(broken)
    assert len(calls) == 1, "other failures end at once"
