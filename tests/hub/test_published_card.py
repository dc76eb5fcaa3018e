"""What a stranger reads on the Hub: the published card names its repository, and its commands run as they stand.

If one fails: who copies a line of the card gets an error, or checks another folder than the one that was published.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from editkit.edit import Base
from editkit.hub import pull_verify, push
from editkit.hub.push import NOTHING_NEW
from editkit.render import evidence_folder
from editkit.writing.verify import verify
from tests.hub.checkpoint import UNITS, finish
from tests.hub.running import Server, environment, rewrite_manifest, snapshot
from tests.hub.test_push import measured

REPO = "alice/no-swear"


@pytest.fixture
def out(hub: Server, tmp_path: Path, base: Path, named: Base, undrawn: None) -> Path:
    made = finish(tmp_path / "out", base, named)
    evidence_folder.write(made, measured(made, "met"))
    rewrite_manifest(made)
    return made


def shell(card: str) -> list[list[str]]:
    """The commands of editkit in the card's section on use."""
    section = card.split("## Run, undo, verify")[1].split("\n## ")[0]
    return [shlex.split(line) for line in section.splitlines() if line.startswith("editkit ")]


def test_the_published_card_names_the_repository_and_the_folder_stays(hub: Server, out: Path, tmp_path: Path) -> None:
    files = snapshot(out)
    push(out, REPO, api=hub.api())
    assert snapshot(out) == files and "THIS_FOLDER" in (out / "README.md").read_text("utf-8")
    got = Path(hub.api().snapshot_download(REPO, local_dir=tmp_path / "got"))
    for name in ("README.md", "editkit/report.html"):
        text = (got / name).read_text("utf-8")
        assert f"editkit undo {REPO} -o base" in text and "THIS_FOLDER" not in text, name
    assert evidence_folder.texts(evidence_folder.read(got)) == tuple(
        (got / name).read_text("utf-8") for name in ("README.md", "editkit/report.html")
    )
    verify(got)
    assert pull_verify(REPO, api=hub.api()).units == UNITS
    assert NOTHING_NEW in push(out, REPO, api=hub.api()).notes, "a second push makes the same files"
    push(got, "alice/moved", api=hub.api())
    assert "editkit undo alice/moved" in Path(hub.api().hf_hub_download("alice/moved", "README.md")).read_text("utf-8")


@pytest.mark.commit
def test_its_commands_run_as_they_stand(hub: Server, out: Path, base: Path, tmp_path: Path) -> None:
    push(out, REPO, api=hub.api())
    commands = shell((Path(hub.api().hf_hub_download(REPO, "README.md"))).read_text("utf-8"))
    assert [command[1] for command in commands] == ["undo", "verify", "pull-verify"]
    for command in commands:
        if command[1] == "pull-verify":
            command = command[:3]  # the made evidence holds no examples that a model could be asked again
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment(hub, tmp_path / "home"),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert "Exactly the stated slices differ from the base" in done.stdout
    restored = snapshot(tmp_path / "base")
    assert {name: restored[name] for name in snapshot(base)} == snapshot(base)


def test_what_is_neither_here_nor_there_is_told_in_a_sentence(hub: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "editkit", "verify", "alice/nothing"]
    told = subprocess.run(
        command, cwd=tmp_path, env=environment(hub, tmp_path / "home"), capture_output=True, text=True
    )
    assert told.returncode == 1 and re.search(r"alice/nothing: no such directory and no such model", told.stderr)
