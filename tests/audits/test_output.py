"""`editkit audit OUT`: what it records is part of the output, which stays what it was.

If one fails: an audited output no longer verifies, or its record is of another edit.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import editkit
from editkit.audits import subject
from editkit.audits.subject import Budget, subject_of
from editkit.checkpoints.architecture import from_model
from editkit.cli import main
from editkit.errors import EditkitError
from editkit.evidence.attacks import NAME
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.removal.capability import capability
from editkit.removal.recipe import changed
from editkit.render import evidence_folder
from editkit.workspace import Session
from editkit.writing.verify import verify
from tests.audits.conftest import FEW, TWIN
from tests.known_heads import RECIPE
from tests.tiny import build


def run(*arguments: str):
    return CliRunner().invoke(main, ["audit", *arguments])


@pytest.mark.commit
@pytest.mark.usefixtures("known_heads")
def test_the_record_is_part_of_the_output_and_grows_audit_by_audit(organism, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "no-swear"
    editkit.remove_capability(changed(RECIPE, {"goal": 0.3}), model=organism, out=out)
    monkeypatch.setitem(subject.BUDGETS, "quick", FEW)
    assert evidence_folder.read(out).attacks is None
    first = run(str(out), "--only", "prefill", "--never-had", str(TWIN), "--json")
    assert first.exit_code == 0, first.output
    rows = json.loads(first.stdout)["rows"]
    assert rows and rows[0]["recovered"]["share"] > 0.8 and rows[0]["control"]["lacks"]
    second = run(str(out), "--only", "token-nats", "--never-had", str(TWIN))
    assert second.exit_code == 0 and re.search("suppressed: the first .*of the answer", second.stdout)
    found = evidence_folder.read(out).attacks
    assert found and found.nats and len(found.rows) == len(rows), "the rows of the first run are kept"
    verify(out, "organism" if Path("organism").is_dir() else organism.source)
    alone = run(str(out), "--only", "token-nats")
    assert alone.exit_code == 0
    found = evidence_folder.read(out).attacks
    assert found and not found.rows, "rows beside another control do not stand in one table"
    (out / NAME).write_text((out / NAME).read_text("utf-8")[:-100], "utf-8")
    assert run(str(out), "--only", "token-nats").exit_code == 0, "a record that was stopped half-way is made again"
    verify(out, organism.source)
    weights = next(out.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert run(str(out), "--only", "token-nats").exit_code == 5, "what is not the edit is not attacked in its name"


@pytest.mark.commit
@pytest.mark.usefixtures("known_heads", "undrawn")
def test_a_removal_ends_with_the_audits_that_its_recipe_asks_for(organism, tmp_path: Path, monkeypatch) -> None:
    """And stands where they cannot be made."""
    monkeypatch.setitem(subject.BUDGETS, "quick", FEW)
    monkeypatch.setattr("editkit.audits.QUICK", ["token-nats"])
    recipe = changed(RECIPE, {"audits": "quick"})
    outcome = editkit.remove_capability(recipe, model=organism, out=tmp_path / "out", session=Session(tmp_path))
    assert outcome.attacks and outcome.attacks.nats and outcome.attacks == evidence_folder.read(outcome.out).attacks
    assert "Under attack: **suppressed" in (outcome.out / "README.md").read_text("utf-8")
    assert outcome.summary()["attacks"]["nats"]
    verify(outcome.out, organism.source)
    few = Budget("quick", scored=0)
    monkeypatch.setitem(subject.BUDGETS, "quick", few)
    with pytest.warns(UserWarning, match="Not audited: Task 'swear' has no example to score"):
        outcome = editkit.remove_capability(recipe, model=organism, out=tmp_path / "two", session=Session(tmp_path))
    assert outcome.attacks is None and "relearning not tested" in (outcome.out / "README.md").read_text("utf-8")
    verify(outcome.out, organism.source)


def test_what_cannot_be_audited_is_said(tmp_path: Path, organism) -> None:
    assert "no such audit" in run(str(tmp_path), "--only", "magic").output
    assert "expected the output of `editkit remove-capability`" in run(str(tmp_path)).output
    baked = editkit.bake(organism.source, ["L1H3"], out=tmp_path / "baked").directory
    assert "names no capability to attack" in run(str(baked)).output


def test_the_twin_has_to_have_the_same_units(organism, never_swear) -> None:
    network, _ = build("llama")
    other = replace(never_swear, architecture=from_model(network))
    with opened(None) as store, pytest.raises(EditkitError, match="the same shape"):
        ledger = Ledger(organism, store)
        subject_of(ledger, [], capability(RECIPE), FEW, never_had=replace(ledger, model=other))
