"""A plan says which data sets show a capability, and is refused where it does not.

If one fails: sets are compared that the user did not name, or a typing mistake costs an hour.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from editkit.errors import EditkitError
from editkit.reliability.plan import changed, data_sets, read
from editkit.tasks.find import find

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "recipes" / "cnl").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_plans_that_come_along_are_whole(path: Path) -> None:
    plan, folder = read([str(path)])
    found = data_sets(plan, folder=folder)
    assert len(found.of("capability")) > 1 and found.of("other") and plan.reliability == path.stem


@pytest.mark.commit
@pytest.mark.parametrize("name", ["metamath", "emotion", "imdb"])
def test_lm_eval_understands_the_tables_of_the_papers_data_sets(name: str, tmp_path: Path) -> None:
    """If this fails: a GPU is rented, and the first data set is refused. The data is made here, in their columns."""
    rows = [
        {
            "query": f"What is {n} + 3?",
            "response": f"We add 3. The answer is: {n + 3}",
            "text": f"Day {n}.",
            "label": n % 2,
        }
        for n in range(120)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = yaml.safe_load((ROOT / "recipes" / "cnl" / "hub" / f"{name}.yaml").read_text())
    source = table["lm_eval"]
    kept = source.setdefault("dataset_kwargs", {}).get("split", {}).get("test", "test[:2000]")
    source |= {"dataset_path": "json"}
    source["dataset_kwargs"]["data_files"] = {kept.partition("[")[0]: str(tmp_path / "rows.jsonl")}
    if name == "imdb":
        source["dataset_kwargs"]["split"] = {"test": "test[:50]+test[-50:]"}
    task = find(table, allow_code=True)
    assert task.name == name and len(task.examples()) == (100 if name == "imdb" else 120)
    if name == "metamath":
        example = task.examples()[0]
        answers = (f"Since 1 + 2 = 3, the answer is: {n}" for n in (rows[0]["response"].split()[-1], 999))
        assert [task.score(example, [answer]).value for answer in answers] == [1, 0]


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
