"""What is in the way of a push is said before anything heavy, and asking changes nothing.

If one fails: hours of work end at "no permission", or a question to the Hub creates a repository.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from editkit.edit import Base
from editkit.errors import EditkitError, UsageError
from editkit.hub import Allow, preflight, push, secrets
from editkit.hub.remote import ask
from tests.hub.checkpoint import CARD, finish
from tests.hub.running import ALICE, BOB, READER, Server, publish_base, rewrite_manifest


def test_preflight_of_a_new_repository(hub: Server, named: Base, out: Path) -> None:
    found = preflight("no-swear", base=named, out=out, api=hub.api())
    assert (found.repo, found.user, found.exists, found.private) == ("alice/no-swear", "alice", False, True)
    assert (found.base_on_hub, found.license, found.gated) == (True, "apache-2.0", False)
    assert found.bytes == sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert not hub.data.joinpath("repos/alice").exists()


def test_a_licence_that_is_not_known_here_is_carried_by_its_name(hub: Server, base: Path, tmp_path: Path) -> None:
    licensed = shutil.copytree(base, tmp_path / "licensed")
    (licensed / "README.md").write_text("---\nlicense: unknown\n---\n# Base\n")
    named = publish_base(hub, licensed)
    for number, (name, allowed) in enumerate([("unknown", True), ("another", False)]):
        card = CARD.replace("license: apache-2.0", f"license: other\nlicense_name: {name}")
        out = finish(tmp_path / f"out{number}", licensed, named, card=card)
        if allowed:
            assert preflight("no-swear", base=named, out=out, api=hub.api()).license == "unknown"
            continue
        with pytest.raises(EditkitError, match="says licence other, the base is under unknown"):
            preflight("no-swear", base=named, out=out, api=hub.api())


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
        preflight(name, base=None, api=hub.api())
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
        preflight(repo, base=named, public=True, api=hub.api(token))


def test_a_pull_request_needs_a_repository(hub: Server, named: Base) -> None:
    with pytest.raises(EditkitError, match="nothing to open a pull request on"):
        preflight("alice/none", base=named, create_pr=True, api=hub.api())


def test_other_peoples_files_are_not_replaced(hub: Server, named: Base) -> None:
    with pytest.raises(EditkitError, match="files that editkit did not put there"):
        preflight("team/base", base=named, public=True, api=hub.api())


@pytest.mark.parametrize("exists_private", [True, False])
def test_visibility_never_comes_as_a_surprise(hub: Server, named: Base, exists_private: bool) -> None:
    hub.api().create_repo("alice/x", private=exists_private)
    with pytest.raises(EditkitError, match="exists and is"):
        preflight("alice/x", base=named, public=exists_private, api=hub.api())
    found = preflight("alice/x", base=named, public=not exists_private, api=hub.api())
    assert found.exists and found.private is exists_private


@pytest.mark.parametrize("restriction", ["gated", "private"])
def test_a_restricted_base_is_not_given_away(hub: Server, base: Path, restriction: str) -> None:
    named = publish_base(hub, base, private=restriction == "private")
    if restriction == "gated":
        hub.api().update_repo_settings("team/base", gated="auto")
    ask = {"base": named, "api": hub.api()}
    with pytest.raises(EditkitError, match=f"team/base is {restriction}"):
        preflight("alice/x", public=True, **ask)
    assert preflight("alice/x", public=True, allow=Allow(gated=True), **ask).gated
    assert preflight("alice/x", **ask).gated


def test_the_bases_licence_and_notices_travel(hub: Server, tmp_path: Path, base: Path, named: Base) -> None:
    other = finish(tmp_path / "mit", base, named, card=CARD.replace("apache-2.0", "mit"))
    with pytest.raises(EditkitError, match="says licence mit, the base is under apache-2.0"):
        preflight("alice/x", base=named, out=other, api=hub.api())
    bare = finish(tmp_path / "bare", base, named)
    (bare / "LICENSE").unlink()
    with pytest.raises(EditkitError, match="LICENSE of team/base is missing"):
        preflight("alice/x", base=named, out=bare, api=hub.api())


NO_DERIVATIVES = (
    "license: cc-by-nd-4.0",
    "license: cc-by-nc-nd-4.0",
    "license: [mit, cc-by-nd-4.0]",
    "license: other\nlicense_name: cc-by-nd",
)


@pytest.mark.parametrize("terms", NO_DERIVATIVES)
@pytest.mark.parametrize("tells", [True, False])
def test_no_derivatives_means_none_whoever_says_it(
    hub: Server, base: Path, tmp_path: Path, terms: str, tells: bool
) -> None:
    licensed = shutil.copytree(base, tmp_path / "licensed")
    (licensed / "README.md").write_text(f"---\n{terms}\n---\n# Base\n")
    named = publish_base(hub, licensed)
    assert hub.thread is not None
    hub.thread.tells_card = tells
    with pytest.raises(EditkitError, match="permits no derivatives"):
        preflight("no-swear", base=named, public=True, api=hub.api())
    assert preflight("no-swear", base=named, api=hub.api()).private


def test_a_base_on_a_disk_is_asked_for_its_licence_too(hub: Server, base: Path, tmp_path: Path) -> None:
    licensed = shutil.copytree(base, tmp_path / "licensed")
    (licensed / "README.md").write_text("---\nlicense: cc-by-nd-4.0\n---\n# Base\n")
    named = Base(str(licensed), "sha256:" + "0" * 64)
    out = finish(tmp_path / "out", licensed, named, card=CARD.replace("apache-2.0", "cc-by-nd-4.0"))
    asked: tuple[dict[str, Any], ...] = ({"out": out}, {"like": licensed})
    for there in asked:
        with pytest.raises(EditkitError, match="permits no derivatives"):
            preflight("no-swear", base=named, public=True, api=hub.api(), **there)
        assert preflight("no-swear", base=named, api=hub.api(), **there).license == "cc-by-nd-4.0"


SECRETS = {
    "tokenizer_config.json": ('{"auth": "hf_' + "aB3" * 11 + 'z"}', "a token of Hugging Face"),
    "chat_template.jinja": ("{# sk-" + "proj-Ab1" * 6 + " #}", "a key of OpenAI or Anthropic"),
    "config.json": ("AKIA" + "A1B2" * 4, "an access key of AWS"),
    "vocab.txt": ("ghp_" + "a1B2" * 9, "a token of GitHub"),
    "LICENSE.pem.md": ("-----BEGIN OPENSSH PRIVATE KEY-----", "a private key"),
    ".env": ("X=1", "not part of the model"),
    "wandb/run.txt": ("a line", "not part of the model"),
    "token": ("a line", "not part of the model"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_what_looks_like_a_secret_is_not_published(hub: Server, base: Path, tmp_path: Path, name: str) -> None:
    named = Base("build/llama", "sha256:" + "0" * 64)
    out = finish(tmp_path / "out", base, named)
    text, kind = SECRETS[name]
    assert preflight("no-swear", base=named, out=out, api=hub.api()).private
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text(text)
    rewrite_manifest(out)
    with pytest.raises(EditkitError, match=kind) as caught:
        preflight("no-swear", base=named, out=out, api=hub.api())
    assert name in str(caught.value) and "--allow-secrets" in str(caught.value)
    assert text not in str(caught.value)
    assert preflight("no-swear", base=named, out=out, allow=Allow(secrets=True), api=hub.api()).private


@pytest.mark.parametrize("place", ["model.safetensors", "editkit/undo.safetensors"])
def test_a_secret_in_the_metadata_of_weights_is_seen(tmp_path: Path, place: str) -> None:
    import torch
    from safetensors.torch import save_file

    token, numbers = "hf_" + "x" * 34, "hf_" + "y" * 34
    (tmp_path / "editkit").mkdir()
    tensor = torch.frombuffer(bytearray(numbers.encode()), dtype=torch.uint8)
    save_file({"a": tensor}, tmp_path / place, metadata={"format": "pt"})
    assert secrets.found(tmp_path, [place]) == [], "numbers may look like anything"
    save_file({"a": tensor}, tmp_path / place, metadata={"note": token})
    assert secrets.found(tmp_path, [place]) == [f"{place}: a token of Hugging Face"]


def test_a_dry_run_needs_no_token_and_says_what_it_did_not_ask(hub: Server, named: Base, out: Path) -> None:
    planned = push(out, "alice/x", dry_run=True, api=hub.api(False))
    assert planned.commit is None and any("No Hub token" in note for note in planned.notes)
    assert {operation.kind for operation in planned.operations} == {"upload", "copy"}
    with pytest.raises(UsageError, match="give owner/name"):
        push(out, "x", dry_run=True, api=hub.api(False))
    with pytest.raises(EditkitError, match="No Hub token"):
        push(out, "alice/x", api=hub.api(False))
    with pytest.raises(EditkitError, match="write permission|may not create"):
        push(out, "bob/x", dry_run=True, api=hub.api())


@pytest.mark.parametrize(("method", "needed"), [("GET", "may read this repository"), ("POST", "with write permission")])
def test_a_refused_token_is_told_what_it_lacks(method: str, needed: str) -> None:
    """Else whoever only reads asks for a token that may write."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    def refuse() -> None:
        response = SimpleNamespace(status_code=403, headers={}, request=SimpleNamespace(method=method))
        raise HfHubHTTPError("Forbidden", response=response)  # type: ignore[arg-type]

    with pytest.raises(EditkitError, match=needed):
        ask(HfApi(token=False), "alice/model", refuse)


def test_a_server_that_is_not_there_is_said_not_to_be_reached(named: Base, out: Path) -> None:
    """Else a dry run speaks of a connection that broke, and of what has arrived."""
    from huggingface_hub import HfApi

    nowhere = HfApi(endpoint="http://127.0.0.1:9", token=False)
    with pytest.raises(EditkitError, match=r"http://127\.0\.0\.1:9 cannot be reached .*run this again"):
        push(out, "alice/x", dry_run=True, api=nowhere)
