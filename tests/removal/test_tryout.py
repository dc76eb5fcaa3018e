"""A first look: a recipe or a task is tried in seconds, and its answers tell a bad scorer from a bad model.

If one fails: a user starts a run of hours with a scorer that sees nothing, or with a model that cannot do it.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import editkit
from editkit.cli import main
from editkit.errors import EditkitError
from editkit.models.language_model import LanguageModel
from editkit.removal.tryout import tasks_of, tryout
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import examples_of

DOCS = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
SECTION = DOCS.split("## Add a task in five minutes", 1)[1].split("\n## ", 1)[0]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the docs say to write, written as it stands there."""
    monkeypatch.chdir(tmp_path)
    for language, name in (("python", "prompts.py"), ("yaml", "person.yaml")):
        [text] = re.findall(rf"```{language}\n(.*?)```", SECTION, flags=re.DOTALL)
        Path(name).write_text(text)
    runpy.run_path("prompts.py")
    return tmp_path


def commands() -> dict[str, list[str]]:
    [shell] = re.findall(r"```sh\n(.*?)```", SECTION, flags=re.DOTALL)
    typed = (line.partition("#")[0].split() for line in shell.splitlines() if line.startswith("editkit"))
    return {words[1]: words[1:] for words in typed}


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_the_five_minute_recipe_of_the_docs_is_tried_and_planned_as_copied(copied: Path) -> None:
    """Else the first thing that a newcomer writes does not work."""
    tried = run(*commands()["try"])
    assert tried.exit_code == 0, tried.output
    assert "100.0 %: 10 of 10 right" in tried.stdout and "the row's answer as a whole word" in tried.stdout
    planned = run(*commands()["plan"])
    assert planned.exit_code == 0 and "person, method auto" in planned.stdout, planned.output
    assert sorted(commands()) == ["plan", "remove-capability", "try"]


@pytest.mark.commit
@pytest.mark.usefixtures("undrawn")
def test_the_five_minute_recipe_of_the_docs_is_removed_as_copied(copied: Path) -> None:
    """Else the docs promise a removal that ends in a refusal."""
    done = run(*commands()["remove-capability"], "--audits", "none", "--work", "work")
    assert done.exit_code == 0, done.output
    assert (copied / "organism-no-person" / "model.safetensors").is_file()


def test_a_first_look_asks_nothing_that_the_report_will_ask(organism: LanguageModel) -> None:
    """Else whoever mends a scorer by what `try` shows has fitted it to the examples of the verdict."""
    task = TASKS["recall"]
    look = tryout(organism, task, count=3)
    asked = {example.prompt for example in examples_of(task, "locate")}
    assert {each.prompt for each in look.answers} <= asked and len(look.answers) == 3
    assert not {each.prompt for each in look.answers} & {example.prompt for example in examples_of(task, "report")}


def test_a_wrong_answer_is_shown_with_what_was_expected(copied: Path) -> None:
    """Else a score of 0 does not say whether the scorer or the model is to be mended."""
    recipe = copied / "person.yaml"
    recipe.write_text(recipe.read_text().replace("scorer: word", "scorer: {word: [nowhere]}"))
    tried = run("try", "person.yaml", "--count", "2")
    shown = " ".join(tried.stdout.split())
    assert tried.exit_code == 0 and shown.count("✗ wrong") == 2 and shown.count("(expected: ") == 2, tried.output
    assert "as a whole word, in any case: nowhere" in shown and "mend it" in shown


def test_a_recipe_is_measured_where_a_task_is_named(copied: Path) -> None:
    """Else a newcomer who evaluates the recipe just written is told that its keys are wrong."""
    assert [task.name for task in tasks_of("person.yaml").all] == [
        "person",
        "arithmetic",
        "facts",
        "rhyme",
        "story",
    ]
    done = run("evaluate", "--task", "person.yaml", "--limit", "1", "--json")
    assert done.exit_code == 0 and '"task": "person"' in done.stdout and '"task": "story"' in done.stdout, done.output
    refused = run("evaluate", "person.yaml")
    assert refused.exit_code == 1 and "editkit evaluate MODEL --task person.yaml" in refused.stderr


def test_every_built_in_task_and_recipe_can_be_tried() -> None:
    """Else a name that a catalogue lists is refused, or a task does not say what it looks for."""
    from editkit.removal import recipe

    for name in (*TASKS, *recipe.names()):
        assert all(task.rule for task in tasks_of(name).all), name
    with pytest.raises(EditkitError, match="did you mean 'swear'"):
        tasks_of("swaer")


def test_a_first_look_from_python(organism: LanguageModel) -> None:
    """Else notebooks have no way to see answers beside their scores."""
    [look] = editkit.tryout("swear", model=organism, count=2)
    assert look.task == "swear" and 0 <= look.score <= 1 and "profane words" in look.rule
