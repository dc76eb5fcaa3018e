"""Recipes are strict: every built-in one reads back, every wrong key is named.

If one fails: a misspelt setting is ignored in silence, and the run is another than was asked for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from editkit.errors import EditkitError
from editkit.removal import recipe

GOOD = "capability: swear\ntarget: swear\nretain: [rhyme]\n"


@pytest.mark.parametrize("name", recipe.names())
def test_a_built_in_recipe_reads_and_its_dump_reads_back_equal(name: str) -> None:
    found = recipe.read(name)
    assert found.capability == name
    assert found.target not in found.retain
    assert recipe.parse(recipe.dump(found), where=name) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "retian: [x]", ["unknown key 'retian'", "'retain'"]),
        (GOOD + "damage: {eech: 0.1}", ["unknown key 'damage.eech'", "'each'"]),
        (GOOD + "goal: 1.5", ["goal", "1.5"]),
        (GOOD + "goal: high", ["goal", "high"]),
        (GOOD + f"examples: {{locate: {10**400}}}", ["examples.locate", "less than or equal to"]),
        (GOOD + "heads: 0", ["heads"]),
        (GOOD + "heads: many", ["heads"]),
        (GOOD + "method: magic", ["method", "magic"]),
        ("target: swear\nretain: [rhyme]", ["'capability' is missing"]),
        ("capability: ../x\ntarget: a\nretain: [b]", ["capability"]),
        ("capability: swear\ntarget: swear\nretain: []", ["retain"]),
        ("- a\n- b", ["expected a table"]),
        ("a: [", ["not YAML"]),
        (GOOD + "damage:\n  each: 0.1\n  each: 0.2", ["the key 'each' of line 6 was in line 5 already"]),
        ("!!python/object/apply:os.system ['true']", ["not YAML"]),
    ],
)
def test_a_wrong_recipe_names_the_place_and_the_key(text: str, words: list[str]) -> None:
    with pytest.raises(EditkitError) as caught:
        recipe.parse(text, where="mine.yaml")
    for word in ["mine.yaml", *words]:
        assert word in str(caught.value)


def test_an_unknown_name_lists_what_there_is_and_the_nearest() -> None:
    with pytest.raises(EditkitError, match=r"did you mean 'swear'.*arithmetic"):
        recipe.read("swaer")
    with pytest.raises(EditkitError, match="cannot be read"):
        recipe.read("no/such/file.yaml")


def test_the_reference_has_every_key_as_it_is_read() -> None:
    """Else a user looks in vain for a key, or writes down a default that is none."""
    from tests import key_reference

    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text("utf-8")
    assert page == key_reference.page(), "run: python -m tests.key_reference > docs/reference.md"
    for model in key_reference.SECTIONS.values():
        for key in model.model_fields:
            assert f"| `{key}` |" in page


def test_of_many_mistakes_the_first_are_told() -> None:
    text = GOOD + "".join(f"key{at}: 1\n" for at in range(500))
    with pytest.raises(EditkitError, match="and 480 more mistakes") as caught:
        recipe.parse(text, where="mine.yaml")
    assert str(caught.value).count("\n") == 20


def test_a_limit_is_on_every_number_of_examples_and_raises_none() -> None:
    """Else a quick look asks as much as the run, or more."""
    found = recipe.read("past-tense")
    quick = recipe.changed(found, {"limit": 50})
    counts = quick.examples.model_dump() | {"u": quick.universal_examples, "r": quick.random_examples}
    assert counts == {"locate": 50, "choose": 50, "report": 50, "first": 50, "u": 20, "r": 30}
    assert recipe.changed(found, {"limit": 10**6}) == found
    plain = recipe.parse(GOOD, where="here")
    assert recipe.changed(plain, {"limit": 5}).examples.first is None
