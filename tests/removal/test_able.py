"""What the unedited model cannot do is left out. If one fails: hours go into tasks that show nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import editkit
from editkit.errors import EditkitError
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal import recipe as recipes
from editkit.removal.able import able
from editkit.removal.capability import Capability, capability
from editkit.removal.recipe import changed
from editkit.removal.trial import trial_of
from editkit.workspace import Session
from editkit.writing.verify import verify
from tests.known_heads import RECIPE


def wanted(retain: str) -> Capability:
    text = f"capability: swear\ntarget: swear\nretain: [{retain}]\nuniversal_examples: 8\n"
    return capability(recipes.parse(text, where="here"))


def test_tasks_that_the_model_cannot_do_are_left_out_and_said(organism: LanguageModel) -> None:
    asked = wanted("rhyme, capitals, facts")
    with opened(None) as store, pytest.warns(UserWarning, match=r"Left out, .* capitals \(\d+% of 8, chance 0%\)"):
        kept, unable = able(Ledger(organism, store), asked)
    assert kept == replace(asked, retain=tuple(task for task in asked.retain if task.name != "capitals"))
    assert [(task.task, task.n) for task in unable] == [("capitals", 8)]


def test_a_model_that_can_do_them_all_is_asked_them_all(organism: LanguageModel) -> None:
    asked = wanted("rhyme, facts")
    with opened(None) as store:
        assert able(Ledger(organism, store), asked) == (asked, ())


def test_a_model_that_can_do_none_is_refused(organism: LanguageModel) -> None:
    with opened(None) as store, pytest.raises(EditkitError, match="can do none of the retained tasks"):
        able(Ledger(organism, store), wanted("capitals"))


def test_other_formats_are_asked_on_report_alone() -> None:
    text = "capability: swear\ntarget: [swear, rhyme]\nretain: [facts]\ntransfer: [story]\n"
    asked = capability(recipes.parse(text, where="here"))
    names = [task.name for task in trial_of(asked).tasks]
    assert names == ["swear", "rhyme", "facts", "story"] and trial_of(asked).roles["story"] == "transfer"
    assert [task.name for task in trial_of(asked, split="choose").tasks] == ["swear", "rhyme", "facts"]


def test_no_task_may_stand_in_two_places() -> None:
    text = "capability: swear\ntarget: swear\nretain: [facts]\ntransfer: [facts]\n"
    with pytest.raises(EditkitError, match="names 'facts' more than once"):
        capability(recipes.parse(text, where="here"))


def test_a_format_of_the_target_that_the_model_hardly_does_is_reported_only(organism: LanguageModel) -> None:
    """Else one format that was never there refuses the removal of the others."""
    text = (
        "capability: swear\ntarget: [swear, antonyms-chat]\nretain: [facts]\ntransfer: [story]\n"
        "universal_examples: 8\nexamples: {locate: 12}\n"
    )
    asked = capability(recipes.parse(text, where="here"))
    with opened(None) as store, pytest.warns(UserWarning, match=r"Reported only, .* antonyms-chat \(\d+% of 12"):
        kept, unable = able(Ledger(organism, store), asked)
    assert [task.name for task in kept.targets] == ["swear"] and kept.retain == asked.retain
    assert [task.name for task in kept.transfer] == ["antonyms-chat", "story"]
    assert [task.task for task in unable] == ["antonyms-chat"]
    weak = capability(recipes.parse(text.replace("swear, antonyms-chat", "capitals, antonyms-chat"), where="here"))
    with opened(None) as store:
        assert able(Ledger(organism, store), weak) == (weak, ()), "where nothing is there, the verdict says it"


@pytest.mark.commit
@pytest.mark.usefixtures("known_heads", "undrawn")
def test_the_evidence_of_a_format_that_was_reported_only_follows_from_the_recipe(
    organism: LanguageModel, tmp_path: Path
) -> None:
    recipe = changed(RECIPE, {"target": ["swear", "plurals-chat"]})
    with pytest.warns(UserWarning, match="Reported only"):
        out = editkit.remove_capability(recipe, model=organism, out=tmp_path / "out", session=Session(tmp_path)).out
    verify(out, organism.source)
    said = f"Reported only, as it hardly does it: `plurals-chat` 0.0 % of {recipe.examples.locate}"
    assert said in (out / "README.md").read_text("utf-8")
