"""``remove-capability --push``: asked before the long work, published after it. The search itself is replaced.

If one fails: a removal is published without having been asked for, or is lost after the long work.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from editkit import api
from editkit.cli import main
from editkit.edit import Base
from editkit.evidence.outcome import Outcome
from editkit.hub import pull_verify
from editkit.render import evidence_folder
from tests.hub.checkpoint import UNITS, finish
from tests.hub.running import ALICE, READER, Server, rewrite_manifest
from tests.hub.test_push import measured


@pytest.fixture
def run(hub: Server, tmp_path: Path, base: Path, named: Base, undrawn: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command with a token, a server to push to, and a search that is over at once."""
    reached: list[Path] = []

    def found(model: Any, run: Any, work: Any, *, stages: Any) -> Outcome:
        reached.append(run.out)
        finish(run.out, base, named)
        made = measured(run.out, "reduced" if run.recipe.accept == "best" else "met")
        evidence_folder.write(run.out, made)
        rewrite_manifest(run.out)
        return made

    monkeypatch.setattr(api, "load_source", lambda *args: None)
    monkeypatch.setattr(api, "remove", found)
    monkeypatch.setenv("EDITKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def call(*options: str, token: str = ALICE) -> tuple[Result, list[Path]]:
        for user in ("preflight", "push"):
            here = sys.modules[f"editkit.hub.{user}"]
            monkeypatch.setattr(here, "connect", lambda *_: hub.api(token))
        command = ["remove-capability", "swear", "--out", "out", "--push", "alice/x", "--audits", "none", *options]
        return CliRunner().invoke(main, command), reached

    return call


def test_who_may_not_publish_is_told_before_the_long_work(run: Any) -> None:
    result, reached = run(token=READER)
    assert result.exit_code == 1 and "may only read" in result.stderr
    assert reached == []


def test_what_the_hub_says_comes_first_and_what_was_sent_last(run: Any, hub: Server) -> None:
    result, _ = run()
    assert result.exit_code == 0, result.output
    assert "will go to" in result.stderr and "alice/x (new, private), as alice" in result.stderr
    assert "organism is not on this server" in " ".join(result.stderr.split()) and "bytes" in result.stderr
    met, sent = result.stdout.index("Criteria met"), result.stdout.index(f"{hub.endpoint}/alice/x")
    assert met < sent and "compared with the manifest" in " ".join(result.stdout.split())
    assert pull_verify("alice/x", api=hub.api()).units == UNITS


def test_a_dry_run_asks_the_hub_and_changes_nothing(run: Any, hub: Server, tmp_path: Path) -> None:
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    result, reached = run("--dry-run")
    assert result.exit_code == 0 and "alice/x (new, private), as alice" in result.stderr and not reached
    result, reached = run("--dry-run", token=READER)
    assert result.exit_code == 1 and "may only read" in result.stderr and not reached
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_dry_run_tells_the_licence_of_the_base(
    run: Any, hub: Server, named: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editkit.hub.remote.connect", lambda *_: hub.api())
    hub.api().upload_file(path_or_fileobj=b"{}", path_in_repo="tokenizer.json", repo_id=named.model)
    result, _ = run("--dry-run", "--model", named.model)
    assert result.exit_code == 0, result.output
    assert "on this server; licence: apache-2.0" in result.stderr


@pytest.mark.commit
def test_an_accepted_reduction_is_published_as_one(run: Any, hub: Server, tmp_path: Path) -> None:
    result, _ = run("--accept", "best")
    assert result.exit_code == 6, result.output
    told, sent = (result.stdout.index(text) for text in ("Reduced, not removed", f"{hub.endpoint}/alice/x"))
    assert told < sent and "reduced, not removed" in result.stderr
    got = Path(hub.api().snapshot_download("alice/x", local_dir=tmp_path / "got"))
    title = next(line for line in (got / "README.md").read_text("utf-8").splitlines() if line.startswith("# "))
    assert title.endswith(", reduced in `team/base`") and not (got / "editkit" / "override.json").exists()
    assert "reduced, not removed" in hub.api().list_repo_commits("alice/x")[0].message
    assert pull_verify("alice/x", api=hub.api()).units == UNITS


def test_one_json_document_holds_both(run: Any, hub: Server) -> None:
    result, _ = run("--json")
    told = json.loads(result.stdout)
    assert told["verdict"]["met"] and told["pushed"]["commit"] == hub.api().model_info("alice/x").sha


def test_a_push_that_fails_loses_nothing(
    run: Any, hub: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = evidence_folder.write

    def meanwhile(*args: Any) -> None:
        real(*args)
        hub.api().create_repo("alice/x", private=False)

    monkeypatch.setattr(evidence_folder, "write", meanwhile)
    result, _ = run()
    assert result.exit_code == 1 and "exists and is public" in result.stderr
    assert "Criteria met" in result.stdout and (tmp_path / "out/config.json").is_file()
    assert "To publish it: editkit push out alice/x" in result.stderr
