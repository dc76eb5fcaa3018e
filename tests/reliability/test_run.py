"""A whole run on the bundled model: what is planted is located and erased; all is kept, and nothing is asked twice.

If one fails: the reliability of a located set is reported by numbers that belong to another model, set or data set.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.organism.layout import UNIVERSAL_HEAD, planted
from editkit.cli import main
from editkit.evidence.reliability import PUBLISHED, Reliability
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.reliability import locate
from editkit.reliability.plan import Plan, Settings, data_sets
from editkit.reliability.run import reliability
from editkit.render.reliability import page, png, tables

pytestmark = pytest.mark.commit

QUICK = dict(
    path="joint", steps=2, locate=10, report=6, draws=2, draw_examples=3, seeds=1, train_steps=2, rates=(1.0, 1e-3)
)


def run(model: LanguageModel, folder: Path, **settings) -> Reliability:
    plan = Plan(
        reliability="facts",
        capability=("facts", "facts-letter"),
        other=("sort",),
        settings=Settings.model_validate(QUICK | settings),
    )
    with opened(folder / "cells.sqlite") as store:
        return reliability(Ledger(model, store), data_sets(plan), folder)


@pytest.fixture(scope="module")
def first(organism: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reliability]:
    folder = tmp_path_factory.mktemp("run")
    run(organism, folder, size=20, contrast=2, units="neurons", seeds=0)
    with opened(folder / "cells.sqlite") as store:
        (folder / "untrained").write_text(str(store.count()))
    return folder, run(organism, folder, size=20, contrast=2, units="neurons")


def test_every_part_is_there_and_can_be_read(first: tuple[Path, Reliability]) -> None:
    found = first[1]
    value = json.loads(found.to_json())
    assert value["published"] == PUBLISHED and value["chosen"] == "top 20"
    assert {"common", "specific", "stable"} == set(value["located"]) and set(value["located"]["common"])
    assert {each["task"] for each in value["erased"]} == {"facts", "facts-letter", "sort"}
    assert {each["arm"] for each in value["enhanced"]} == {"none", "located", "random", "rest", "full"}
    numbers = {each.arm: each.numbers for each in found.enhanced}
    assert numbers["located"] == numbers["random"] and numbers["rest"] + numbers["located"] == numbers["full"]
    text = page(found)
    assert all(f"## {grid.title}" in text for grid in tables(found)) and len(tables(found)) == 5
    assert png(found).startswith(b"\x89PNG")


def test_every_set_is_trained_at_the_rate_that_teaches_it_most(first: tuple[Path, Reliability]) -> None:
    """If this fails: a set of units loses a comparison because of a rate that suits another one."""
    assert {each.rate for each in first[1].enhanced if each.arm != "none"} == {1e-3}
    nats = {each.arm: each.nats for each in first[1].enhanced if each.task == each.trained_on == "facts"}
    assert nats["full"] and nats["full"] > -3, "at a rate of 1 nothing is left"


def test_halves_share_no_content_and_are_alike_in_all_data_sets(first: tuple[Path, Reliability]) -> None:
    relations = {(pair.first, pair.second): pair.relation for pair in first[1].pairs}
    assert relations[("facts", 0), ("facts", 1)] == "other half"
    assert relations[("facts", 0), ("facts-letter", 0)] == "other format, same content"
    assert relations[("facts", 0), ("facts-letter", 1)] == "other format, other content"
    assert relations[("facts", 1), ("sort", 0)] == "neither" and (("sort", 0), ("sort", 1)) not in relations


def test_a_second_run_measures_nothing_and_says_the_same(
    first: tuple[Path, Reliability], organism: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_, **__):
        raise AssertionError("measured again")

    monkeypatch.setattr(locate, "effects", asked)
    monkeypatch.setattr(LanguageModel, "answer", asked)
    assert run(organism, first[0], size=20, contrast=2, units="neurons") == first[1]


def test_what_a_trained_model_answers_is_not_stored_as_this_models(first: tuple[Path, Reliability]) -> None:
    with opened(first[0] / "cells.sqlite") as store:
        assert store.count() == int((first[0] / "untrained").read_text()) > 0


def test_planted_heads_are_what_two_formats_have_in_common(organism: LanguageModel, tmp_path: Path) -> None:
    found = run(organism, tmp_path, units="heads", size=12, contrast=2, locate=24, seeds=0, draws=1)
    located = set(found.located["specific"])
    assert len(located & set(planted("facts"))) >= 3 and UNIVERSAL_HEAD not in located
    [erased] = [each for each in found.erased if each.task == "facts-letter" and each.located == "common"]
    assert erased.score[1] < erased.score[0] - 0.3 and erased.score[1] < np.mean(erased.random_score)


def test_the_command_writes_its_evidence_and_says_when_nothing_is_common(tmp_path: Path) -> None:
    words = "reliability facts facts-letter --sigma 40 --path joint --steps 1 --locate 8 --seeds 0 --draws 0 --report 4"
    done = CliRunner().invoke(main, [*words.split(), "--work", str(tmp_path), "-o", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 3 and "is located by every data set" in done.stderr
    assert json.loads(done.stdout)["located"]["common"] == []
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"reliability.{kind}" for kind in ("json", "md", "png")
    }
