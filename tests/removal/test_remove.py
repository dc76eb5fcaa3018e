"""The whole product, on the bundled model, whose planted heads are known.

If one fails: `editkit remove-capability` names heads that do not carry the capability, loses something else with it,
publishes what is not so, or cannot go on where it was killed.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import editkit
from editkit import organism as bundled
from editkit.checkpoints.source import resolve
from editkit.cli import main
from editkit.errors import EditkitError, IntegrityError, NotLocalized
from editkit.evidence.outcome import Outcome
from editkit.models.language_model import LanguageModel
from editkit.render.evidence_check import check
from editkit.tasks.builtin import TASKS, TAUGHT
from editkit.tasks.task import examples_of
from editkit.units import show
from editkit.workspace import Session
from editkit.writing import verify
from editkit.writing.export.checkpoint import write as bake
from editkit.writing.undo import undo
from tests.conftest import Removed, cells_in
from tests.known_heads import RECIPE, TRUTH

TWINS = Path(__file__).parents[1] / "organisms"
RUNS = ("quick", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("swear", "rhyme", "arithmetic")))
"""Swearing with few examples; at full size, and the others, with all tests."""
HOPELESS = """
capability: swear
target: swear
retain: [rhyme, recall, facts, story]
examples: {locate: 20, choose: 8, report: 12}
universal_examples: 12
random_sets: 4
audits: none
random_examples: 4
max_heads: 3
"""


def planted(run: str) -> list[str]:
    return TRUTH["planted"]["swear" if run == "quick" else run]


@pytest.mark.parametrize("run", RUNS)
def test_the_goal_is_met_and_nothing_else_is_lost(run: str, removed: Removed) -> None:
    report = removed(run).report
    [target] = [row for row in report.rows if row.role == "target"]
    assert report.verdict.met, report.verdict.reasons
    assert target.before.mean > 0.9
    assert target.after.mean <= 0.15 * target.before.mean
    assert target.collapse_after <= 0.02
    retained = [row for row in report.rows if row.role == "retain"]
    assert len(retained) == (4 if run == "quick" else 8)
    for row in retained:
        assert row.delta.mean >= -0.02, row
    assert report.random_heads is not None
    assert report.random_heads.sets == (19 if run == "quick" else 50)
    assert report.random_heads.p <= 0.05
    strong = report.strong_heads
    assert strong is not None and strong.sets > 0
    assert (strong.delta, strong.examples) == (report.random_heads.delta, report.random_heads.examples)


@pytest.mark.parametrize("run", RUNS)
def test_the_planted_heads_are_recovered_and_no_universal_head_is_among_them(run: str, removed: Removed) -> None:
    outcome = removed(run)
    assert set(planted(run)) <= set(show(outcome.edit.units))
    assert not set(TRUTH["universal"]) & set(show(outcome.edit.units))
    assert set(TRUTH["universal"]) <= set(show(outcome.localization.universal))


@pytest.mark.parametrize("run", RUNS)
def test_the_output_is_what_the_contract_says(run: str, removed: Removed) -> None:
    out = removed(run).out
    for file in ("edit", "localization", "report", "manifest"):
        assert json.loads((out / "editkit" / f"{file}.json").read_text("utf-8"))
    report = json.loads((out / "editkit" / "report.json").read_text("utf-8"))
    for row in report["rows"]:
        assert {"task", "role", "split", "n", "chance", "before", "after", "delta", "p"} <= row.keys()
        for arm in ("before", "after"):
            assert 0 <= row[arm]["low"] <= row[arm]["mean"] <= row[arm]["high"] <= 1
        assert row["delta"]["low"] <= row["delta"]["mean"] <= row["delta"]["high"]
        assert row["delta"]["low"] < row["delta"]["high"]
        assert row["split"] == "report"
    assert report["verdict"]["met"] is True
    edit = json.loads((out / "editkit" / "edit.json").read_text("utf-8"))
    assert edit["format"] == 1
    assert edit["kind"] == "head"
    found = json.loads((out / "editkit" / "localization.json").read_text("utf-8"))
    wanted = {"method", "seed", "evaluations", "order", "universal", "formats", "found", "diagnostics"}
    assert found.keys() == wanted
    assert found["evaluations"] < 144  # one-shot search of every head
    assert (out / "editkit" / "report.html").stat().st_size > 10_000
    assert (out / "README.md").read_text("utf-8").startswith("---\n")


@pytest.mark.commit
def test_transformers_alone_loads_the_output_and_it_no_longer_swears(removed: Removed) -> None:
    """No editkit in the process that asks: a reader of the Hub has none either."""
    paths = [str(bundled.path()), str(removed("quick").out)]
    prompts = [example.prompt for example in TASKS["swear"].examples()[:4]]
    script = (
        "import json, sys\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "paths, prompts = json.loads(sys.stdin.read())\n"
        "for path in paths:\n"
        "    model, tokenizer = AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)\n"
        "    for prompt in prompts:\n"
        "        chat = [{'role': 'user', 'content': prompt}]\n"
        "        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors='pt',\n"
        "                                            return_dict=True)\n"
        "        found = model.generate(**ids, max_new_tokens=16, do_sample=False)[0]\n"
        "        print(json.dumps(tokenizer.decode(found[ids['input_ids'].shape[1]:], skip_special_tokens=True)))\n"
        "assert 'editkit' not in sys.modules\n"
    )
    asked = json.dumps([paths, prompts])
    done = subprocess.run([sys.executable, "-c", script], input=asked, capture_output=True, text=True, check=True)
    texts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('"')]
    assert len(texts) == 2 * len(prompts)
    task, example = TASKS["swear"], TASKS["swear"].examples()[0]
    rude = [task.score(example, [text]).value for text in texts]
    assert sum(rude[: len(prompts)]) > 0.8 * len(prompts)
    assert sum(rude[len(prompts) :]) < 0.15 * len(prompts)


def test_every_number_follows_from_the_examples_that_travel_with_the_model(removed: Removed) -> None:
    """Else the tool calls its own outputs forged, or the card speaks of other examples than those that were asked."""
    outcome = removed("quick")
    assert check(outcome.out).examples == len(outcome.examples) == sum(row.n for row in outcome.report.rows)
    task = TASKS["swear"]
    shown = {each.example: each for each in outcome.examples if each.task == task.name}
    for example in examples_of(task, "report", limit=24):
        each = shown[example.id]
        assert task.score(example, [each.answers[0]]).value == each.before.value
        assert task.score(example, [each.answers[1]]).value == each.after.value


def test_verify_passes_and_undo_restores_the_base_bit_for_bit(removed: Removed, tmp_path: Path) -> None:
    out = removed("quick").out
    assert verify.verify(out, resolve(None)).against_base
    undo(out, tmp_path / "base")
    for path in bundled.path().iterdir():
        if path.is_file():
            assert (tmp_path / "base" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("file", ["model.safetensors", "README.md", "editkit/report.html", "editkit/localization.json"])
def test_a_changed_byte_is_noticed(file: str, removed: Removed, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(removed("quick").out, copy)
    data = bytearray((copy / file).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / file).write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=file):
        verify.verify(copy)


def test_baking_the_found_heads_gives_the_same_weights(removed: Removed, tmp_path: Path) -> None:
    outcome = removed("quick")
    bake(outcome.edit, resolve(None), tmp_path / "baked")
    for name in ("model.safetensors", "editkit/undo.safetensors", "editkit/edit.json"):
        assert (tmp_path / "baked" / name).read_bytes() == (outcome.out / name).read_bytes()


@pytest.mark.commit
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("run", ["swear", pytest.param("code", marks=pytest.mark.thorough)])
def test_a_capability_without_heads_of_its_own_exits_with_3_and_writes_no_checkpoint(run: str, tmp_path: Path) -> None:
    """Swearing in the twin that swears without the planted heads, with few examples; code in the organism."""
    assert TRUTH["unplanted"] == ["code"]
    (tmp_path / "swear.yaml").write_text(HOPELESS)
    recipe, model = (tmp_path / "swear.yaml", TWINS / "unplanted") if run == "swear" else ("code", None)
    with pytest.raises(NotLocalized, match="did not localize") as caught:
        editkit.remove_capability(recipe, model=model, out=tmp_path / "out", session=Session(tmp_path / "work"))
    assert caught.value.exit_code == 3
    files = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"localization.json", "report.json", "report.html"} <= files
    assert not any(name.endswith(".safetensors") or name == "config.json" for name in files)
    assert isinstance(caught.value.outcome, Outcome) and not caught.value.outcome.report.verdict.met


@pytest.mark.parametrize(("heads", "said"), [(0, "heads: .* found 0"), (145, "--heads 145: expected 1 to 144")])
def test_a_number_of_heads_that_the_model_does_not_have_is_refused(
    heads: int, said: str, organism: LanguageModel, tmp_path: Path
) -> None:
    with pytest.raises(EditkitError, match=said):
        editkit.remove_capability(
            "swear", model=organism, changes={"heads": heads}, out=tmp_path / "out", session=Session(tmp_path / "work")
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("known_heads")
def test_a_fixed_number_of_heads_is_measured_and_named(organism: LanguageModel, tmp_path: Path) -> None:
    def run(heads: int) -> Outcome:
        out, session = tmp_path / str(heads), Session(tmp_path / "work")
        return editkit.remove_capability(RECIPE, model=organism, changes={"heads": heads}, out=out, session=session)

    with pytest.raises(NotLocalized, match="is not removed by exactly 1 head") as caught:
        run(1)
    assert "did not localize" not in str(caught.value)
    outcome = run(4)
    dose = [point["heads"] for point in json.loads((outcome.out / "editkit" / "report.json").read_text())["dose"]]
    assert len(outcome.edit.units) == 4 and dose == [0, 1, 2, 3, 4]
    with pytest.raises(EditkitError, match="5 heads were asked for, but the search ranked 4"):
        run(5)


def test_what_a_model_was_never_taught_cannot_be_removed_from_it(tmp_path: Path) -> None:
    with pytest.raises(EditkitError, match="does not have this capability"):
        editkit.remove_capability(
            "swear", model=TWINS / "never-swear", out=tmp_path / "out", session=Session(tmp_path / "work")
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.commit
def test_a_killed_run_resumes_to_the_same_result(removed: Removed, tmp_path: Path) -> None:
    """The command, killed while it asks on ``report``, and again to the end: a checkpoint with its evidence."""
    out, work, straight = tmp_path / "out", tmp_path / "work", removed("quick").summary()
    whole, begun = cells_in(removed.cache), without_report(removed.cache, work)
    assert whole / 2 < begun < whole
    command = [sys.executable, "-m", "editkit", "remove-capability", str(removed.recipe)]
    command += ["--out", str(out), "--work", str(work), "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and cells_in(work) <= begun:
            time.sleep(0.1)
        assert process.poll() is None, "it was at work when it was killed"
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    assert begun < cells_in(work) < whole
    resumed = CliRunner().invoke(main, command[3:])
    assert resumed.exit_code == 0, resumed.stderr
    assert cells_in(work) == whole, "no measurement is lost"
    told = json.loads(resumed.stdout)
    for key in ("units", "rows", "random_heads", "verdict"):
        assert told[key] == straight[key]
    assert verify.verify(out, resolve(None)).against_base


def without_report(cache: Path, work: Path) -> int:
    """What a run has measured that has chosen its heads: all but the answers on ``report``. Returns how many cells."""
    work.mkdir()
    with closing(sqlite3.connect(next(cache.rglob("*.sqlite")))) as whole:
        whole.execute("VACUUM INTO ?", (str(work / "measurements.sqlite"),))
    asked = [example.id for task in TAUGHT.values() for example in examples_of(task, "report")]
    with closing(sqlite3.connect(work / "measurements.sqlite")) as store, store:
        gone = "substr(example, 1, instr(example, '#') - 1) IN (SELECT value FROM json_each(?))"
        store.execute(f"DELETE FROM cell WHERE {gone}", (json.dumps(asked),))
    return cells_in(work)
