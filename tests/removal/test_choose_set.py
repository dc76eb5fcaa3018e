"""The set that is chosen takes the target and spares the rest.

If one fails: a removal takes heads that everything needs, because they lead the list by effect on the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.hardening import Hardening, Round
from editkit.evidence.localization import Effect
from editkit.localizers.set_search import Budget, Measured
from editkit.measuring.attribution import attributions
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal import choose_set as choosing
from editkit.removal import recipe as recipes
from editkit.removal import search_sets
from editkit.removal.capability import capability
from editkit.removal.choose_set import choose_set
from editkit.removal.harden import Hardened
from editkit.removal.search_sets import (
    BY_CONTRAST,
    BY_EFFECT,
    FEWEST,
    Likelihoods,
    candidates,
    lost,
    nested,
    strongest,
    with_parts,
)
from editkit.removal.spare import smaller_sets
from editkit.removal.try_sets import ranked
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Task, examples_of
from editkit.units import Head, Neuron, Unit, parse
from tests.known_heads import FOUND, HEADS, TRUTH
from tests.planted import Planted


def test_a_selective_head_far_down_the_list_is_a_candidate() -> None:
    contrast = np.linspace(0.1, 0.0, 36)
    contrast[30] = 0.5
    chosen = candidates(36, contrast)
    assert chosen[:BY_EFFECT] == list(range(BY_EFFECT)) and chosen[BY_EFFECT] == 30
    assert len(chosen) == len(set(chosen)) == BY_EFFECT + BY_CONTRAST
    assert candidates(3, np.zeros(3)) == [0, 1, 2]


def test_beside_neurons_few_heads_are_candidates_and_none_that_others_need_more() -> None:
    """If this fails: a search for both kinds takes twenty minutes where one for neurons takes two."""
    heads = [Head(layer, index) for layer in range(6) for index in range(6)]
    drops, damages = np.full(36, 0.3), np.full(36, 0.2)
    damages[[0, 1]], drops[[5, 7, 9, 11]] = 0.4, [0.6, 0.9, 0.7, 0.8]

    def measures(groups: Sequence[tuple[Unit, ...]]) -> tuple[Measured, Measured]:
        at = [heads.index(head) for group in groups for head in group if isinstance(head, Head)]
        return (lambda masks: masks @ drops[at][:, None]), (lambda masks: masks @ damages[at][:, None])

    unknown = float("nan")
    found = replace(FOUND, order=tuple(Effect(head, unknown, unknown, unknown, unknown, unknown) for head in heads))
    chosen = search_sets._heads(found, measures, beside=True)
    assert chosen == [(heads[at],) for at in (7, 11, 9)]
    alone = search_sets._heads(found, measures, beside=False)
    assert (
        alone[0] == (heads[7],) and {(heads[0],), (heads[1],)} <= set(alone) and len(alone) == BY_EFFECT + BY_CONTRAST
    )
    damages[:] = 1.0
    assert search_sets._heads(found, measures, beside=True) == []


def test_what_is_lost_is_the_mean_score_against_the_unedited_model() -> None:
    effects = np.zeros(12)
    effects[[4, 7]] = 2.0, 1.0
    world = Planted(effects, noise=0.0)
    masks = np.eye(3, dtype=bool)
    drops = lost({"world": world}, np.array([4, 7, 2]))(masks)
    assert drops.shape == (3, 1) and drops[0, 0] > drops[1, 0] > 0 == drops[2, 0]
    shares = lost({"world": world}, np.array([4, 7, 2]), shares=True)(masks)
    np.testing.assert_allclose(shares * world(np.zeros((1, 12), dtype=bool)).mean(), drops)


def test_sets_within_the_budget_are_tried_first_and_the_strongest_of_them_first() -> None:
    wanted = capability(recipes.parse("capability: swear\ntarget: swear\nretain: [rhyme]\n", where="here"))
    one, two, three = Head(0, 1), Head(0, 2), Head(0, 3)
    points = [
        FrontierPoint((one,), {"swear": 0.8}, {"rhyme": 0.0}),
        FrontierPoint((one, two), {"swear": 0.6}, {"rhyme": 0.005}),
        FrontierPoint((three,), {"swear": 0.4}, {"rhyme": 1.0}),
    ]
    assert [point.units for point in strongest(points, wanted)] == [(one, two), (one,), (three,)]


def test_of_sets_beyond_the_budget_the_nearest_comes_first_and_within_a_point_the_strongest() -> None:
    sets = {
        "kept within": ("met", 0.02, 0.05, 0.12),
        "within, and weaker": ("met", 0.0, 0.05, 0.2),
        "stronger, but at its budget": ("met", 0.05, 0.05, 0.0),
        "a little beyond": ("met", 0.067, 0.05, 0.05),
        "as little, and weaker": ("met", 0.068, 0.05, 0.08),
        "far beyond, and strongest": ("met", 0.1, 0.05, 0.01),
        "a reduction at its budget": ("reduced", 0.05, 0.05, 0.3),
        "a smaller one within": ("reduced", 0.0, 0.05, 0.4),
        "not shown to be selective": ("too-much-damage", 0.05, 0.05, 0.0),
    }
    assert sorted(reversed(sets), key=lambda name: ranked(*sets[name])) == list(sets)


def test_one_costly_neuron_keeps_no_others_in() -> None:
    """If this fails: a whole block of good neurons stays in the model for the sake of one that another task needs."""
    neurons = [Neuron(0, index) for index in range(40)]
    costly = {neurons[11], neurons[30]}

    def left(units: tuple[Unit, ...]) -> tuple[float]:
        return (1 - 0.02 * len(units),)

    def point_of(units: tuple[Unit, ...]) -> FrontierPoint:
        return FrontierPoint(units, {"target": left(units)[0]}, {"kept": 0.2 * len(costly & set(units))})

    def within(units: tuple[Unit, ...], before: FrontierPoint) -> FrontierPoint | None:
        asked.append(units)
        assert set(before.units) < set(units)
        return None if costly & set(units) else point_of(units)

    asked: list[tuple[Unit, ...]] = []

    blocks = [tuple(neurons[:8]), tuple(neurons[8:24]), tuple(neurons[24:40])]
    budget = Budget(0.025, 0.015, 10)
    start = [point_of(()), point_of(blocks[0])]
    point = with_parts(left, within, start, blocks, budget)
    assert not costly & set(point.units) and len(point.units) == len(set(point.units)) == 40 - 2 * FEWEST
    assert with_parts(left, within, start, blocks[:1], budget).units == blocks[0]
    useless = [(Head(3, 1), Head(3, 2))]

    before = list(asked)
    empty = FrontierPoint((), {"target": 0.5}, {"kept": 0.0})
    assert with_parts(lambda units: (0.5,), within, [empty], useless, budget).units == (), "what takes nothing stays"
    assert asked == before, "and costs no look at the retained tasks"


def test_smaller_parts_of_a_large_set_are_tried_too() -> None:
    """If this fails: two hundred neurons go where eighty would do, and answers of other tasks with them."""
    heads, neurons = (Head(3, 1),), tuple(Neuron(0, index) for index in range(240))
    parts = nested((*heads, *neurons))
    assert [len(part) - 1 for part in parts] == [160, 106, 71, 47, 31]
    assert all(part == (*heads, *neurons[: len(part) - 1]) for part in parts)
    assert nested(heads) == [] == nested(neurons[:40])


def test_on_the_organism_the_planted_heads_are_chosen_without_the_others(organism: LanguageModel) -> None:
    text = (
        "capability: swear\ntarget: swear\nretain: [rhyme, facts]\nchoose: set\nmax_heads: 5\nuniversal_examples: 8\n"
        "examples: {choose: 16}\ndamage: {each: 0.3, mean: 0.3}\n"
    )
    with opened(None) as store:
        idle = tuple(replace(FOUND.order[0], unit=Head(5, index)) for index in (20, 22))
        found = replace(FOUND, order=(*idle, *FOUND.order))
        choice = choose_set(Ledger(organism, store), capability(recipes.parse(text, where="here")), found)
    assert choice.units <= set(HEADS), "a head that takes nothing is not taken"
    assert choice.units and choice.dose == ()
    assert any(point.answers for point in choice.frontier)


RHYME = [parse(head) for head in TRUTH["planted"]["rhyme"]]
SWEAR_AND_RHYME = "capability: swear\ntarget: swear\nretain: [rhyme]\nchoose: set\nuniversal_examples: 8\n"


def test_what_a_retained_task_depends_on_most_is_left_out_first_and_heads_stay(organism: LanguageModel) -> None:
    neurons = [Neuron(layer, index) for layer in (2, 3) for index in range(40)]
    with opened(None) as store:
        ledger = Ledger(organism, store)
        sets = smaller_sets(ledger, TASKS["rhyme"], [*HEADS, *neurons], examples=12)
        assert smaller_sets(ledger, TASKS["rhyme"], HEADS, examples=12) == []
        measure = likelihood_measure(ledger, TASKS["rhyme"], examples_of(TASKS["rhyme"], "locate", limit=12))
        rows = [organism.encode(anchor.requests[anchor.pick]) for anchor in measure.anchors]
    given = {
        Neuron(site.layer, index): score
        for site in organism.architecture.neuron_sites
        for index, score in enumerate(attributions(organism, rows, [site])[0].mean(axis=0))
    }
    for number, units in zip((4, 8, 16), sets, strict=True):
        left_out = set(neurons) - set(units)
        assert len(left_out) == number and set(HEADS) <= set(units)
        assert min(given[unit] for unit in left_out) >= max(given[unit] for unit in set(neurons) - left_out)


def test_a_set_beyond_its_budget_is_made_smaller_for_the_task_that_loses(
    organism: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heads of swearing and one of rhyming: the latter goes, and swearing is gone all the same."""
    capable, asked = capability(recipes.parse(SWEAR_AND_RHYME + "examples: {choose: 16}\n", where="here")), []
    whole = FrontierPoint((*HEADS, *RHYME), {"swear": 0.0}, {"rhyme": 0.0})

    def smaller(ledger: Ledger, task: Task, units: Sequence[Unit], *, examples: int) -> list[tuple[Unit, ...]]:
        asked.append((task.name, tuple(units), examples))
        return [tuple(HEADS), tuple(HEADS[:1])]

    monkeypatch.setattr(choosing, "search", lambda *_: (whole,))
    monkeypatch.setattr(choosing, "smaller_sets", smaller)
    with opened(None) as store:
        choice = choose_set(Ledger(organism, store), capable, FOUND)
    assert asked == [("rhyme", whole.units, choosing.ATTRIBUTED)]
    assert choice.units == set(HEADS)
    assert {point.units for point in choice.frontier if point.answers} == {whole.units, tuple(HEADS), tuple(HEADS[:1])}


