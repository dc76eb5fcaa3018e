"""A run that asks for fresh examples is judged by examples that nobody has looked at.

If one fails: the card says so of examples that chose the edit, or a run that was stopped cannot be finished.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import editkit
from editkit import api
from editkit.errors import EditkitError, IntegrityError
from editkit.evidence.outcome import Outcome
from editkit.evidence.share_left import share_left
from editkit.measuring.answers import answers, task_scores
from editkit.measuring.ledger import Ledger, asked_of
from editkit.measuring.store import Cell, Store, opened
from editkit.models.language_model import LanguageModel
from editkit.removal import locate
from editkit.removal import recipe as recipes
from editkit.removal.capability import Capability, capability
from editkit.removal.fresh import LEAST, Fresh, fresh_examples
from editkit.removal.rerun import rerun
from editkit.render.evidence_check import check
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import examples_of
from editkit.units import Head
from editkit.workspace import Session
from tests.known_heads import FOUND, RECIPE


def wanted(report: int = 30, **changes: Any) -> Capability:
    recipe = recipes.parse("capability: swear\ntarget: swear\nretain: [facts]\n", where="here")
    return capability(recipes.changed(recipe, {"examples": {"report": report}, **changes}))


def asked(store: Store, organism: LanguageModel, task: str, ids: list[str], **space: str) -> None:
    """Answers of the base to some examples, as an earlier run leaves them."""
    description = {"model": organism.source.base.revision, "task": task, "mode": "task", **space}
    [out] = Ledger(organism, store).knockout([Head(0, 1)])
    store.put(store.space(description), [(out, f"{one}#0123456789abcdef", Cell(1.0)) for one in ids])


def ids_of(task: str) -> list[str]:
    return [example.id for example in examples_of(TASKS[task], "report")]


def test_what_was_answered_in_any_way_is_not_asked_again(organism: LanguageModel) -> None:
    """By the unedited model or an edited one, in another precision, a second time, under attack."""
    task, base = TASKS["swear"], organism.source.base
    there = examples_of(task, "report")
    with opened(None) as store:
        ledger = Ledger(organism, store)
        task_scores(ledger, task, there[:1], ledger.mask())
        task_scores(ledger, task, there[1:2], ledger.knockout([Head(1, 2)]), run=2)
        task_scores(replace(ledger, attack="noise"), task, there[2:3], ledger.mask())
        asked(store, organism, "swear", [there[3].id], dtype="bfloat16")
        asked(store, organism, "rhyme", [there[4].id])
        store.put(store.space({"looks": [], "model": base.revision}), [(ledger.knockout()[0], there[5].id, Cell(1.0))])
        assert ledger.holds(answers(task, there[:1]), ledger.mask())
        assert asked_of(store, base, "swear") == {example.id for example in there[:4]}
        found = fresh_examples(store, base, wanted())
    assert found.ids["swear"] == {example.id for example in there[4:34]}, "the next 30, in the task's own order"
    assert found.ids["facts"] == set(ids_of("facts")[:30])


def test_the_same_run_gets_the_same_examples_whatever_was_asked_since(organism: LanguageModel) -> None:
    """Else a run that was stopped asks others when it goes on, and one that is repeated gives other evidence."""
    base = organism.source.base
    with opened(None) as store:

        def drawn(seed: int = 0, dtype: str = "auto", **changes: Any) -> Fresh:
            return fresh_examples(store, base, wanted(**changes), seed=seed, dtype=dtype)

        first = drawn()
        for name in ("swear", "facts"):
            asked(store, organism, name, sorted(first.ids[name]))
        assert drawn() == first
        for key, value in {"accept": "best", "audits": "none", "summary": "Oaths.", "hide": ("swear",)}.items():
            assert fresh_examples(store, base, wanted(**{key: value})) == first, f"no edit depends on {key}"
        further = drawn(transfer=("rhyme",))
        assert further.ids.keys() - first.ids.keys() == {"rhyme"} and further.ids["swear"] == first.ids["swear"]
        for other in (drawn(seed=1), drawn(goal=0.3), drawn(dtype="float32"), drawn(method="halving")):
            assert other.ids["swear"] == set(ids_of("swear")[30:60]), "other runs get what is left"
            assert other.run != first.run


def test_too_few_are_refused_before_anything_is_loaded(
    organism: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else hours go by until it is told; or three examples are taken for evidence."""

    def no_model(*_: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(api, "load_source", no_model)
    session = Session(tmp_path / "work")

    def run() -> None:
        api.remove_capability(RECIPE.model_copy(update={"examples": few}), session=session, fresh=True)

    few = recipes.Examples(choose=8, report=200)
    with opened(tmp_path / "work" / "measurements.sqlite") as store:
        asked(store, organism, "swear", ids_of("swear")[: -(LEAST - 1)])
        asked(store, organism, "facts", ids_of("facts")[:-LEAST])
    said = f"swear has {len(ids_of('swear'))}, {len(ids_of('swear')) - LEAST + 1} of which were looked at, and needs 20"
    with pytest.raises(EditkitError, match=said) as caught:
        run()
    assert "facts" not in str(caught.value) and "Add examples to the task's file" in str(caught.value)
    with opened(tmp_path / "work" / "measurements.sqlite") as store:
        asked(store, organism, "facts", ids_of("facts")[-5:-4])
    with pytest.raises(EditkitError, match=r"swear has .*; facts has .* and needs 20"):
        run()


def test_the_least_number_is_the_first_that_can_show_a_removal() -> None:
    bounds = [share_left([1.0] * n, [0.0] * n, chance=0.0, clusters=None) for n in (LEAST - 1, LEAST)]
    assert [bound is not None and bound.at_most <= 0.15 for bound in bounds] == [False, True]


@pytest.mark.commit
@pytest.mark.usefixtures("known_heads")
def test_a_fresh_report_asks_other_examples_says_so_and_is_the_same_again(
    organism: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first run, whose examples are not fresh, to the last, which repeats the fresh one to the letter."""

    def run(name: str, **options: Any) -> Outcome:
        out, session = tmp_path / name, Session(tmp_path / "work", command="editkit")
        return editkit.remove_capability(RECIPE, model=organism, out=out, session=session, **options)

    plain, fresh, again = run("plain"), run("fresh", fresh=True), run("again", fresh=True)
    said = "the first at fresh examples: no earlier run of this store had looked at them"
    ids = [{(each.task, each.example) for each in outcome.examples} for outcome in (plain, fresh)]
    assert len(ids[0]) == len(ids[1]) == 24 and not ids[0] & ids[1]
    assert again.report == fresh.report and again.examples == fresh.examples
    for outcome in (fresh, again):
        assert outcome.provenance.fresh is True and check(outcome.out).examples == 24
        assert said in (outcome.out / "README.md").read_text("utf-8")
        assert said in (outcome.out / "editkit" / "report.html").read_text("utf-8")
    assert plain.provenance.fresh is None and said not in (plain.out / "README.md").read_text("utf-8")

    asked_again = {"number": 5, "rng": np.random.default_rng(0)}
    published = editkit.load(str(fresh.out))
    assert rerun(published, capability(RECIPE), fresh, **asked_again).scores == 0
    claimed = replace(fresh, provenance=replace(fresh.provenance, fresh=None))
    with pytest.raises(IntegrityError, match="these are not the 12 examples"):
        rerun(published, capability(RECIPE), claimed, **asked_again)
    swapped = replace(fresh, examples=(fresh.examples[1], fresh.examples[0], *fresh.examples[2:]))
    with pytest.raises(IntegrityError, match="these are not the 12 examples"):
        rerun(published, capability(RECIPE), swapped, **asked_again)

    # The same run finds another edit, as it may on another device: its examples have judged one already.
    idle = replace(FOUND.order[0], unit=Head(5, 20))
    monkeypatch.setattr(locate, "localize", lambda *_, **__: replace(FOUND, order=(idle, *FOUND.order)))
    with pytest.warns(UserWarning, match="made another edit before, which these examples judged"):
        other = run("other", fresh=True)
    assert other.edit.units != fresh.edit.units and other.provenance.fresh is False
    assert {(each.task, each.example) for each in other.examples} == ids[1]
    assert said not in (other.out / "README.md").read_text("utf-8")
    assert rerun(editkit.load(str(other.out)), capability(RECIPE), other, **asked_again).scores == 0
