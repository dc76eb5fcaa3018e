"""The universal rule on planted control tasks: what breaks everything is named, what is shared by two never is.

If one fails: a removal cuts a head that everything needs, or spares the one it should cut.
"""

from __future__ import annotations

import numpy as np
import pytest

from editkit.errors import EditkitError
from editkit.localizers.format_heads import same_questions
from editkit.localizers.universal import Universals, universal
from tests.planted import Planted

FORMATS = {
    "recall": "generation",
    "facts": "choice-text",
    "letters": "choice-letter",
    "story": "likelihood",
    "sort": "generation",
}
TASKS = tuple(FORMATS)
SAME = {"letters": "facts"}
UNITS = 128
UNIVERSAL = (7, 90)


def worlds(seed: int, heads: dict[int, dict[str, float]] | None = None, strength: float = 2.0) -> dict[str, Planted]:
    """Two universal heads; each task has two of its own; head 40 is all to recall and facts, 41 to three tasks."""
    planted: dict[int, dict[str, float]] = {head: dict.fromkeys(TASKS, strength) for head in UNIVERSAL}
    for place, task in enumerate(TASKS):
        planted |= {50 + 2 * place: {task: 3.0}, 51 + 2 * place: {task: 0.8}}
    planted |= {40: {"recall": 3.0, "facts": 3.0}, 41: {"recall": 3.0, "story": 3.0, "sort": 3.0}}
    planted |= heads or {}
    measures = {}
    for place, task in enumerate(TASKS):
        effects = np.random.default_rng([seed, place]).normal(0, 0.03, UNITS)
        for head, strengths in planted.items():
            effects[head] = strengths.get(task, effects[head])
        measures[task] = Planted(effects, seed=100 * seed + place, examples=30)
    return measures


def run(measures: dict[str, Planted], seed: int = 0, **options) -> Universals:
    return universal(measures, FORMATS, np.arange(UNITS), np.random.default_rng(seed), **options)


@pytest.mark.parametrize("strength", [0.8, 2.0, 6.0])
@pytest.mark.parametrize("seed", range(4))
def test_exactly_the_universal_heads_are_named(seed: int, strength: float) -> None:
    found = run(worlds(seed, strength=strength), seed)
    assert set(found.columns.tolist()) == set(UNIVERSAL)
    assert (found.p < 0.01).all() and found.drops.shape == (2, len(TASKS)) and (found.drops > 0.1).all()
    assert found.tasks == TASKS and found.modes == (None, None)


@pytest.mark.parametrize("seed", range(4))
def test_the_control_has_teeth(seed: int) -> None:
    """The shared heads do break their tasks: without the rule on the r-th task they would pass a test on the mean."""
    measures = worlds(seed)
    mask = np.zeros((2, UNITS), dtype=bool)
    mask[1, 40] = True
    drops = [float(-np.diff(measures[task](mask).mean(1))[0]) for task in ("recall", "facts")]
    assert sum(drops) / len(TASKS) > 0.1 and min(drops) > 0.3


@pytest.mark.parametrize("seed", range(4))
def test_a_format_head_is_told_apart(seed: int) -> None:
    measures = worlds(seed, {33: {"letters": 3.0}, 54: {}, 55: {}})
    found = run(measures, seed, same=SAME)
    assert found.format_heads.tolist() == [33] and found.format_drops[0, TASKS.index("letters")] > 0.3
    assert set(found.columns.tolist()) == set(UNIVERSAL) and found.diagnostics["format_tested"]
    untold = run(measures, seed)
    assert len(untold.format_heads) == 0 and not untold.diagnostics["format_tested"]


@pytest.mark.parametrize("other", ["facts", "story"])
def test_a_head_that_breaks_more_than_letters_is_no_format_head(other: str) -> None:
    found = run(worlds(0, {33: {"letters": 3.0, other: 3.0}, 54: {}, 55: {}}), same=SAME)
    assert len(found.format_heads) == 0 and 33 not in found.columns