def test_a_set_that_random_sets_of_its_layers_equal_is_passed_over(
    organism: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sets meet the goal. Of each layer the first takes all heads but one: so do random sets."""
    text = SWEAR_AND_RHYME + "examples: {choose: 16}\ndamage: {each: 1, mean: 1}\nrandom_examples: 8\n"
    many = [Head(layer, index) for layer in (1, 2, 3, 4) for index in range(23)]
    points = [
        FrontierPoint(tuple(units), {"swear": left}, {"rhyme": 0.0}) for units, left in ((many, 0.0), (HEADS, 0.1))
    ]
    monkeypatch.setattr(choosing, "search", lambda *_: tuple(points))
    with opened(None) as store:
        choice = choose_set(Ledger(organism, store), capability(recipes.parse(text, where="here")), FOUND)
    assert all(point.answers["swear"][1] < 0.1 for point in choice.frontier), "both remove"
    assert choice.units == set(HEADS)


@pytest.mark.parametrize("costly", [False, True])
def test_the_largest_hardened_set_that_costs_no_more_is_taken(
    organism: LanguageModel, monkeypatch: pytest.MonkeyPatch, costly: bool
) -> None:
    """If this fails: hardening ruins a retained task, or its sets are made and not used."""
    text = SWEAR_AND_RHYME + "goal: 0.6\nexamples: {choose: 24}\nrandom_examples: 8\nunits: both\nharden: true\n"
    spare = (Neuron(0, 3),)
    sets = ((*HEADS, *spare), (*HEADS, *spare, *(RHYME if costly else (Neuron(0, 4),))))
    found = Hardened(sets, Hardening(25, 3e-5, 60, 80, 0.4, (Round(4, 0.0, 0.3), Round(5, 0.0, 0.0))))
    monkeypatch.setattr(choosing, "search", lambda *_: (FrontierPoint(tuple(HEADS), {"swear": 0.0}, {"rhyme": 0.0}),))
    monkeypatch.setattr(choosing, "harden", lambda *_, **__: found)
    with opened(None) as store:
        choice = choose_set(Ledger(organism, store), capability(recipes.parse(text, where="here")), FOUND)
    assert choice.units == set(sets[0] if costly else sets[1])
    assert choice.hardening == found.hardening


def test_a_set_that_costs_too_much_is_asked_no_further(organism: LanguageModel) -> None:
    """The task that lost most before is asked first, and alone where it says enough; what is within, as a whole."""
    with opened(None) as store:
        ledger = Ledger(organism, store)
        measures = {
            name: likelihood_measure(ledger, TASKS[name], examples_of(TASKS[name], "locate", limit=6))
            for name in ("swear", "rhyme", "sort")
        }
        likelihoods = Likelihoods(ledger, {"swear": measures.pop("swear")}, measures)
        within, before = likelihoods.within(Budget(0.05, 0.05, 10)), FrontierPoint((), {}, {"rhyme": 0.0, "sort": 0.01})
        start = store.count()
        assert within(tuple(map(parse, TRUTH["planted"]["sort"])), before) is None
        asked = sum(measures["sort"].examples for _ in ("unedited", "edited"))
        assert store.count() - start == asked, "sorting alone"
        assert within(tuple(HEADS), before) == likelihoods.points([tuple(HEADS)])[0]


def test_what_cannot_be_the_best_is_asked_no_further(organism: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first set harms nobody. The second takes rhyming too, as likelihoods say: it is asked first, and alone."""
    text = "capability: swear\ntarget: swear\nretain: [sort, rhyme]\nchoose: set\nexamples: {choose: 12}\n"
    text += "universal_examples: 8\nrandom_examples: 8\ndamage: {each: 0.1, mean: 0.1}\n"
    harmless = FrontierPoint((*HEADS, Head(5, 20)), {"swear": 0.0}, {"sort": 0.0, "rhyme": 0.0})
    costly = FrontierPoint((*HEADS, *RHYME), {"swear": 0.1}, {"sort": 0.0, "rhyme": 0.5})
    monkeypatch.setattr(choosing, "search", lambda *_: (harmless, costly))
    monkeypatch.setattr(choosing.Tried, "good", False)
    with opened(None) as store:
        choice = choose_set(Ledger(organism, store), capability(recipes.parse(text, where="here")), FOUND)
    asked = {point.units: set(point.answers) for point in choice.frontier}
    assert asked[harmless.units] == {"swear", "sort", "rhyme"} and asked[costly.units] == {"swear", "rhyme"}
    assert choice.units == set(harmless.units)
