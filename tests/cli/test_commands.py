"""The command line: a user's mistake is one message and the right exit code, and leaves nothing behind.

If one fails: a typing mistake ends in a traceback, in the wrong exit code for a script, or in half an output.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from editkit import api
from editkit.checkpoints.knockout import Knockout
from editkit.checkpoints.source import resolve
from editkit.cli import main
from editkit.cli.commands import Commands
from editkit.cli.options import tell_kept
from editkit.cli.streams import print_json
from editkit.errors import EditkitError, NotLocalized, parts
from editkit.measuring.store import Cell, opened
from editkit.models.placement import Placement
from editkit.removal import recipe
from editkit.removal.recipe import names
from editkit.removal.remove import Run
from editkit.tasks.builtin import TASKS
from editkit.workspace import Session, work_for
from tests.known_heads import RECIPE


def run(*arguments: str, at: Path | None = None):
    runner = CliRunner()
    if at is None:
        return runner.invoke(main, list(arguments))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(at)
        return runner.invoke(main, list(arguments))


def _file(path: Path) -> str:
    (path / "out").write_text("mine")
    return "out"


def _full(path: Path) -> str:
    (path / "out").mkdir()
    (path / "out" / "mine.txt").write_text("mine")
    return "out"


def _evidence_only(path: Path) -> str:
    (path / "out" / "editkit").mkdir(parents=True)
    (path / "out" / "editkit" / "localization.json").write_text("{}")
    return "out"


def _no_weights(path: Path) -> str:
    (path / "model").mkdir()
    (path / "model" / "config.json").write_text('{"model_type": "llama"}')
    return "model"


def _unsupported(path: Path) -> str:
    (path / "model").mkdir()
    (path / "model" / "config.json").write_text('{"model_type": "mamba", "architectures": ["MambaForCausalLM"]}')
    (path / "model" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return "model"


MISTAKES = {
    "unknown recipe": (lambda path: ["remove-capability", "swaer"], 1, "did you mean 'swear'"),
    "missing recipe file": (lambda path: ["remove-capability", "no/such.yaml"], 1, "cannot be read"),
    "unknown model": (
        lambda path: ["remove-capability", "swear", "--model", "no/such-dir/model"],
        1,
        "no such directory",
    ),
    "no weights": (lambda path: ["remove-capability", "swear", "--model", _no_weights(path)], 1, "expected weights"),
    "unsupported model": (lambda path: ["remove-capability", "swear", "--model", _unsupported(path)], 1, "model"),
    "output is a file": (lambda path: ["remove-capability", "swear", "--out", _file(path)], 1, "already exists"),
    "dry, output exists": (
        lambda path: ["remove-capability", "swear", "--out", _full(path), "--dry-run"],
        1,
        "already exists",
    ),
    "output exists": (lambda path: ["remove-capability", "swear", "--out", _full(path)], 1, "already exists"),
    "no heads": (lambda path: ["remove-capability", "swear", "--heads", "0"], 2, "1 or more"),
    "unknown method": (lambda path: ["remove-capability", "swear", "--method", "magic"], 2, "magic"),
    "unknown option": (lambda path: ["remove-capability", "swear", "--colour"], 2, "No such option"),
    "unknown command": (lambda path: ["remove"], 2, "No such command"),
    "no head at all": (lambda path: ["bake", "--heads", " , ", "-o", "new"], 2, "names no head"),
    "neither heads nor edit": (lambda path: ["bake", "-o", "new"], 2, "--heads"),
    "no edit there": (lambda path: ["bake", "--edit", str(path), "-o", "new"], 1, "expected an edit.json"),
    "bad head": (lambda path: ["bake", "--heads", "L1X2", "-o", "new"], 2, "L16H21"),
    "absent head": (lambda path: ["bake", "--heads", "L99H0", "-o", "new"], 1, "L99H0"),
    "no such output": (lambda path: ["verify", "nowhere"], 5, "found no such directory"),
    "evidence only": (lambda path: ["push", _evidence_only(path), "me/x"], 5, "wrote no checkpoint"),
    "not an output": (lambda path: ["verify", str(path)], 5, "manifest.json"),
    "nothing to undo": (lambda path: ["undo", str(path), "-o", "new"], 5, "manifest.json"),
    "no evidence": (lambda path: ["card", str(path)], 5, "manifest.json"),
    "nothing to export": (lambda path: ["export", str(path), "--to", "lm-eval"], 1, "evidence of a removal"),
    "unknown form": (lambda path: ["export", str(path), "--to", "csv"], 2, "csv"),
    "export to nowhere": (lambda path: ["evaluate", "--out", "new"], 2, "without --export"),
    "export exists": (
        lambda path: ["evaluate", "--task", "swear", "--export", "lm-eval", "--out", _full(path)],
        1,
        "already exists",
    ),
    "unknown task": (lambda path: ["evaluate", "--task", "sweer"], 1, "did you mean 'swear'"),
    "unknown recipe to show": (lambda path: ["recipes", "show", "nothing"], 1, "Built in"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_message_with_its_exit_code_and_leaves_nothing(mistake: str, tmp_path: Path) -> None:
    arguments, code, words = MISTAKES[mistake]
    typed = arguments(tmp_path)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    result = run(*typed, at=tmp_path)
    assert result.exit_code == code, result.output
    assert words in result.output
    assert "Traceback" not in result.output
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("mistake", MISTAKES)
def test_with_json_a_mistake_is_one_object_on_stdout(mistake: str, tmp_path: Path) -> None:
    """Else a script that reads the output sees nothing where a command fails, or text that is no JSON."""
    arguments, code, words = MISTAKES[mistake]
    result = run(*arguments(tmp_path), "--json", at=tmp_path)
    told = json.loads(result.stdout)
    assert result.exit_code == told["code"] == code
    assert words in told["error"] and {"where", "remedy"} <= set(told)
    assert told["where"] in told["error"] and told["remedy"] in told["error"]


@pytest.mark.parametrize(
    ("message", "where", "remedy"),
    [
        ("./nope: no such directory. Check the spelling.", "./nope", "Check the spelling."),
        ("a.jsonl, line 3, column 'answer': it is none; copy one.", "a.jsonl, line 3, column 'answer'", ""),
        ("--heads 0: expected 1 or more.", "--heads 0", ""),
        ("There is no task 'x'. Built in: a, b. Or: a file.", "", "Built in: a, b. Or: a file."),
        ("Left out, as it cannot do them: a ... Then more.", "", ""),
    ],
)
def test_where_and_remedy_are_read_from_the_form_of_a_message(message: str, where: str, remedy: str) -> None:
    """Else a script points its user at the wrong file."""
    told = parts(EditkitError(message), 1)
    assert (told["where"], told["remedy"]) == (where, remedy)


def _all_commands(group: click.Group, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [
        path
        for name, command in group.commands.items()
        for path in (
            (*before, name),
            *(_all_commands(command, (*before, name)) if isinstance(command, click.Group) else ()),
        )
    ]


@pytest.mark.parametrize("path", _all_commands(main), ids=" ".join)
def test_every_command_takes_json(path: tuple[str, ...]) -> None:
    """Else a script must parse a table that is made for the eye."""
    assert "--json" in run(*path, "--help").output


def test_what_needs_no_model_prints_one_object(tmp_path: Path) -> None:
    """Else a pipeline cannot tell what was written, restored or listed."""
    made = json.loads(run("bake", "--heads", "L1H3", "-o", "new", "--json", at=tmp_path).stdout)
    assert made["out"] == "new"
    back = json.loads(run("undo", "new", "-o", "back", "--base", "organism", "--json", at=tmp_path).stdout)
    assert back["out"] == "back" and back["compared"] is True
    assert json.loads(run("recipes", "--json").stdout)["swear"].startswith("Swearing")
    assert json.loads(run("recipes", "show", "swear", "--json").stdout)["target"] == "swear"
    assert json.loads(run("tasks", "--json").stdout)["swear"]["rule"]
    assert json.loads(run("tasks", "show", "swear", "--json").stdout)["splits"]["report"]["examples"] > 100


def test_an_error_after_a_result_is_in_the_same_object() -> None:
    """Else a reader of JSON meets two documents where a run ends in a refusal."""

    @click.group(cls=Commands)
    def group() -> None: ...

    @group.command()
    @click.option("--json", "as_json", is_flag=True)
    def fail(as_json: bool) -> None:
        print_json({"rows": 3})
        raise NotLocalized("organism: no heads stand out. Try neurons.")

    found = CliRunner().invoke(group, ["fail", "--json"])
    assert found.exit_code == 3
    assert json.loads(found.stdout) == {
        **{"rows": 3, "error": "organism: no heads stand out. Try neurons.", "code": 3},
        **{"where": "organism", "remedy": "Try neurons."},
    }


def test_a_dry_run_accepts_what_the_run_would_replace(tmp_path: Path) -> None:
    found = run("remove-capability", "swear", "--dry-run", "--out", _evidence_only(tmp_path), at=tmp_path)
    assert found.exit_code == 0, found.output


def test_in_a_pipe_clients_draw_no_progress_bars() -> None:
    script = (
        "from editkit.cli import main\n"
        "main(['recipes'], standalone_mode=False)\n"
        "from huggingface_hub.utils import are_progress_bars_disabled\n"
        "assert are_progress_bars_disabled()\n"
    )
    clean = {name: value for name, value in os.environ.items() if "PROGRESS" not in name}
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=clean)
    assert found.returncode == 0, found.stderr


def test_help_imports_neither_torch_nor_transformers() -> None:
    script = (
        "import sys, runpy; sys.argv = ['editkit', '--help']\n"
        "try:\n    runpy.run_module('editkit', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'transformers', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'rich', 'huggingface_hub'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "remove-capability" in found.stdout


@pytest.mark.parametrize("command", ["inspect", "bake --heads L1H3 -o new", "bake --heads L1H3 --link -o new"])
def test_what_needs_no_model_imports_no_model_library(command: str, tmp_path: Path) -> None:
    script = (
        "import sys; from editkit.cli import main\n"
        f"main({command.split()!r}, standalone_mode=False)\n"
        "heavy = {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr


def test_ctrl_c_leaves_nothing_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("editkit.writing.export.checkpoint.edited_tensors", interrupt)  # the files are copied by then
    result = run("bake", "--heads", "L1H3", "-o", str(tmp_path / "out"))
    assert result.exit_code == 130 and "Run the same command again" in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", list(main.commands))
def test_every_command_has_help(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert main.commands[command].get_short_help_str(60).rstrip(".").count("...") == 0


def test_catalogues_list_and_show_everything() -> None:
    listed = run("recipes").output
    for name in names():
        assert name in listed
        assert f"capability: {name}" in run("recipes", "show", name).output
    listed = run("tasks").output
    for name in TASKS:
        assert name in listed
        assert "report (" in run("tasks", "show", name).output


def test_bake_verify_undo_and_inspect_without_loading_a_model(tmp_path: Path) -> None:
    assert run("bake", "--heads", "L1H3,L2H5", "-o", "new", at=tmp_path).exit_code == 0
    assert "every other byte is the base's" in run("verify", "new", "--base", "organism", at=tmp_path).output
    assert run("undo", "new", "-o", "back", at=tmp_path).exit_code == 0
    assert json.loads(run("inspect", "new", "--json", at=tmp_path).output)["heads"] >= 128
    assert "heads" in run("inspect", at=tmp_path).output
    again = run("bake", "--heads", "L1H3", "-o", "new", at=tmp_path)
    assert again.exit_code == 1
    assert "already exists" in again.output


def test_the_plan_prints_numbers_and_json(tmp_path: Path) -> None:
    assert "evaluations" in run("plan", "swear", at=tmp_path).output
    found = json.loads(run("plan", "swear", "--json", "--method", "one-shot", at=tmp_path).output)
    assert found["evaluations"] >= found["heads"] >= 128
    half = json.loads(run("plan", "swear", "--json", "--method", "one-shot", "--dtype", "float16", at=tmp_path).output)
    assert half | {"seconds": 0} == found | {"seconds": 0} and half["seconds"] != found["seconds"]
    assert json.loads(run("remove-capability", "swear", "--dry-run", "--json", at=tmp_path).stdout)["disk"] > 0
    there = json.loads(run("plan", "swear", "--json", "--gpu", "h100", at=tmp_path).output)["gpu"]
    assert there["fits"] is True and 0 < there["seconds"] < 3600
    assert "--gpu h0: no figures for it" in run("plan", "swear", "--gpu", "h0", at=tmp_path).stderr
    assert not any(tmp_path.iterdir())


def test_no_color_is_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wish, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", wish)
        told = CliRunner().invoke(main, ["verify", str(tmp_path)], color=True).output
        assert "expected editkit/manifest.json" in told and ("\x1b" in told) is coloured


def test_a_warning_is_a_sentence_without_a_place_in_the_code() -> None:
    @click.group(cls=Commands)
    def group() -> None: ...

    @group.command()
    def warn() -> None:
        warnings.warn("few tasks", stacklevel=1)
        warnings.warn("will go in v6", FutureWarning, stacklevel=1)

    assert CliRunner().invoke(group, ["warn"]).stderr == "warning: few tasks\n"


def test_a_plan_runs_no_python_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("open('ran', 'w').close()\n\ndef score(answer, row):\n    return 1\n")
    (tmp_path / "own.txt").write_text("\n".join(f"Say {number}." for number in range(60)))
    recipe = "{capability: own, target: {prompts: own.txt, scorer: {python: 'mine:score'}}, retain: [rhyme]}"
    (tmp_path / "own.yaml").write_text(recipe)
    (tmp_path / "study.yaml").write_text(
        f"study: own\nmodels: [bundled]\nmethods: [halving]\nheads: [1]\ncapabilities: [{{recipe: {recipe}}}]\n"
    )
    for command in ("plan own.yaml", "remove-capability own.yaml --dry-run", "study study.yaml --plan"):
        found = run(*command.split(), at=tmp_path)
        assert found.exit_code == 0, found.output
        assert not (tmp_path / "ran").exists(), command
    refused = run("remove-capability", "own.yaml", at=tmp_path)
    assert refused.exit_code == 1 and "--allow-code-execution" in " ".join(refused.output.split())
    assert not (tmp_path / "ran").exists()
    (tmp_path / "mine.py").unlink()
    assert "there is no module mine. Expected mine.py" in run("plan", "own.yaml", at=tmp_path).output


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("--help >/dev/full", 1, "error: No space left on device. See that there is room"),
        ("bake --help >/dev/full", 1, "error: No space left on device. See that there is room"),
        ("--version >/dev/full", 1, "error: No space left on device. See that there is room"),
        ("recipes >/dev/full", 1, "error: No space left on device. See that there is room"),
        ("inspect >/dev/full", 1, "error: No space left on device. See that there is room"),
        ("inspect >&-", 0, ""),
        ("recipes >&-", 0, ""),
        ("verify . 2>&-", 5, ""),
    ],
)
def test_an_output_that_takes_nothing_is_no_traceback(command: str, code: int, says: str, tmp_path: Path) -> None:
    script = f'"{sys.executable}" -m editkit {command}'
    found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == code, found.stderr
    assert found.stderr.startswith(says) and found.stderr.count("\n") == bool(says)


def test_a_file_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(out: Path) -> None:
        raise PermissionError(13, "Permission denied", str(out / "README.md"))

    monkeypatch.setattr("editkit.render.evidence_folder.render_again", refuse)
    found = run("card", str(tmp_path))
    assert found.exit_code == 1 and "README.md: Permission denied. See that" in " ".join(found.stderr.split())


@pytest.mark.parametrize("command", ["study study.yaml --out", "localize swear -o", "localize swear --plot"])
def test_a_file_in_no_folder_is_told_before_the_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr("editkit.removal.study.run", work)
    monkeypatch.setattr("editkit.cli.search.load", work)
    (tmp_path / "study.yaml").write_text(
        "study: own\nmodels: [bundled]\nmethods: [halving]\nheads: [1]\ncapabilities: [{recipe: swear}]\n"
    )
    found = run(*command.split(), "gone/x.md", at=tmp_path)
    assert found.exit_code == 2 and "gone/x.md: there is no folder gone. Make it first" in found.stderr


def test_a_study_without_a_figure_is_an_error(tmp_path: Path) -> None:
    """Else a script takes an empty table for a result."""
    grid = "study: own\nmodels: [no/such/model]\nmethods: [halving]\nheads: [1]\ncapabilities: [{recipe: swear}]\n"
    (tmp_path / "study.yaml").write_text(grid)
    found = run("study", "study.yaml", "--work", "work", at=tmp_path)
    assert found.exit_code == 1 and "No cell of this study could be measured" in found.stderr
    document = json.loads(run("study", "study.yaml", "--work", "work", "--json", at=tmp_path).stdout)
    assert document["code"] == 1 and "no such directory" in document["cells"][0]["error"]
    assert "no such directory" in found.stdout and "1/1: no/such/model, swear, halving, 1 head, seed 0" in found.stderr


def test_a_table_that_cannot_be_written_is_still_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editkit.cli.studies._measured", lambda *_: ("the table\n", False, {}))
    (tmp_path / "study.yaml").write_text(
        "study: own\nmodels: [bundled]\nmethods: [halving]\nheads: [1]\ncapabilities: [{recipe: swear}]\n"
    )
    found = run("study", "study.yaml", "--out", "/dev/full", at=tmp_path)
    assert found.exit_code == 2 and found.stdout == "the table\n"
    assert "/dev/full cannot be written: No space left" in found.stderr


@pytest.mark.commit
@pytest.mark.usefixtures("known_heads")
def test_a_reduction_is_written_where_it_was_asked_for_and_ends_in_6(tmp_path: Path) -> None:
    (tmp_path / "swear.yaml").write_text(recipe.dump(RECIPE))
    typed = ("remove-capability", "swear.yaml", "--heads", "3", "--goal", "0", "--damage", "0.3", "--work", "work")
    refused = run(*typed, "--out", "out", at=tmp_path)
    assert refused.exit_code == 3 and not (tmp_path / "out" / "model.safetensors").exists(), refused.output
    written = run(*typed, "--out", "out", "--accept", "best", at=tmp_path)
    assert written.exit_code == 6 and (tmp_path / "out" / "model.safetensors").exists(), written.output
    assert "Reduced, not removed" in written.stdout and "Exit code 6" in written.stderr
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert ", reduced in the small model" in card and "goal: 0.0\n" in card and "accept: best" in card


@pytest.mark.parametrize("damage", ["much", "0.1,0.2,0.3", "2"])
def test_a_budget_that_is_none_is_told(damage: str, tmp_path: Path) -> None:
    found = run("remove-capability", "swear", "--damage", damage, at=tmp_path)
    assert found.exit_code in (1, 2) and "damage" in found.stderr


DAMAGE = {"each": 0.05, "mean": 0.03}
CHANGES = {"goal": 0.5, "damage": DAMAGE, "choose": "set", "accept": "best", "heads": 3, "audits": "none"}


@pytest.mark.parametrize("given", ["name", "recipe"])
def test_the_command_on_a_card_made_from_python_makes_the_same_run(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []
    monkeypatch.setattr(api, "load_source", lambda source, placement: SimpleNamespace(source=source, asked=placement))
    monkeypatch.setattr(api, "remove", lambda live, run, work, *, stages: runs.append(run))
    wanted = "swear" if given == "name" else recipe.read("swear")
    changes = CHANGES | {"max_heads": 4}
    asked = {"out": "out", "seed": 3, "fresh": True, "placement": Placement(dtype="bfloat16")}
    asked["session"] = Session(tmp_path)
    monkeypatch.chdir(tmp_path)
    api.remove_capability(wanted, changes=changes, **asked)
    comment, typed = runs[0].command.split("\n")
    if given == "name":
        assert comment == '# with these changes to the recipe: {"max_heads": 4}'
        Path("recipe.yaml").write_text(recipe.text("swear") + "max_heads: 4\n")
        typed = typed.replace("swear", "recipe.yaml")
    else:
        assert comment.startswith("# recipe.yaml: ") and "remove-capability recipe.yaml" in typed
        Path("recipe.yaml").write_text(recipe.dump(runs[0].recipe))
    result = run(*shlex.split(typed)[1:], "--work", str(tmp_path))
    assert len(runs) == 2, result.output
    assert (runs[1].recipe, runs[1].seed, runs[1].out) == (runs[0].recipe, 3, Path("out"))
    assert "--dtype bfloat16" in typed
    assert runs[0].fresh is not None and runs[1].fresh == runs[0].fresh


def test_what_is_kept_of_a_model_is_told_and_of_a_new_one_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a resumed run looks like one that begins anew."""
    source = resolve(None)
    tell_kept(source, tmp_path)
    assert capsys.readouterr().err == ""
    with opened(work_for(source.base, "", 0, tmp_path).store) as store:
        store.put(store.space({"any": 1}), [(Knockout(), f"e{n}", Cell(1.0, True, "x")) for n in range(3)])
    tell_kept(source, tmp_path)
    assert "3 measurements of this model are kept in" in capsys.readouterr().err