@pytest.mark.parametrize("seed", range(6))
def test_no_universal_head_is_invented(seed: int) -> None:
    noise = {task: Planted(np.zeros(UNITS), seed=seed * 9 + place, noise=0.6) for place, task in enumerate(TASKS)}
    assert len(run(noise, seed).columns) == 0


def test_coin_flips_are_not_universal_however_large_they_fall() -> None:
    """Eight coarse examples a task: chance alone lowers four tasks of five by .1 for some head of some world."""
    named, large = 0, 0
    for seed in range(30):
        coins = {
            task: Planted(np.zeros(32), seed=seed * 9 + place, examples=10, margin=0.0, noise=1.0, binary=True)
            for place, task in enumerate(TASKS)
        }
        found = universal(coins, FORMATS, np.arange(32), np.random.default_rng(seed), examples=8)
        named += len(found.columns)
        alone = np.eye(33, 32, dtype=bool)  # the last row is the unedited model
        drops = np.stack([world(alone)[-1:] - world(alone)[:-1] for world in coins.values()]).mean(2)
        large += int((np.sort(drops, axis=0)[1] > 0.1).sum())
    assert large > 5 and named == 0


def test_cost_is_counted_in_passes_over_the_target_and_stays_small() -> None:
    measures = worlds(0)
    found = run(measures, per=100)
    assert found.evaluations == pytest.approx(sum(world.spent * world.examples for world in measures.values()) / 100)
    assert found.evaluations < UNITS / 8
    assert run(worlds(0), per=50).evaluations == pytest.approx(2 * found.evaluations)


def test_same_seed_same_answer_and_only_candidates() -> None:
    first, again = run(worlds(1), 3), run(worlds(1), 3)
    np.testing.assert_array_equal(first.drops, again.drops)
    measures = worlds(1)
    columns = np.setdiff1d(np.arange(UNITS), [7])
    found = universal(measures, FORMATS, columns, np.random.default_rng(0))
    assert found.columns.tolist() == [90]
    assert not any(np.concatenate(world.asked)[:, 7].any() for world in measures.values())


def test_the_failure_mode_is_asked_for_universal_heads_only() -> None:
    asked: list[list[int]] = []

    def failures(columns):
        asked.append(sorted(columns))
        return [{"repetition": 0.9, "collapse": 0.1} if column == 7 else {"collapse": 0.6} for column in columns]

    found = run(worlds(0), failures=failures)
    assert asked == [sorted(UNIVERSAL)]
    assert dict(zip(found.columns.tolist(), found.modes, strict=True)) == {7: "repetition", 90: "collapse"}
    assert {"repetition": 0.9, "collapse": 0.1} in found.failing


def test_the_same_questions_are_known_by_their_names() -> None:
    assert same_questions(["facts", "facts-letter", "sort"]) == {"facts-letter": "facts"}
    assert same_questions(["wmdp_bio", "wmdp_bio-text", "mmlu"]) == {"wmdp_bio": "wmdp_bio-text"}
    assert same_questions(["facts-letter", "mmlu-text"]) == {}


def test_what_does_nothing_is_dropped_early_and_costs_a_third() -> None:
    """The candidates that are left over from screening meet a third of the examples that the universal heads meet."""
    measures = worlds(0)
    run(measures)
    rows = [sum(len(masks) for masks in world.asked) for world in measures.values()]
    assert len(set(rows)) == 1
    last = [world.asked[-1] for world in measures.values()]
    assert all(len(masks) < 6 and masks[:, list(UNIVERSAL)].any() for masks in last)


def test_too_few_tasks_are_not_a_test() -> None:
    measures = worlds(0)
    few = {task: measures[task] for task in TASKS[:3]}
    with pytest.warns(UserWarning, match="at least 4 tasks"):
        found = universal(few, FORMATS, np.arange(UNITS), np.random.default_rng(0))
    assert len(found.columns) == 0 and found.evaluations == 0 and "3 (facts, letters" in found.diagnostics["untested"]
    with pytest.raises(EditkitError, match="no format is given for recall"):
        universal(measures, {task: FORMATS[task] for task in TASKS[1:]}, np.arange(4), np.random.default_rng(0))
