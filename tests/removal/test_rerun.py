"""Published examples are asked again of the published weights.

If one fails: examples that were never asked, or answers that the model never gave, pass for its evidence.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from editkit import api
from editkit.cli import main
from editkit.edit import Base
from editkit.errors import EditkitError, IntegrityError
from editkit.evidence.examples import Asked
from editkit.evidence.outcome import Outcome
from editkit.hub import Verification
from editkit.removal.rerun import Rerun
from editkit.render import evidence_folder
from editkit.tasks.task import Score
from tests.conftest import Removed

pytestmark = pytest.mark.commit


def test_the_same_weights_answer_as_published(removed: Removed) -> None:
    """Else an honest publisher is called a liar."""
    found = api.rerun(removed("quick").out, 12, seed=1)
    assert (found.asked, found.scores, found.answers) == (12, 0, 0)
    assert "Of 12 examples asked again, 0 scores and 0 answers differ" in found.describe()


def _shifted(example: Asked, nats: float) -> Asked:
    """The likelihoods of its choices, each moved by so much."""
    moved = " ".join(f"{float(word) + nats:.6f}" for word in example.answers[1].split())
    return replace(example, answers=(example.answers[0], moved))


@pytest.mark.parametrize(("nats", "differ"), [(1e-6, False), (0.01, True), (float("nan"), True)])
def test_likelihoods_are_compared_as_numbers(
    nats: float, differ: bool, removed: Removed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a processor that rounds otherwise finds other answers where there are none, or a forger's go unseen."""
    outcome = removed("quick")
    shifted = tuple(_shifted(each, nats) if each.task == "story" else each for each in outcome.examples)
    monkeypatch.setattr(evidence_folder, "read", lambda _: replace(outcome, examples=shifted))
    assert bool(api.rerun(outcome.out, 12, seed=1).answers) == differ


def flipped(outcome: Outcome) -> Outcome:
    """Every target is said to be lost before, and kept after."""
    asked = [replace(each, after=Score(1.0 - each.after.value)) for each in outcome.examples]
    return replace(outcome, examples=tuple(asked))


def exchanged(outcome: Outcome) -> Outcome:
    """The questions of two examples, and with them all that was answered."""
    first, second, *rest = outcome.examples
    asked = (replace(first, prompt=second.prompt), replace(second, prompt=first.prompt), *rest)
    return replace(outcome, examples=asked)


def easier(outcome: Outcome) -> Outcome:
    """Only the examples that went well."""
    return replace(outcome, examples=outcome.examples[1:])


def guessed(outcome: Outcome) -> Outcome:
    """A score that guessing gives is said to be far above it, or the other way."""
    rows = [replace(row, chance=0.5) for row in outcome.report.rows]
    return replace(outcome, report=replace(outcome.report, rows=tuple(rows)))


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (flipped, "do not answer as published. Of 12 examples asked again, 12 scores and 0 answers differ"),
        (exchanged, "swear: these are not the 60 examples that the task draws"),
        (easier, "swear: these are not the 60 examples"),
        (guessed, "expected the role target and chance 0"),
    ],
)
def test_what_was_not_asked_or_not_answered_is_found(
    removed: Removed, forge: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a publisher invents scores that agree with each other, and nobody finds out."""
    forged = forge(removed("quick"))  # type: ignore[operator]
    monkeypatch.setattr(evidence_folder, "read", lambda _: forged)
    with pytest.raises(IntegrityError, match=said.replace(".", r"\.")):
        api.rerun(removed("quick").out, 12, seed=1)


def test_without_examples_nothing_is_asked(removed: Removed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `--rerun` says that nothing differs where nothing was looked at."""
    older = replace(removed("quick"), examples=())
    monkeypatch.setattr(evidence_folder, "read", lambda _: older)
    with pytest.raises(EditkitError, match="nothing to ask again"):
        api.rerun(removed("quick").out, 12)


def test_the_command_asks_the_very_commit_that_it_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a push between the two makes the check one of other weights."""
    from editkit import hub

    checked = Verification("a/b", "c0ffee", Base("team/base"), ("L1H2",), (), 0, 0, 0, "9 rows follow.")
    told = Rerun(50, 1, 0, noise=(0, 1624), allowed=2)
    asked: dict[str, object] = {}
    monkeypatch.setattr(hub, "pull_verify", lambda *_, **__: checked)
    monkeypatch.setattr(api, "rerun", lambda *names, **options: asked.update(options, names=names) or told)
    result = CliRunner().invoke(main, ["pull-verify", "a/b", "--rerun", "50"])
    assert result.exit_code == 0, result.output
    assert asked["names"] == ("a/b", 50) and asked["revision"] == "c0ffee"
    assert "9 rows follow." in result.stdout and "Of 50 examples asked again, 0 scores and 1 answers" in result.stdout
    document = json.loads(CliRunner().invoke(main, ["pull-verify", "a/b", "--rerun", "50", "--json"]).stdout)
    assert document["rerun"]["asked"] == 50 and document["evidence"] == "9 rows follow."
