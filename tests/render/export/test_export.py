"""An export is a new folder, whole or not there, with a file for each model and task whatever they are called.

If one fails: an export overwrites what somebody kept, leaves half a folder, or writes where a foreign name leads.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import editkit
from editkit.cli import main
from editkit.errors import EditkitError, UsageError
from editkit.evidence.results import of_outcome
from editkit.render import export
from editkit.render.export import Export, inspect_logs
from editkit.render.export.file_names import file_names
from tests.made_evidence import measured

CARD = Path(__file__).parents[3] / "cards" / "swear"


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_command_writes_what_python_writes(tmp_path: Path) -> None:
    """And twice the same."""
    told = CliRunner().invoke(main, ["export", str(CARD), "--to", "lm-eval", "-o", str(tmp_path / "first")])
    assert told.exit_code == 0 and "20 files" in told.output
    made = editkit.export(CARD, to="lm-eval", directory=tmp_path / "second")
    assert _files(made) == _files(tmp_path / "first")
    assert {path.name for path in made.iterdir()} == {"organism", "swear"}


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(EditkitError, match="already exists"):
        editkit.export(CARD, to="lm-eval", directory=tmp_path / "mine")
    assert _files(tmp_path) == {"mine/notes.txt": b"mine"}


def test_what_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(results: object, folder: Path) -> None:
        (folder / "one.json").write_text("{}")
        raise EditkitError("The disk is full.")

    monkeypatch.setitem(export.FORMS, "lm-eval", half)
    with pytest.raises(EditkitError, match="full"):
        editkit.export(CARD, to="lm-eval", directory=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_one_line_that_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_logs, "find_spec", lambda name: None)
    told = CliRunner().invoke(main, ["export", str(CARD), "--to", "inspect", "-o", str(tmp_path / "new")])
    assert told.exit_code == 2 and "pip install 'editkit[inspect]'" in told.output
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_form_names_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="inspect, lm-eval"):
        editkit.export(CARD, to="csv", directory=tmp_path / "new")


def test_two_models_of_one_name_are_both_there(tmp_path: Path) -> None:
    both = tuple(replace(each, model="same") for each in of_outcome(measured()))
    Export("lm-eval", tmp_path / "new").write(both)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"same", "same (2)"}


@pytest.mark.parametrize("form", ["lm-eval", "inspect"])
def test_whatever_foreign_evidence_says_it_is_written_inside_the_folder(form: str, tmp_path: Path) -> None:
    """Half characters, escapes and paths in every name and text: `pull-verify` brings evidence of anybody's."""
    if form == "inspect":
        pytest.importorskip("inspect_ai", reason="needs the extra: pip install 'editkit[inspect]'")
    found, bad = measured(), "\ud800\x1b[2J<script>/../.."
    told = found.provenance
    odd = replace(
        found,
        provenance=replace(told, command=bad, recipe=bad, base=replace(told.base, model=bad), versions={bad: bad}),
        report=replace(
            found.report, rows=tuple(replace(row, task=row.task + bad, split=bad) for row in found.report.rows)
        ),
        examples=tuple(
            replace(each, task=each.task + bad, example=each.example + bad, cluster=bad, answers=(bad, bad))
            for each in found.examples
        ),
    )
    Export(form, tmp_path / "deep" / "new").write(of_outcome(odd))
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["new"]
    assert len(_files(tmp_path)) == {"lm-eval": 8, "inspect": 6}[form]


@given(st.lists(st.text(max_size=150) | st.sampled_from(["..", ".", "/", "a/../b", "C:\\x", "A", "a", "", "\0"])))
def test_a_name_never_leads_out_of_the_folder(names: list[str]) -> None:
    for unlike in (r"[^\w.,=+ -]+", r'["<>:/|\\?*\[\]\x00-\x1f\x7f]+'):
        found = file_names(names, unlike=unlike)
        assert set(found) == set(names)
        assert len({name.casefold() for name in found.values()}) == len(found)
        for name in found.values():
            assert name and not name.startswith(".") and not set(name) & set("/\\\0")


@pytest.mark.parametrize("name", ["swear", "next-number", "lm_eval:gsm8k", "meta-llama/Llama-3.2-1B", "a,b=c"])
def test_a_usual_name_is_the_one_that_lm_eval_gives(name: str) -> None:
    unlike = r'["<>:/|\\?*\[\]\x00-\x1f\x7f]+'
    named = pytest.importorskip("lm_eval.utils", reason="needs the extra: pip install 'editkit[eval]'")
    assert file_names([name], unlike=unlike)[name] == named.sanitize_model_name(name)
