"""Evidence that does not follow from its examples is caught, whoever sealed it.

If one fails: a forged number, verdict or sentence passes `editkit verify`, `push` and `pull-verify`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editkit.errors import IntegrityError
from editkit.evidence import examples
from editkit.evidence.examples import Asked
from editkit.render import evidence_folder
from editkit.render.evidence_check import MISSING, check
from editkit.tasks.task import Score
from editkit.writing import manifest
from editkit.writing.manifest import Manifest
from tests.made_evidence import RECIPE, measured

Forgery = Callable[[Path], None]
pytestmark = [pytest.mark.commit, pytest.mark.usefixtures("undrawn")]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    outcome = measured()
    evidence_folder.write(tmp_path, outcome)
    manifest.write(tmp_path, Manifest("checkpoint", outcome.edit.base, {}, recipe=RECIPE))
    return tmp_path


def report(change: Callable[[dict[str, Any]], object], name: str = "report.json") -> Forgery:
    """A JSON file with something changed, and everything rendered from it again, as a forger would."""

    def forge(out: Path) -> None:
        path = out / "editkit" / name
        value = json.loads(path.read_text("utf-8"))
        change(value)
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
        evidence_folder.render(out, evidence_folder.read(out))

    return forge


def scored(task: str, change: Callable[[list[Asked]], list[Asked]]) -> Forgery:
    """The examples of one task with something changed, and nothing else."""

    def forge(out: Path) -> None:
        path = out / examples.NAME
        sheets = {
            name: [each for each in examples.read(path) if each.task == name] for name in ("swear", "rhyme", "facts")
        }
        sheets[task] = change(sheets[task])
        path.write_bytes(examples.to_bytes([each for sheet in sheets.values() for each in sheet]))

    return forge


def text(name: str, old: str, new: str) -> Forgery:
    """A file with something else in it."""

    def forge(out: Path) -> None:
        path = out / name
        found = path.read_text("utf-8")
        assert old in found, "there was something to forge"
        path.write_text(found.replace(old, new, 1), "utf-8")

    return forge


def put(*path: str | int, to: Any) -> Callable[[dict[str, Any]], object]:
    """The value at ``path`` of a JSON file becomes ``to``."""

    def change(value: Any) -> None:
        for key in path[:-1]:
            value = value[key]
        assert value[path[-1]] != to
        value[path[-1]] = to

    return change


def exchanged(asked: list[Asked]) -> list[Asked]:
    """Two examples get each other's score after the edit: every mean stays."""
    first, second = asked[0], asked[1]
    return [replace(first, after=second.after), replace(second, after=first.after), *asked[2:]]


FORGERIES: dict[str, tuple[Forgery, str]] = {
    "a score": (report(put("rows", 0, "after", "mean", to=1.0)), "rows.swear.after.mean: expected 0.0, found 1.0"),
    "an interval": (report(put("rows", 1, "delta", "low", to=-0.001)), "rows.rhyme.delta.low"),
    "a p": (report(put("rows", 0, "p_holm", to=1e-40)), "rows.swear.p_holm"),
    "what is left": (report(put("rows", 0, "left_at_most", to=0.0)), "rows.swear.left_at_most"),
    "noise": (report(put("noise", 0, "delta", "mean", to=0.0)), "noise.swear.delta.mean"),
    "the verdict": (report(put("verdict", "met", to=False)), "verdict.met: expected true, found false"),
    "a reason": (report(put("verdict", "reasons", 0, to="All is well.")), "verdict.reasons.0"),
    "the null": (report(put("random_heads", "p", to=0.001)), "random_heads.p"),
    "the harder null": (report(put("strong_heads", "deltas", 3, to=-1.0)), "strong_heads.reached: expected 2, found 1"),
    "its examples": (report(put("strong_heads", "examples", to=400)), "strong_heads.examples: expected 100, found 400"),
    "its task": (report(put("strong_heads", "task", to="rhyme")), "the strong sets were asked rhyme, no target"),
    "the goal": (report(put("criteria", "goal", to=0.9)), "criteria: the recipe says"),
    "a role": (report(put("rows", 2, "role", to="also")), "2 tasks of the role retain, found 1"),
    "a transcript": (report(put("transcripts", 0, "after", to="Lovely.")), "no example of swear was answered so"),
    "a flipped score": (
        scored("swear", lambda asked: [replace(asked[3], after=Score(1.0)), *asked[:3], *asked[4:]]),
        "rows.swear.after.mean: expected 0.01, found 0.0",
    ),
    "exchanged scores": (scored("rhyme", exchanged), "rows.rhyme.lost"),
    "an example less": (scored("facts", lambda asked: asked[1:]), "rows.facts.n: expected 99, found 100"),
    "a task less": (scored("facts", lambda asked: []), "expected examples of swear, rhyme, facts, found swear, rhyme"),
    "clusters": (
        scored("facts", lambda asked: [replace(each, cluster="") for each in asked]),
        "rows.facts.clusters: expected null, found 50",
    ),
    "a number of the card": (text("README.md", "| 95.0 |", "| 99.0 |"), r"README.md, line \d+"),
    "a line of the card": (
        text("README.md", "## Use and misuse", "Certified.\n\n## Use and misuse"),
        "README.md, line",
    ),
    "the page": (text("editkit/report.html", "</body>", "<p>Certified.</p></body>"), "editkit/report.html, line"),
    "a key twice": (
        text("editkit/report.json", '"verdict": {', '"verdict": {"met": true, "reasons": []},\n  "verdict": {'),
        "is not in the form that editkit writes",
    ),
    "a bomb of braces": (text("editkit/report.json", "{", "[" * 200_000 + "{"), "is not JSON"),
    "no seed": (report(put("seeds", to={}), "provenance.json"), "does not hold together"),
}


def test_honest_evidence_passes_and_says_what_was_computed(out: Path) -> None:
    """Else nobody's own output can be published; or more is claimed than was looked at."""
    found = check(out)
    assert (found.examples, found.rows) == (300, 3)
    assert "follow from 300 examples" in found.note and "random sets' own scores" in found.note


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_named_by_its_place(out: Path, name: str) -> None:
    """Else somebody publishes numbers that were never measured, under editkit's name."""
    forge, said = FORGERIES[name]
    forge(out)
    manifest.write(out, manifest.read(out))  # sealed again
    with pytest.raises(IntegrityError, match=said if "\\" in said else re.escape(said)):
        check(out)


def test_outputs_without_examples_are_taken_as_before_and_say_so(out: Path) -> None:
    """Else every model published so far fails, or seems to be checked more than it was."""
    (out / examples.NAME).unlink()
    assert check(out).note == MISSING
    (out / "editkit" / "report.json").unlink()
    assert check(out).note == ""


def test_other_formulas_are_no_forgery_but_other_scores_are(out: Path) -> None:
    """Else a new release calls every older output forged, or an old one may say anything."""
    report(put("versions", "editkit", to="0.0.9"), "provenance.json")(out)
    report(put("rows", 0, "p", to=0.02))(out)
    assert "0.0.9" in check(out).note
    report(put("rows", 0, "after", "mean", to=0.5))(out)
    with pytest.raises(IntegrityError, match="rows.swear.after.mean"):
        check(out)
