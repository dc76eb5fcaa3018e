"""The chosen set is compared with sets of heads that are strong by themselves.

If one fails: a set passes for a find that a list of heads by their effect would have named as well; or what is
published as a comparison with such heads was made with others.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from editkit.checkpoints.knockout import Knockout
from editkit.evidence.localization import Effect
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal import strong_sets as drawing
from editkit.removal.capability import capability
from editkit.removal.random_sets import Draw
from editkit.removal.strong_sets import own_effects, strong_heads, strong_sets
from editkit.removal.trial import Sheet, trial_of
from editkit.units import Head, Neuron, Unit
from tests.known_heads import FOUND, HEADS, RECIPE

PLACES, EFFECTS = np.array([3, 7, 8, 20]), np.array([0.4, 0.3, 0.2, 0.1])
ELSEWHERE = Knockout.of(np.array([50, 51]))


def successive(places: np.ndarray, effects: np.ndarray, size: int) -> dict[Knockout, float]:
    """Each set's probability, by all the orders in which its heads may come."""
    law: dict[Knockout, float] = {}
    for order in permutations(range(len(places)), size):
        left, chance = float(effects.sum()), 1.0
        for at in order:
            chance, left = chance * effects[at] / left, left - effects[at]
        out = Knockout.of(places[list(order)])
        law[out] = law.get(out, 0.0) + chance
    return law


@pytest.mark.parametrize("chosen", [ELSEWHERE, Knockout.of(PLACES[:2])], ids=["elsewhere", "the strongest"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_each_set_comes_as_often_as_draws_head_by_head_give_it(size: int, chosen: Knockout) -> None:
    """Else strong heads are not what they are called: heads are drawn alike, or only the strongest are."""
    chosen = Knockout.of(chosen.places[:1]) if size == 1 else chosen
    if len(chosen) != size:
        chosen = Knockout.of(np.arange(50, 50 + size))
    law = {out: chance for out, chance in successive(PLACES, EFFECTS, size).items() if out != chosen}
    rng, trials = np.random.default_rng(0), 4000
    seen = Counter(strong_sets(PLACES, EFFECTS, chosen, 1, rng)[0] for _ in range(trials))
    assert set(seen) <= set(law) and math.isclose(sum(seen.values()), trials)
    for out, chance in law.items():
        expected = chance / sum(law.values())
        assert abs(seen[out] / trials - expected) < 4 * math.sqrt(expected * (1 - expected) / trials), out.places


def test_sets_all_differ_and_where_they_are_few_all_come() -> None:
    """Else one set counts twice, or the chosen set is compared with itself and always reached."""
    rng, mine = np.random.default_rng(0), Knockout.of(PLACES[:2])
    assert set(strong_sets(PLACES, EFFECTS, mine, 50, rng)) == set(successive(PLACES, EFFECTS, 2)) - {mine}
    some = strong_sets(PLACES, EFFECTS, mine, 4, rng)
    assert len(some) == len(set(some)) == 4 and mine not in some
    assert strong_sets(PLACES, EFFECTS, Knockout.of(PLACES), 50, rng) == [], "there is no other set of four"
    assert strong_sets(PLACES, EFFECTS, Knockout.of(np.arange(5)), 50, rng) == [], "nor one of five"
    assert strong_sets(PLACES, EFFECTS, mine, 0, rng) == []


def test_sets_that_hardly_ever_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two heads hold all of the effect: else a run hangs where the search found everything there is."""
    monkeypatch.setattr(drawing, "BATCH", 1 << 12)
    effects = np.array([0.5, 0.5, *[1e-12] * 40])
    drawn = strong_sets(np.arange(42), effects, Knockout.of(np.arange(2)), 50, np.random.default_rng(0))
    assert drawn == []


def test_only_heads_with_an_effect_of_their_own_are_drawn() -> None:
    """Else backups, which do nothing alone, or heads that everything needs pass for strong ones."""
    nan = float("nan")
    order = (
        Effect(Head(0, 1), -0.3, -0.4, -0.2, 0.01, nan),
        Effect(Head(0, 2), -0.2, nan, nan, nan, nan),  # measured on fewer examples: known all the same
        Effect(Head(0, 3), -0.3, -0.4, -0.2, 0.01, nan, given=(Head(0, 1),)),
        Effect(Head(0, 4), nan, nan, nan, nan, nan),
        Effect(Head(0, 5), 0.1, nan, nan, nan, nan),
        Effect(Head(0, 6), -0.5, -0.6, -0.4, 0.01, nan),
        Effect(Neuron(0, 7), -0.5, -0.6, -0.4, 0.01, nan),
    )
    assert own_effects(replace(FOUND, order=order, universal=(Head(0, 6),))) == {Head(0, 1): 0.3, Head(0, 2): 0.2}


IDLE = tuple(replace(FOUND.order[0], unit=Head(5, index), effect=-0.1) for index in (20, 21, 22))
RANKED = replace(FOUND, order=(*FOUND.order, *IDLE))
"""The planted heads, and three that do nothing: of seven, four can be out in 34 other ways."""


def sheets(ledger: Ledger, units: frozenset[Unit]) -> tuple[Sheet, Sheet]:
    trial = trial_of(capability(RECIPE))
    return tuple(trial.sheet(ledger, trial.tasks[0], out) for out in ((), units))  # type: ignore[return-value]


def test_the_change_is_that_of_the_same_examples_with_the_drawn_heads_out(organism: LanguageModel) -> None:
    """Each number is what the model itself answers, on the examples of the random sets."""
    units = frozenset[Unit](HEADS)
    with opened(None) as store:
        ledger = Ledger(organism, store)
        before, after = sheets(ledger, units)
        found = strong_heads(ledger, units, RANKED, before, after, Draw(5, 8, 2))
        again = strong_heads(ledger, units, RANKED, before, after, Draw(5, 8, 2))
        assert found is not None and found == again
        assert (found.sets, found.pool, found.examples, found.task) == (5, 7, 8, "swear")
        places = np.array([int(organism.architecture.knockout([each.unit]).places[0]) for each in RANKED.order])
        effects = np.array([-each.effect for each in RANKED.order])
        out = strong_sets(places, effects, organism.architecture.knockout(units), 5, np.random.default_rng(2))
        asked = before.examples[:8]
        whole, *rest = (
            np.mean([cell.value for cell in cells])
            for cells in task_scores(ledger, before.task, asked, [Knockout(), *out])
        )
    assert found.deltas == pytest.approx([mean - whole for mean in rest])
    assert found.delta == pytest.approx(np.mean([cell.value for cell in after.cells[:8]]) - whole)
    assert found.reached == sum(delta <= found.delta + 1e-9 for delta in found.deltas) < found.sets


def test_edits_of_neurons_and_runs_without_sets_have_no_such_comparison(organism: LanguageModel) -> None:
    """Else heads are drawn beside neurons, and the card says that they are as many."""
    units = frozenset[Unit](HEADS)
    with opened(None) as store:
        ledger = Ledger(organism, store)
        pair = sheets(ledger, units)
        assert strong_heads(ledger, units | {Neuron(1, 2)}, RANKED, *pair, Draw(5, 8)) is None
        assert strong_heads(ledger, units, RANKED, *pair, Draw(0, 8)) is None
        assert strong_heads(ledger, units, FOUND, *pair, Draw(5, 8)) is None, "the planted heads alone: no other set"
