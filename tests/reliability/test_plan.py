"""A plan says which data sets show a capability, and is refused where it does not.

If one fails: sets are compared that the user did not name, or a typing mistake costs an hour.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from editkit.errors import EditkitError
from editkit.reliability.plan import changed, data_sets, read

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "recipes" / "cnl").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_plans_that_come_along_are_whole(path: Path) -> None:
    plan, folder = read([str(path)])
    found = data_sets(plan, folder=folder)
    assert len(found.of("capability")) > 1 and found.of("other") and plan.reliability == path.stem


def test_a_recipe_is_a_plan_and_so_are_names_of_tasks() -> None:
    plan, _ = read(["capitals"], other=["sort"])
    assert plan.capability == ("capitals", "capitals-chat", "capitals-sentence", "capitals-reversed")
    assert "addition" in plan.other and plan.other[-1] == "sort"
    plan, _ = read(["facts", "facts-letter"], content=["recall"])
    assert (plan.capability, plan.content, plan.reliability) == (("facts", "facts-letter"), ("recall",), "facts")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reliability: x\ncapability: [facts]\nothers: [sort]", "unknown key 'others' .did you mean 'other'"),
        ("reliability: x\ncapability: []", "capability: expected at least 1"),
        ("reliability: x\ncapability: [facts]\nsettings: {sigma: -1}", "settings.sigma: .*found -1"),
        ("reliability: x\ncapability: [facts]\nother: [facts]", "'facts' more than once"),
        ("reliability: x\ncapability: [fact]", "did you mean 'facts'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(EditkitError, match=message):
        data_sets(read([str(tmp_path / "plan.yaml")])[0])


def test_settings_are_changed_by_name_and_checked() -> None:
    plan, _ = read(["facts"])
    assert changed(plan, {"sigma": 3, "seeds": 0}).settings.sigma == 3
    with pytest.raises(EditkitError, match="units: Input should be 'heads' or 'neurons'"):
        changed(plan, {"units": "layers"})
