"""The paper's studies in small on the bundled model; and what the large ones should cost.

If one fails: `editkit study` does not find what is known to be there, or the cost of a study on rented GPUs is a guess.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from editkit import organism
from editkit.cli import main
from editkit.errors import UsageError
from editkit.planning import study_cost
from editkit.planning.run_cost import CHARACTERS_PER_TOKEN
from editkit.removal import study
from tests.conftest import DATA

PAPER = Path(__file__).parents[2] / "recipes" / "paper"
ORGANISM = PAPER / "organism.yaml"


def command(recipe: Path, work: Path) -> list[str]:
    return ["study", str(recipe), "--work", str(work), "--out", str(work / "tables.md")]


def tables(text: str) -> dict[str, dict[str, dict[str, str]]]:
    """Heading -> first column -> title, without what is in parentheses -> cell."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    heading, titles = "", []
    for line in text.split("\n"):
        if line.startswith("## "):
            heading, titles = line[3:], []
        elif line.startswith("|") and not line.startswith("|-"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if titles:
                found.setdefault(heading, {})[cells[0]] = dict(zip(titles, cells, strict=True))
            else:
                titles = [cell.split(" (")[0] for cell in cells]
    return found


def score(cell: str) -> float:
    return float(cell.strip("*").split("*")[0].split(" ")[0])


@dataclass(frozen=True)
class Measured:
    recipe: Path
    methods: list[str]
    work: Path
    whole: bool


def smaller(grid: dict[str, Any]) -> dict[str, Any]:
    """One method, fewer doses, examples and random sets; of the two sets of sums one is searched, both are asked."""
    grid |= {"methods": ["halving"], "heads": [1, 4]}
    grid["capabilities"] = [found for found in grid["capabilities"] if found["recipe"]["capability"] != "sums"]
    for found in grid["capabilities"]:
        few = {"locate": 20, "choose": 1, "report": 40}
        found["recipe"] |= {"examples": few, "random_sets": 3, "random_examples": 4}
    return grid


@pytest.fixture(
    scope="module",
    params=[pytest.param("small", marks=pytest.mark.commit), pytest.param("whole", marks=pytest.mark.thorough)],
)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """The study in small, or as it is.

    As it is, the first run is killed when it has measured two cells; the second goes on.
    """
    work, whole = tmp_path_factory.mktemp("study"), request.param == "whole"
    recipe, text = work / "organism.yaml", ORGANISM.read_text("utf-8")
    assert "sums.csv" in text
    grid = yaml.safe_load(text.replace("sums.csv", str(PAPER / "sums.csv")))
    recipe.write_text(yaml.safe_dump(grid if whole else smaller(grid)), "utf-8")
    kept = killed(recipe, work) if whole else {}
    second = CliRunner().invoke(main, command(recipe, work))
    assert second.exit_code == 0, second.output
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "what was measured is not measured again"
    return Measured(recipe, grid["methods"], work, whole)


def killed(recipe: Path, work: Path) -> dict[Path, int]:
    """What a run has measured until it is killed: cell -> when."""
    asked = [sys.executable, "-m", "editkit", *command(recipe, work)]
    with subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        while first.poll() is None and len(list((work / "cells").glob("*.json"))) < 2:
            time.sleep(0.2)
        assert first.poll() is None, "the first run must be at work when it is killed"
        first.kill()
    assert not (work / "tables.md").exists()
    kept = {path: path.stat().st_mtime_ns for path in (work / "cells").glob("*.json")}
    assert 2 <= len(kept) < len(study.cells(study.read(recipe)))
    return kept


def test_the_study_in_small_finds_what_was_planted(measured: Measured) -> None:
    """Dose, transfer both ways, methods, universal heads, and knowledge told from the way of answering."""
    truth = json.loads((Path(organism.path()).parent / "manifest.json").read_text())
    text = (measured.work / "tables.md").read_text()
    found = tables(text)
    for method in measured.methods:
        rows = found[f"`bundled`, {method}, seed 0"]
        assert f"- swear, 4 heads: {', '.join(sorted(truth['planted']['swear']))} (" in text
        assert f"- Universal heads, left alone: {', '.join(truth['universal'])}" in text
        # Figure 2: each head takes its share of the examples, and nothing else falls.
        heads = ["1 head", *(["2 heads"] if measured.whole else []), "4 heads"]
        dose = [score(rows[name]["swear"]) for name in ("nothing", *(f"swear, {count}" for count in heads))]
        assert dose == sorted(dose, reverse=True) and dose[0] > 95 and dose[-1] < 10 and 20 < dose[-2] < 80
        assert all(score(rows["swear, 4 heads"][task]) > 90 for task in ("rhyme", "recall", "facts-letter", "story"))
        assert rows["swear, 4 heads"]["verdict"] == "met" != rows["swear, 1 head"]["verdict"]
        # Heads found on one set of questions take the other.
        assert score(rows["arithmetic, 4 heads"]["sums"]) < 30
        assert not measured.whole or score(rows["sums, 4 heads"]["arithmetic"]) < 30
        # One head carries the letter and no fact; the heads of the facts take both.
        letter = rows["facts-letter, 1 head"]
        assert score(letter["facts-letter"]) < 35 and score(letter["facts"]) > 85
        assert score(rows["facts, 4 heads"]["facts"]) < 50 and score(rows["facts, 4 heads"]["facts-letter"]) < 60
        # The noise floor: the unedited model again, in other batches.
        again = rows["nothing, measured again"]
        tasks = [task for task, cell in again.items() if cell[:1].isdigit()]
        assert len(tasks) == 8 and all(abs(score(again[task]) - score(rows["nothing"][task])) <= 5 for task in tasks)
        shows = rows["change that would show"]
        assert 0 < float(shows["recall"]) < float(shows["rhyme"]) < 80, "rhyme has fewer clusters"
    compared = [line for line in text.split("\n") if line.startswith("| `bundled` |")]
    assert len(compared) == (30 if measured.whole else 0)
    cells = [json.loads(path.read_text()) for path in (measured.work / "cells").glob("*.json")]
    sets = 19 if measured.whole else 3
    assert all(cell["report"]["noise"] and cell["report"]["random_heads"]["sets"] == sets for cell in cells)


def test_a_third_run_measures_nothing_and_prints_the_same(measured: Measured) -> None:
    before = (measured.work / "measurements.sqlite").read_bytes()
    third = CliRunner().invoke(main, command(measured.recipe, measured.work))
    assert third.stdout == (measured.work / "tables.md").read_text()
    assert (measured.work / "measurements.sqlite").read_bytes() == before


def test_the_plan_foretells_the_evaluations(measured: Measured) -> None:
    planned = study_cost.plan(study.read(measured.recipe), folder=PAPER).models[0]
    cells = [json.loads(path.read_text()) for path in (measured.work / "cells").glob("*.json")]
    done = {(cell["capability"], cell["method"]): cell["evaluations"] for cell in cells}
    assert len(done) == planned.searches
    assert planned.evaluations == pytest.approx(sum(done.values()), rel=0.25)


FIELDS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
CONFIGS: dict[str, tuple[str, tuple[int, ...], int, int, bool]] = {
    "meta-llama/Llama-3.1-8B-Instruct": ("llama", (4096, 14336, 32, 32, 8), 128, 128256, False),
    "meta-llama/Llama-3.2-3B-Instruct": ("llama", (3072, 8192, 28, 24, 8), 128, 128256, True),
    "meta-llama/Llama-3.2-1B-Instruct": ("llama", (2048, 8192, 16, 32, 8), 64, 128256, True),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2", (3584, 18944, 28, 28, 4), 128, 152064, False),
    "Qwen/Qwen2.5-3B-Instruct": ("qwen2", (2048, 11008, 36, 16, 2), 128, 151936, True),
}
"""Model type, ``FIELDS``, head width, vocabulary, whether embeddings are tied: the models' own ``config.json``."""


@pytest.mark.parametrize("name", list(study_cost.published()[0]))
def test_models_are_counted_as_transformers_counts_them(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model_type, values, width, vocabulary, tied = CONFIGS[name]
    config = dict(zip(FIELDS, values, strict=True)) | {"head_dim": width, "vocab_size": vocabulary}
    with torch.device("meta"):
        built = AutoConfig.for_model(model_type, **config, tie_word_embeddings=tied)
        network = AutoModelForCausalLM.from_config(built)
    size = study_cost.published()[0][name]
    assert size.parameters == sum(part.numel() for part in {id(p): p for p in network.parameters()}.values())
    assert size.layers == config["num_hidden_layers"]
    assert size.heads == config["num_hidden_layers"] * config["num_attention_heads"]


def texts(name: str) -> list[tuple[int, int]]:
    """(characters of a request's prompt, of its answer) in the sample of a data set."""
    import csv

    def lines(path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (DATA / path).read_text().split("\n") if line.strip()]

    if name == "gsm8k":
        shots = sum(len(row["question"]) + len(row["answer"]) + 20 for row in lines("gsm8k/train-20.jsonl")) / 4
        return [(int(shots) + len(row["question"]), 0) for row in lines("gsm8k/test-200.jsonl")]
    if name == "humaneval":
        return [(len(row["prompt"]) + 80, 0) for row in lines("humaneval/HumanEval.jsonl")]
    if name == "mbpp":
        return [(len(row["prompt"]) + len("\n".join(row["test"])) + 90, 0) for row in lines("mbpp/test-200.jsonl")]
    if name == "arc_challenge":
        rows = lines("arc/arc-challenge-200.jsonl")
        return [(len(row["instruction"].split("\n\nAnswer1")[0].split("Answer1:")[0]), 0) for row in rows]
    rows = [row for path in sorted((DATA / "mmlu/test").glob("*.csv")) for row in csv.DictReader(path.open())]
    return [(sum(map(len, row.values())) + 30 + 75, 1) for row in rows]


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the sample data sets in ../shared/data")
@pytest.mark.parametrize("name", ["gsm8k", "humaneval", "mbpp", "arc_challenge", "mmlu"])
def test_lengths_are_those_of_the_data(name: str) -> None:
    prompts = [prompt for prompt, _ in texts(name)]
    mean = sum(prompts) / len(prompts) / CHARACTERS_PER_TOKEN
    assert study_cost.published()[2][name].prompt == pytest.approx(mean, rel=0.4)


@pytest.mark.parametrize("path", sorted(PAPER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_study_has_a_plan_without_a_download(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem in ("published", "costs"):
        return
    monkeypatch.setattr("editkit.tasks.harness.task", lambda *_, **__: pytest.fail("asked lm-eval for its data"))
    monkeypatch.setattr("editkit.hub.metadata.fetch", lambda *_, **__: pytest.fail("asked the Hub"))
    found = study_cost.plan(study.read(path), folder=PAPER)
    assert found.models and all(part.seconds > 0 and part.evaluations > 100 for part in found.models)
    if path.stem != "organism":
        stated = (PAPER.parents[1] / "docs" / "evaluation.md").read_text()
        missing = [line for line in found.table().split("\n") if line.startswith("| `") and line not in stated]
        assert not missing, "docs/evaluation.md states what the command prints: copy it"


def test_what_plans_assume_of_the_search_is_so() -> None:
    from editkit.measuring.likelihood import ANCHOR_TOKENS
    from editkit.models.language_model import TOKENS_PER_BATCH

    assert (ANCHOR_TOKENS, TOKENS_PER_BATCH["cuda"]) == (study_cost.ANCHOR, study_cost.BATCH)


def test_more_work_takes_longer() -> None:
    dose = study.read(PAPER / "dose.yaml")
    few, all_heads = (study_cost.plan(dose.model_copy(update={"heads": heads})) for heads in ((1,), dose.heads))
    assert all_heads.models[0].seconds > 1.5 * few.models[0].seconds
    assert all_heads.models[0].evaluations == few.models[0].evaluations, "one search ranks all heads"
    slow = study_cost.plan(dose, gpu="a100").models[0].seconds
    assert slow > 2 * all_heads.models[0].seconds
    assert "Does not fit" not in study_cost.plan(dose, gpu="rtx4090").table()
    with pytest.raises(UsageError, match="--gpu abacus: no figures for it. Known: h100"):
        study_cost.plan(dose, gpu="abacus")
