"""A whole search on the organism, small: format and universal heads named, every column there, within its budget.

If one fails: a search names the head of an answer's form as that of a capability, or costs more than it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from editkit.evidence.localization import Localization
from editkit.measuring.answers import task_scores
from editkit.measuring.failure_modes import failing
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal import find_heads
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.removal.find_heads import control_measures, localize, plain_controls
from editkit.render.wording import effect_means
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import examples_of
from editkit.units import parse

pytestmark = pytest.mark.commit

UNIVERSAL, LETTER = "L0H11", "L2H8"
RECIPE = """
capability: letters
target: facts-letter
retain: [swear, rhyme, facts, story]
universal_examples: 12
examples: {locate: 40}
"""


@pytest.fixture(scope="module")
def ledger(organism: LanguageModel) -> Iterator[Ledger]:
    with opened(None) as store:
        yield Ledger(organism, store)


@pytest.fixture(scope="module")
def found(ledger: Ledger) -> Localization:
    return localize(ledger, capability(recipes.parse(RECIPE, where="here")), seed=0)


def test_a_letter_task_names_the_head_of_its_format_and_no_head_of_its_knowledge(found: Localization) -> None:
    assert [str(unit) for unit in found.formats] == [LETTER]
    assert str(found.order[0].unit) == LETTER
    facts = {"L2H13", "L4H10", "L3H22"}
    assert len(facts & {str(effect.unit) for effect in found.order[:4]}) >= 2


def test_the_universal_head_is_named_with_what_breaks(found: Localization) -> None:
    assert [str(unit) for unit in found.universal] == [UNIVERSAL]
    told = found.diagnostics["universal"]["heads"][UNIVERSAL]
    assert told["fails_by"] == "repetition" and told["failing"]["repetition"] > 0.5


def test_every_column_is_there_and_survives_json(found: Localization) -> None:
    first = found.order[0]
    assert first.low < first.effect < first.high < 0 and first.p < 0.05
    assert first.selectivity > 0.9 and first.stability > 0.9
    together = found.diagnostics["together"]
    assert LETTER in together["units"] and together["drop"] >= -first.effect - 0.05
    random = together["random sets"]
    assert random["p"] == 0.05 and random["mean drop"] < 0.15 and random["largest drop"] < random["found drop"]
    again = Localization.from_json(found.to_json())
    assert again.formats == found.formats and again.order[0] == first
    assert json.loads(found.to_json())["order"][0]["stability"] == first.stability


def test_all_that_a_run_needs_stays_under_half_of_one_shot(found: Localization) -> None:
    parts = found.diagnostics["evaluations"]
    assert {"search", "universal", "selectivity", "format", "random sets", "ways to fail"} == set(parts)
    assert found.evaluations == pytest.approx(sum(parts.values()))
    assert found.evaluations < 144 / 2


def test_a_search_by_answers_measures_what_the_task_scores(ledger: Ledger) -> None:
    text = RECIPE.replace("facts-letter", "swear").replace("[swear,", "[facts-letter,").replace("40", "16")
    wanted = capability(recipes.parse(f"{text}scores: answers\nmethod: halving\n", where="here"))
    found = localize(ledger, wanted, seed=0)
    first = found.order[0]
    masks = ledger.model.architecture.masks([[], [first.unit]])
    [task] = wanted.targets
    before, after = (
        [cell.value for cell in row] for row in task_scores(ledger, task, examples_of(task, "locate", limit=16), masks)
    )
    assert first.effect == pytest.approx(sum(after) / 16 - sum(before) / 16)
    assert {str(effect.unit) for effect in found.order[:3]} <= {"L1H3", "L2H17", "L3H8", "L4H21"}
    assert found.diagnostics["scores"] == "answers"
    assert "of the task's score" in effect_means(found)


def test_ways_to_fail_are_told_apart(ledger: Ledger) -> None:
    masks = ledger.model.architecture.masks([[parse(UNIVERSAL)], [parse("L1H3")], [parse("L5H23")]])
    asked = [(TASKS[name], examples_of(TASKS[name], "locate", limit=8)) for name in ("swear", "story")]
    broken, rude, fine = failing(ledger, asked, masks)
    assert max(broken, key=lambda way: broken[way]) == "repetition" and "all choices unlikely" in broken
    assert set(rude) == {"wrong answers"} and fine == {}


@pytest.mark.parametrize(("retain", "known"), [(["swear", "rhyme"], False), (["swear", "facts-letter"], True)])
def test_plain_text_is_asked_too_where_all_retained_tasks_are_of_one_format(
    retain: list[str], known: bool, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else universal heads are not looked for: one needs tasks of two formats to tell them from a format's."""
    recipe = f"{{capability: f, target: facts, retain: {retain}, universal_examples: 12, examples: {{locate: 20}}}}"
    wanted = capability(recipes.parse(recipe, where="here"))
    monkeypatch.setattr(find_heads, "PROSE", TASKS["story"])  # the bundled model reads stories, not English prose
    controls = control_measures(ledger, wanted.retain, 12)
    plain = plain_controls(ledger, controls, wanted.retain, 12)
    formats = {task.format for task in wanted.retain}
    assert (len(formats) > 1) is known, formats
    assert bool(plain) is not known
