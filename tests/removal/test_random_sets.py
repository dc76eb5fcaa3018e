"""What heads do beside their own effect: selectivity where they show, format, joint drop against random sets.

If one fails: heads that are no better than random ones pass for a finding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from editkit.checkpoints.architecture import Architecture, Site
from editkit.evidence.paired_tests import random_set_p
from editkit.localizers.format_heads import format_heads
from editkit.localizers.selectivity import Needed, added_drops, selectivity
from editkit.removal.joint_knockout import clusters, joint_knockout
from editkit.removal.random_sets import possible, random_sets
from editkit.units import Head, Neuron
from tests.planted import Planted

LAYERS, HEADS = 4, 8
UNITS = LAYERS * HEADS


def architecture(groups: int | None = 4) -> Architecture:
    def site(layer: int) -> Site:
        name = f"layers.{layer}.o_proj"
        return Site("head", layer, f"{name}.weight", name, (64, 64), 1, HEADS, 8, groups)

    return Architecture("toy", LAYERS, tuple(site(layer) for layer in range(LAYERS)))


def world(effects: dict[int, float], seed: int = 0, **options) -> Planted:
    planted = np.zeros(UNITS)
    planted[list(effects)] = list(effects.values())
    return Planted(planted, seed=seed, noise=0.0, **options)


def test_a_head_that_hurts_nothing_else_is_selective_and_a_shared_one_is_not() -> None:
    controls = {"mine": world({7: 2.0}, 1), "other": world({}, 2)}
    heads = [Needed(3, 0.3), Needed(7, 0.3)]
    shares, cost = selectivity(heads, controls, per=100)
    assert cost == pytest.approx(sum(control.spent for control in controls.values()))
    lost = added_drops(heads, controls["mine"], 32, per=100)[0][1] / 2
    assert shares[3] == 1.0 and shares[7] == pytest.approx(0.3 / (0.3 + lost)) and lost > 0.1


def test_a_backup_is_judged_with_what_it_backs_up_out() -> None:
    """Head 9 hurts the retained task only once head 4 is out: alone it looks innocent."""
    retained = world({4: 0.3}, pairs=[(4, 9, 1.0)])
    [alone], _ = added_drops([Needed(9, 0.3)], retained, 100, per=100)
    [behind], _ = added_drops([Needed(9, 0.3, (4,))], retained, 100, per=100)
    masks = np.zeros((2, UNITS), dtype=bool)
    masks[:, 4], masks[1, 9] = True, True
    before, after = retained(masks).mean(axis=1)
    assert alone == 0 and behind == pytest.approx(before - after) and behind > 0.2
    shares, _ = selectivity([Needed(9, 0.3, (4,))], {"retained": retained}, per=100)
    assert shares[9] < 0.65


def test_a_head_is_of_the_format_when_the_text_does_not_need_it() -> None:
    text = world({5: 2.0, 6: 0.15}, examples=60)
    heads = [Needed(5, 0.4), Needed(6, 0.11), Needed(8, 0.5), Needed(9, 0.06)]
    assert format_heads(heads, text, per=100)[0] == [8]  # 5 is knowledge, 6 a little, 9 too weak to say
    assert format_heads([], text, per=100) == ([], 0.0)


def test_the_set_is_compared_with_random_sets_of_the_same_layers() -> None:
    measure = world({3: 1.0, 12: 1.0})
    found, cost = joint_knockout([Head(0, 3), Head(1, 4)], [], architecture(), measure, np.random.default_rng(0))
    masks = np.zeros((2, UNITS), dtype=bool)
    masks[1, [3, 12]] = True
    before, after = measure(masks).mean(axis=1)
    assert found.drop == pytest.approx(before - after) and found.p == 0.05
    assert max(found.random) < found.drop and cost == pytest.approx(1 + 1.9)
    useless, _ = joint_knockout([Head(0, 5)], [], architecture(), measure, np.random.default_rng(0))
    assert useless.drop == 0 and useless.p > 0.5
    assert found.to_dict()["random sets"]["sets"] == 19


def test_random_sets_match_the_layers_and_spare_universal_heads() -> None:
    toy, heads, universal = architecture(), [Head(0, 1), Head(2, 3), Head(2, 4)], [Head(2, 0)]
    masks = np.zeros((50, LAYERS * HEADS), dtype=bool)
    for row, out in zip(
        masks,
        random_sets(toy, toy.knockout(heads), 50, np.random.default_rng(0), aside=toy.knockout(universal)),
        strict=True,
    ):
        row[out.places] = True
    by_layer = masks.reshape(50, LAYERS, HEADS)
    assert (by_layer.sum(2) == [1, 0, 2, 0]).all()
    assert not by_layer[:, 2, 0].any()
    assert (masks.any(axis=0).sum()) == 8 + 7


def test_random_sets_of_neurons_match_the_layers_too() -> None:
    def mlp(layer: int) -> Site:
        return Site("neuron", layer, f"layers.{layer}.down.weight", f"layers.{layer}.down", (64, 20), 1, 20, 1, None)

    both = replace(architecture(), neuron_sites=tuple(mlp(layer) for layer in range(LAYERS)))
    units = [Head(1, 0), *(Neuron(2, index) for index in range(15)), Neuron(3, 4)]
    for out in random_sets(both, both.knockout(units), 20, np.random.default_rng(0)):
        drawn = both.units(out)
        assert sorted((type(unit) is Neuron, unit.layer) for unit in drawn) == [
            (False, 1),
            *[(True, 2)] * 15,
            (True, 3),
        ]


def test_sets_are_counted_while_a_report_can_hold_their_number() -> None:
    """Of 300 of 10,000 neurons in each of 30 layers there are more than Python writes as digits."""
    assert possible([(np.arange(8), 2), (np.arange(8), 1)]) == 28 * 8
    assert possible([(np.arange(10_000), 300)] * 30) is None


@pytest.mark.parametrize(("chosen", "count"), [([2], 50), ([0, 3], 50), ([1, 4, 6], 20)])
def test_no_p_of_random_sets_is_small_more_often_than_it_says(chosen: list[int], count: int) -> None:
    """All heads alike: in every draw the chosen set has any rank as often as any other."""
    rng, heads = np.random.default_rng(1), 4 if count == 50 else 9
    toy = replace(architecture(), sites=small_sites(heads))
    levels = np.zeros(400)
    for trial in range(400):
        effects = rng.normal(size=heads)
        drawn = random_sets(toy, toy.knockout(Head(0, index) for index in chosen), count, rng)
        levels[trial] = random_set_p(effects[chosen].sum(), [effects[out.places].sum() for out in drawn])
    for level in (0.05, 0.25, 0.5):
        assert (levels <= level).mean() <= level + 3 * (level / 400) ** 0.5


def test_random_sets_all_differ_and_none_is_the_chosen_one() -> None:
    toy, rng = replace(architecture(), sites=small_sites(9)), np.random.default_rng(0)
    for chosen, count, there in (([2], 50, 8), ([2, 5], 50, 35), ([2, 5, 7], 50, 50)):
        out = toy.knockout(Head(0, index) for index in chosen)
        drawn = random_sets(toy, out, count, rng)
        assert len(drawn) == len(set(drawn)) == there and out not in drawn
        assert {len(each.places) for each in drawn} == {len(chosen)}


def small_sites(heads: int) -> tuple[Site, ...]:
    shape = (16 * heads, 16 * heads)
    return (Site("head", 0, "layers.0.o_proj.weight", "layers.0.o_proj", shape, 1, heads, 16, None),)


def test_heads_of_one_key_value_group_are_named_together() -> None:
    heads = [Head(1, 2), Head(1, 3), Head(1, 4), Head(2, 2), Head(3, 6), Head(3, 7)]
    assert clusters(heads, architecture()) == ((Head(1, 2), Head(1, 3)), (Head(3, 6), Head(3, 7)))
    assert clusters(heads, architecture(None)) == () == clusters(heads, architecture(HEADS))
