"""Retained tasks that a first batch of examples leaves open are asked the rest, and judged by all.

If one fails: a harmless edit is refused for one unlucky answer, or a harmful one passes for want of examples.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from editkit.evidence.verdict import TWICE, standing, undecided
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.removal.rerun import _left_open
from editkit.removal.transcripts import examples
from editkit.removal.trial import Answers, trial_of
from tests.evidence.test_report import compare, scores
from tests.known_heads import HEADS

WANTED = capability(
    recipes.parse(
        "capability: swear\ntarget: swear\nretain: [rhyme, sort]\nexamples: {report: 24, first: 8}\n", where="here"
    )
)


@pytest.mark.parametrize(("lost", "gained", "open_"), [(2, 0, True), (1, 0, False), (6, 2, True), (12, 11, False)])
def test_what_lost_a_part_of_its_budget_is_open_until_more_examples_decide(lost: int, gained: int, open_: bool) -> None:
    """Of 120 examples, with a budget of 5 points, six; more than one and a half are a quarter of them."""
    criteria = replace(WANTED.recipe.criteria, damage_each=0.05)
    row = compare("sort", "retain", [*scores(120 - gained, 120)], [*scores(120 - gained - lost + gained, 120)])
    row = replace(row, lost=float(lost), gained=float(gained))
    assert criteria.level == TWICE
    assert undecided(row, criteria) == (open_ and standing(row, criteria) == "not shown")


def test_only_tasks_that_are_open_are_asked_the_rest(organism: LanguageModel) -> None:
    """Targets are asked all at once; a task that lost nothing is asked no more, and one that lost much is."""
    trial = trial_of(WANTED)
    with opened(None) as store:
        ledger = Ledger(organism, store)
        answers = trial.asked(ledger, HEADS)
        assert [len(sheet.examples) for sheet in answers.before] == [24, 8, 8]
        same, unchanged = trial.decided(ledger, HEADS, answers)
        assert same == trial and unchanged is answers
        rhyme = answers.after[1]
        worse = replace(rhyme, cells=tuple(replace(cell, value=0.0) for cell in rhyme.cells[:1]) + rhyme.cells[1:])
        spoilt = Answers(answers.before, (answers.after[0], worse, answers.after[2]), answers.again)
        again, more = trial.decided(ledger, HEADS, spoilt)
        assert again.whole == {"rhyme"} and [len(sheet.examples) for sheet in more.after] == [24, 24, 8]
        assert more.after[1].examples[:8] == rhyme.examples, "the first batch is part of the whole"
    lost = replace(more.after[1], cells=worse.cells + more.after[1].cells[8:])
    told = replace(more, after=(more.after[0], lost, more.after[2]))
    published = examples(told)
    assert _left_open(trial, published, again.report(told)) == {"rhyme"}
    honest = [replace(each, after=each.before) if each.task == "rhyme" else each for each in published]
    assert not _left_open(trial, honest, again.report(told)), "nobody may go on asking where nothing was open"
