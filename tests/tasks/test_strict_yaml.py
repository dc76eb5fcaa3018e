"""YAML that was made to mislead or to hang ends in one sentence, soon; what people write is read.

If one fails: a recipe from the internet hangs the program, or ends in a traceback.
"""

from __future__ import annotations

import time
from importlib.resources import files

import pytest
import yaml

from editkit.errors import EditkitError
from editkit.removal import recipe
from editkit.tasks import strict_yaml

NINE = "a: &a [x, x, x, x, x, x, x, x, x]\n"
BOMB = NINE + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOMB, "line 5: stands for more than 20000 values, aliases written out"),
        (BOMB.replace("[", "{? [").replace("]", "] : 1}"), "stands for more than|unhashable"),
        ("a: &a [*a]", "line 1: an alias stands within what it stands for"),
        ("a: &a {b: *a}", "an alias stands within"),
        ("a: " + "[" * 3000 + "]" * 3000, "line 1: more than 40 lists and tables within each other"),
        ("".join(f"{' ' * n}a:\n" for n in range(100)), "line 40: more than 40"),
        ("a" * (strict_yaml.SIZE + 1), "65537 characters; at most 65536 are read"),
        ("summary: 2024-99-99", "a value is not what it looks like .month must be in 1..12.; put text in quotes"),
        ("goal: " + "1" * 5000, "a value is not what it looks like .Exceeds the limit"),
        ("goal: !!int ''", "a value is not what it looks like"),
        ("goal: !!timestamp x", "a value is not what it looks like"),
        ("goal: !!bool x", "a value is not what it looks like"),
        ("goal: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
def test_hostile_yaml_ends_in_a_sentence_soon(text: str, says: str) -> None:
    start = time.process_time()
    with pytest.raises(yaml.YAMLError, match=says):
        strict_yaml.load(text)
    with pytest.raises(EditkitError, match=r"my\.yaml is not YAML: ") as caught:
        recipe.parse(text, where="my.yaml")
    assert time.process_time() - start < 10
    assert len(str(caught.value)) < 500 and str(caught.value).isprintable()


def test_aliases_that_people_write_are_read() -> None:
    text = "base: &b {goal: 0.1, retain: [x]}\nrecipes: [*b, {<<: *b, goal: 0.2}]"
    assert strict_yaml.load(text)["recipes"] == [{"goal": 0.1, "retain": ["x"]}, {"goal": 0.2, "retain": ["x"]}]
    for path in (files("editkit.recipes") / "paper").iterdir():
        assert strict_yaml.load(path.read_text("utf-8"))
