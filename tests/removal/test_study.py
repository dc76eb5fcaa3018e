"""A study measures each cell once, survives interruption, and prints what it measured beside what was published.

If one fails: a table of a study holds a number that was not measured, or hours are measured twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from editkit.errors import EditkitError
from editkit.evidence import report
from editkit.evidence import row as rows
from editkit.evidence.localization import Effect, Localization
from editkit.evidence.report import EvalReport
from editkit.removal import study
from editkit.removal.recipe import Recipe
from editkit.removal.study import Capability, Cell, Study
from editkit.removal.study_table import Published, published, tables
from editkit.tasks.task import Score
from editkit.units import Head

PAPER = Path(__file__).parents[2] / "recipes" / "paper"
STUDIES = sorted(path.name for path in PAPER.glob("*.yaml") if path.name not in ("published.yaml", "costs.yaml"))

GRID = Study(
    study="toy",
    summary="Two by two by two.",
    models=("bundled", "meta-llama/Llama-3.1-8B-Instruct"),
    capabilities=(
        Capability(recipe=Recipe(capability="math", target=("gsm8k",), retain=("mmlu",)), also=("arithmetic-10",)),
    ),
    methods=("css", "halving"),
    heads=(1, 5),
)


class Bench:
    """Makes up rankings and reports, and counts how often it was asked."""

    def __init__(self, fails: Callable[[str, int], bool] = lambda model, heads: False) -> None:
        self.searched: list[tuple[str, str]] = []
        self.assessed: list[tuple[str, int]] = []
        self.fails = fails

    def locate(self, cell: Cell) -> Localization:
        method, seed = cell.method, cell.seed
        self.searched.append((cell.model, method))
        first = 0 if method == "css" else 3
        order = tuple(Effect(Head(1, first + i), -0.1, -0.2, 0.0, 0.01, 0.9) for i in range(5))
        return Localization(method, seed, 100.0 if method == "css" else 20.0, order, (Head(0, 7),), method == "css")

    def assess(self, cell: Cell, ranking: Localization) -> EvalReport:
        self.assessed.append((cell.model, cell.heads))
        if self.fails(cell.model, cell.heads):
            raise EditkitError("The unedited model does not show | **math**.")
        after = 20 if cell.heads == 5 else 60
        rows = [
            row("gsm8k", "target", 80, after),
            row("mmlu", "retain", 70, 69),
            row("arithmetic-10", "also", 90, 40),
        ]
        return report.report(rows, noise=[row("gsm8k", "target", 80, 81)])


def row(task: str, role: rows.Role, before: int, after: int) -> rows.Row:
    def scores(right: int) -> list[Score]:
        return [Score(1.0)] * right + [Score(0.0)] * (100 - right)

    pairs = list(zip(scores(before), scores(after), strict=True))
    return rows.row(rows.Sample(task, role, "report", 0, pairs), rng=np.random.default_rng(0), margin=0.02)


def measured(work: Path, bench: Bench, grid: Study = GRID) -> list[study.Result]:
    return list(study.run(grid, work=work, locate=bench.locate, assess=bench.assess))


def test_every_combination_is_one_cell() -> None:
    cells = study.cells(GRID)
    assert len(cells) == len({cell.key for cell in cells}) == 2 * 2 * 2
    assert [cell.heads for cell in cells[:2]] == [1, 5] and len({cell.search for cell in cells}) == 4


def test_each_ranking_and_cell_is_measured_once(tmp_path: Path) -> None:
    bench = Bench()
    first = measured(tmp_path, bench)
    assert (len(bench.searched), len(bench.assessed)) == (4, 8)
    again = Bench()
    assert measured(tmp_path, again) == first
    assert (again.searched, again.assessed) == ([], [])
    assert first[1].units == {Head(1, i) for i in range(5)} and first[1].evaluations == 100


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    bench = Bench()
    steps: Any = study.run(GRID, work=tmp_path, locate=bench.locate, assess=bench.assess)
    kept = [next(steps) for _ in range(3)]
    steps.close()
    again = Bench()
    assert measured(tmp_path, again)[:3] == kept
    assert (len(again.searched), len(again.assessed)) == (2, 5)


def test_a_cell_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    results = measured(tmp_path, Bench(lambda model, heads: heads == 5))
    assert [bool(result.error) for result in results] == [False, True] * 4
    again = Bench()
    assert not any(result.error for result in measured(tmp_path, again))
    assert (len(again.searched), len(again.assessed)) == (0, 4)


def test_a_changed_recipe_is_another_cell() -> None:
    recipe = GRID.capabilities[0].recipe
    harder = GRID.capabilities[0].model_copy(update={"recipe": recipe.model_copy(update={"goal": 0.1})})
    old, new = (Cell("bundled", capability, "css", 5, 0) for capability in (GRID.capabilities[0], harder))
    assert old.key != new.key and old.key.startswith("bundled-math-css-0-")


def test_a_changed_basis_is_measured_again(tmp_path: Path) -> None:
    def run(basis: str) -> Bench:
        bench = Bench()
        list(study.run(GRID, work=tmp_path, locate=bench.locate, assess=bench.assess, basis=lambda cell: basis))
        return bench

    assert [len(run(basis).assessed) for basis in ("old", "old", "new", "old")] == [8, 0, 8, 0]


def test_a_broken_cell_is_named(tmp_path: Path) -> None:
    measured(tmp_path, Bench())
    path = tmp_path / "cells" / f"{study.cells(GRID)[0].key}.json"
    for text in ("", "{}", '{"units": ["X"]}'):
        path.write_text(text)
        with pytest.raises(EditkitError, match=r"L16H21|is not a cell of a study.*Delete it"):
            measured(tmp_path, Bench())


def test_tables_show_what_was_measured_beside_the_paper(tmp_path: Path) -> None:
    text = tables(GRID, measured(tmp_path, Bench(lambda model, heads: model == "bundled" and heads == 1)), published())
    paper = text[text.index("## `meta") :]
    assert "| nothing | 80.0 [70.9, 86.8] (paper 78.5) | 70.0" in paper
    assert "| nothing, measured again | 81.0 [72.0, 87.7] |  |" in paper
    assert "| math, 5 heads | **20.0** [13.2, 29.1] (paper 30.1) | 69.0 " in paper
    assert "| change that would show | 8.9 | 8.9 |" in paper
    assert "(paper 20.9)" in paper and "Universal heads, left alone: L0H7 (paper: L0H31, L1H29, L1H31)" in paper
    assert "math, 5 heads: L1H0, L1H1, L1H2, L1H3, L1H4 (100 evaluations)" in text
    assert "(20 evaluations; **does not localize**)" in text
    assert "| math, 5 heads | halving | 25% | -1.0 | 20 | 2 of 5 |" in text
    assert "reduced" in text and "arXiv 2603.03335v1" in text
    # What models and files say is text: it can break no table and is no markup.
    assert "not measured. The unedited model does not show &#124; &#42;&#42;math" in text
    lines = [line for line in paper.split("\n") if line.startswith("|")]
    assert len({line.count("|") for line in lines[:4]}) == 1


def test_a_page_names_the_tasks_whose_examples_are_new_and_whose_templates_are_not(tmp_path: Path) -> None:
    results = measured(tmp_path, Bench())
    assert "already used" not in tables(GRID, results, published())
    [first] = [result for result in results if result.report][:1]
    assert first.report
    report = replace(first.report, rows=tuple(replace(row, clusters=20) for row in first.report.rows))
    page = tables(GRID, [replace(first, report=report), *results[1:]], published())
    assert all(f"`{row.task}`" in page[page.index("those of") : page.index("already used")] for row in report.rows)


def test_without_published_figures_nothing_is_claimed(tmp_path: Path) -> None:
    assert "paper" not in tables(GRID, measured(tmp_path, Bench()), Published()).lower()


def test_published_figures_agree_with_each_other() -> None:
    paper, model = published(), "meta-llama/Llama-3.1-8B-Instruct"
    before = paper.scores(model, None, 0)
    lost = {"math": ("gsm8k", 48.4), "code": ("humaneval", 18.3), "swear": ("swear", 85.4), "rhyme": ("rhyme", 34.5)}
    general = {"math": 70.58, "code": 69.68, "swear": 71.26, "rhyme": 68.82}
    for name, (task, points) in lost.items():
        after = paper.scores(model, name, 5)
        assert before[task] - after[task] == pytest.approx(points, abs=0.06)
        four = np.mean([after[task] for task in ("hellaswag", "boolq", "arc-challenge", "mmlu")])
        assert four == pytest.approx(general[name], abs=0.01)


@pytest.mark.parametrize("name", STUDIES)
def test_the_studies_that_come_with_editkit_can_be_read(name: str) -> None:
    found = study.read(PAPER / name)
    assert study.cells(found)
    for capability in found.capabilities:
        specs = [capability.recipe.target, *capability.recipe.retain, *capability.also]
        names = [yaml.safe_dump(spec) for spec in specs]
        assert len(names) == len(set(names)), "a task is measured once"


def test_the_paper_is_covered() -> None:
    models = set(study.read(PAPER / "tables.yaml").models)
    assert len(models) == 5 and models >= set(published().models)
    assert study.read(PAPER / "dose.yaml").heads == tuple(range(1, 11))


SOUND = "study: a\nmodels: [m]\nmethods: [css]\nheads: [1]\ncapabilities: [{recipe: swear}]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a table"),
        ("study: [", "cannot be read"),
        ("study: a\nmodels: [m]\nstudy: b", "'study' of line 3 was in line 1 already"),
        ("study: a", "the key 'models' is missing"),
        (SOUND.replace("[m]", "[]"), r"models: expected at least 1 in this list, found \[\]"),
        (SOUND.replace("css", "magic"), "methods.0: Input should be 'auto', .*, found 'magic'"),
        (SOUND.replace("[1]", "[0]"), "heads.0: Input should be greater than or equal to 1, found 0"),
        (SOUND.replace("swear", "sware"), r"capabilities.0.recipe: There is no recipe 'sware'.*swear"),
        (SOUND.replace("recipe: swear", "recipe: swear, aslo: []"), "'capabilities.0.aslo' .did you mean 'also'"),
        (SOUND + "strict: true", "unknown key 'strict'. Known keys: study, "),
        (
            SOUND.replace("recipe: swear", "recipe: {capability: x, target: swear, retain: [rhyme], gaol: 0.2}"),
            "unknown key 'capabilities.0.recipe.gaol' .did you mean 'goal'",
        ),
        (SOUND + "haeds: 3", "unknown key 'haeds' .did you mean 'heads'"),
    ],
)
def test_a_wrong_study_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(EditkitError, match=rf"mine\.yaml.*{says}"):
        study.read(path)


def test_built_in_studies_are_found_by_name() -> None:
    """Else whoever installed the wheel has no study to run: the files lie where nobody looks."""
    for name, path in study.names().items():
        assert study.read(study.named(name)).models and path == study.named(name)
    assert {"dose", "methods", "organism", "tables", "transfer", "wmdp"} == set(study.names())
    assert study.named("mine.yaml") == Path("mine.yaml")
    with pytest.raises(EditkitError, match="no study 'doses'.*did you mean 'dose'"):
        study.named("doses")


def test_a_grid_that_no_machine_measures_is_refused_before_it_is_made(tmp_path: Path) -> None:
    """Three lists of a few kB multiply to more cells than fit in memory."""
    numbers = list(range(1, 1001))
    grid = {"study": "x", "models": ["bundled"] * 1000, "methods": ["css"], "heads": numbers, "seeds": numbers}
    capability = {"recipe": {"capability": "a", "target": "swear", "retain": ["rhyme"]}}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(grid | {"capabilities": [capability]}))
    with pytest.raises(EditkitError, match="1,000,000,000 cells, and at most 100,000"):
        study.read(path)


def test_a_broken_ranking_is_named(tmp_path: Path) -> None:
    measured(tmp_path, Bench())
    [cell, *_] = study.cells(GRID)
    (tmp_path / "cells" / f"{cell.key}.json").unlink()
    for content in (b"", b"{}", b"\xff"):
        (tmp_path / "rankings" / f"{cell.search}.json").write_bytes(content)
        with pytest.raises(EditkitError, match=cell.search):
            study._ranking(cell, tmp_path, Bench().locate)
