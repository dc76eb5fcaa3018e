"""Checking what others published: honest edits pass, and no dishonest one does.

If one fails: somebody publishes an edit that is not what it says, and `pull-verify` calls it honest.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from editkit.edit import Base
from editkit.errors import EditkitError, IntegrityError
from editkit.hub import Allow, pull_verify, push
from editkit.render import evidence_folder
from editkit.writing.manifest import NAME as MANIFEST
from tests.hub.checkpoint import CARD, UNITS, finish, finish_measured
from tests.hub.running import (
    BOB,
    Server,
    corrupt,
    environment,
    publish_anyway,
    publish_base,
    rewrite_manifest,
)

pytestmark = pytest.mark.commit


def test_a_stranger_can_check_a_public_edit(hub: Server, out: Path) -> None:
    push(out, "alice/x", public=True, api=hub.api())
    seen = len(hub.requests())
    checked = pull_verify("alice/x", api=hub.api(BOB))
    assert checked.units == UNITS
    edited = [row["file"] for row in json.loads((out / MANIFEST).read_text())["edited"]]
    fetched = {row["path"].rpartition("/")[2] for row in hub.requests()[seen:] if "/resolve/" in row["path"]}
    assert checked.edited == tuple(sorted(set(edited)))
    assert not any(row["path"].startswith("/team/base/resolve") for row in hub.requests()[seen:]), (
        "the base is not fetched"
    )
    weights = sum((out / file).stat().st_size for file in edited)
    assert checked.read < weights + 100_000 and "config.json" in fetched


@pytest.mark.parametrize("where", ["edited slice", "edited shard", "undo"])
def test_tampering_on_the_server_is_found(hub: Server, out: Path, where: str) -> None:
    """Stored bytes change behind the server's back: its listings still tell the old hashes."""
    push(out, "alice/x", api=hub.api())
    record = json.loads((out / MANIFEST).read_text())
    file = "editkit/undo.safetensors" if where == "undo" else record["edited"][0]["file"]
    from editkit.checkpoints.headers import read

    tensor = read(out).tensors[record["edited"][0]["tensor"]]
    place = -1 if where != "edited slice" else tensor.start + record["edited"][0]["spans"][0][0] * 4
    stored = hub.data / "objects" / record["files"][file]["sha256"]
    corrupt(stored, place if place >= 0 else stored.stat().st_size - 1)
    expected = (
        "is not zero" if where == "edited slice" else f"{file}: (its bytes are not those|not the file) of the manifest"
    )
    with pytest.raises(IntegrityError, match=expected):
        pull_verify("alice/x", api=hub.api())


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
            pull_verify(f"alice/x{number}", api=hub.api())
    publish_anyway(hub, honest, "alice/honest")
    assert pull_verify("alice/honest", api=hub.api()).units == UNITS


def test_a_file_of_the_base_left_out_in_silence_is_found(hub: Server, tmp_path: Path, base: Path, named: Base) -> None:
    """Other formats of the weights must stay behind; a chat template must not."""
    hub.api().upload_file(repo_id="team/base", path_or_fileobj=b"pickle", path_in_repo="pytorch_model.bin")
    fine = hub.api().model_info("team/base").sha
    hub.api().upload_file(repo_id="team/base", path_or_fileobj=b"{{ x }}", path_in_repo="chat_template.jinja")
    more = hub.api().model_info("team/base").sha
    publish_anyway(hub, finish(tmp_path / "fine", base, Base("team/base", fine)), "alice/fine")
    assert pull_verify("alice/fine", api=hub.api()).units == UNITS
    publish_anyway(hub, finish(tmp_path / "more", base, Base("team/base", more)), "alice/more")
    with pytest.raises(IntegrityError, match="chat_template.jinja: a file of the base that is missing here"):
        pull_verify("alice/more", api=hub.api())


def test_a_stale_index_of_the_base_may_stay_behind(hub: Server, tmp_path: Path, base: Path) -> None:
    """Where ``model.safetensors`` lies beside an index, it is what is loaded."""
    from tests import small_checkpoints as checkpoints

    whole = checkpoints.write(tmp_path / "base")
    index = next(base.glob("*.index.json"))
    shutil.copy(index, whole / index.name)
    out = finish(tmp_path / "out", whole, publish_base(hub, whole))
    assert not (out / index.name).exists()
    publish_anyway(hub, out, "alice/x")
    assert pull_verify("alice/x", api=hub.api()).units == UNITS


def test_fewer_or_other_units_than_stated_are_found(hub: Server, out: Path) -> None:
    text = (out / "editkit/edit.json").read_text()
    (out / "editkit/edit.json").write_text(text.replace("L1H2", "L2H2"))
    rewrite_manifest(out)
    publish_anyway(hub, out, "alice/x")
    with pytest.raises(IntegrityError, match="undo file does not hold the slices of L1H0, L2H2"):
        pull_verify("alice/x", api=hub.api())


@pytest.mark.usefixtures("undrawn")
def test_a_forged_verdict_is_neither_sent_nor_believed(hub: Server, tmp_path: Path, base: Path, named: Base) -> None:
    """Else anybody publishes a removal that was never measured, and a stranger's check calls it honest."""
    honest = finish_measured(tmp_path / "honest", base, named)
    push(honest, "alice/honest", public=True, api=hub.api())
    assert "follow from 300 examples" in pull_verify("alice/honest", api=hub.api(BOB)).evidence
    shutil.copytree(honest, tmp_path / "forged")
    report = tmp_path / "forged" / "editkit" / "report.json"
    report.write_text(report.read_text().replace('"reasons": [', '"reasons": [\n      "Certified.",', 1))
    evidence_folder.render(tmp_path / "forged", evidence_folder.read(tmp_path / "forged"))
    rewrite_manifest(tmp_path / "forged")
    with pytest.raises(IntegrityError, match=r"verdict.reasons.0: expected .*, found .Certified"):
        push(tmp_path / "forged", "alice/forged", api=hub.api())
    publish_anyway(hub, tmp_path / "forged", "alice/forged")
    with pytest.raises(IntegrityError, match=r"verdict.reasons.0: expected .*, found .Certified"):
        pull_verify("alice/forged", api=hub.api())


def test_what_is_no_edit_is_told_so(hub: Server, named: Base) -> None:
    with pytest.raises(IntegrityError, match="not a published edit"):
        pull_verify("team/base", api=hub.api())


def test_an_undo_file_that_lies_is_found(hub: Server, out: Path) -> None:
    """Removed bytes that are not the base's: the edit could not be undone, and proves nothing."""
    undo = out / "editkit/undo.safetensors"
    corrupt(undo, undo.stat().st_size - 1)
    rewrite_manifest(out)
    publish_anyway(hub, out, "alice/x")
    with pytest.raises(IntegrityError, match="in more than the removed slices"):
        pull_verify("alice/x", api=hub.api())


def test_awkward_file_names_survive_and_hostile_ones_are_refused(hub: Server, tmp_path: Path, base: Path) -> None:

    shutil.copytree(base, tmp_path / "base")
    for name in ("template #1 (50%) & more.jinja", "ünïcödé 模型.txt", "a=b;c,d+e.txt"):
        (tmp_path / "base" / name).write_text(name)
    named = publish_base(hub, tmp_path / "base")
    out = finish(tmp_path / "out", tmp_path / "base", named)
    push(out, "alice/x", api=hub.api())
    assert pull_verify("alice/x", api=hub.api()).unchanged >= 9
    hub.api().upload_file(repo_id="alice/x", path_or_fileobj=b"x", path_in_repo="evil\u202egpj.py")
    with pytest.raises(IntegrityError, match="is no name of a file") as caught:
        pull_verify("alice/x", api=hub.api())
    assert "\u202e" not in str(caught.value)


def test_an_adapter_is_pushed_too_and_pull_verify_says_what_to_do(
    hub: Server, tmp_path: Path, base: Path, named: Base
) -> None:
    from editkit.checkpoints.source import Source
    from editkit.edit import Edit
    from editkit.units import parse_all
    from editkit.writing.export import lora

    lora.write(Edit(named, parse_all("L1H2")), Source(base, named), tmp_path / "lora")
    (tmp_path / "lora/README.md").write_text(CARD)
    rewrite_manifest(tmp_path / "lora")
    pushed = push(tmp_path / "lora", "alice/x", allow=Allow(unmet=True), api=hub.api())
    assert "adapter_model.safetensors" in {operation.path for operation in pushed.operations}
    with pytest.raises(EditkitError, match="is a lora, not a whole checkpoint"):
        pull_verify("alice/x", api=hub.api())


def test_an_output_is_compared_with_the_commit_it_was_made_from(hub: Server, base: Path, tmp_path: Path) -> None:
    """The base's branch moves on; what was made of an earlier commit is still what it was."""

    publish_base(hub, base)

    def editkit(*commands: list[str]) -> None:
        """In a process of its own, which knows the server by its environment."""
        script = "from editkit.cli import main\n"
        script += "\n".join(f"main({command!r}, standalone_mode=False)" for command in commands)
        environ = environment(hub, tmp_path / "home")
        done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    attributes = b"*.bin filter=lfs diff=lfs merge=lfs -text\n"  # as GPT-2's: the server adds what it lacks
    hub.api().upload_file(repo_id="team/base", path_or_fileobj=attributes, path_in_repo=".gitattributes")
    out, again = (str(tmp_path / name) for name in ("out", "again"))
    editkit(
        ["bake", "team/base", "--heads", ",".join(UNITS), "-o", out],
        ["push", out, "alice/edited", "--allow-unmet"],
    )
    assert not Path(out, ".gitattributes").exists(), "the server has its own"
    hub.api().upload_file(repo_id="team/base", path_or_fileobj=b"# More\n", path_in_repo="MORE.md")
    editkit(
        ["verify", out, "--base", "team/base"],
        ["bake", "team/base", "--edit", out, "-o", again],
        ["pull-verify", "alice/edited"],
    )
