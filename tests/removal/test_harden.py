"""Rounds of attack and removal on the organism. If one fails: a card says that fine-tuning was fought, and it was not,
or the model that goes on from there is not the one that was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from editkit.errors import EditkitError
from editkit.evidence.exhibits import Exhibits
from editkit.localizers.contrast import contrast
from editkit.measuring.attribution import effects
from editkit.measuring.ledger import Ledger
from editkit.measuring.right_answers import right_answer
from editkit.measuring.store import opened
from editkit.models.knockout import knocked_out
from editkit.models.language_model import LanguageModel
from editkit.models.training import Training, all_weights, trained
from editkit.removal import harden as hardening
from editkit.removal import recipe as recipes
from editkit.removal.capability import Capability, capability
from editkit.removal.find_heads import control_measures
from editkit.removal.harden import ADDED, FEWEST, Hardened, harden
from editkit.tasks.task import examples_of
from editkit.units import Neuron, Unit

RECIPE = """
capability: facts
target: facts
retain: [rhyme, story]
units: neurons
harden: true
examples: {locate: 10, choose: 8, report: 8}
universal_examples: 6
"""
ROUNDS, STEPS = 2, 4
FIRST = tuple(Neuron(layer, 7) for layer in range(3))


def wanted(text: str = RECIPE) -> Capability:
    return capability(recipes.parse(text, where="here"))


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardening, "ATTRIBUTED", 6)
        patch.setattr(hardening, "EXAMPLES", 24)
        patch.setattr(hardening, "RATES", (1e-3, 1e-7))
        patch.setattr(hardening, "ROUNDS", ROUNDS)
        patch.setattr(hardening, "STEPS", STEPS)
        patch.setattr(hardening, "ENOUGH", -1.0)
        yield


def run(model: LanguageModel, affordable=lambda units: True) -> Hardened:
    with opened(None) as store:
        return harden(Ledger(model, store), wanted(), FIRST, affordable)


@pytest.fixture(scope="module")
def hardened(few: None, organism: LanguageModel) -> Hardened:
    return run(organism)


@pytest.mark.commit
def test_each_round_adds_neurons_and_the_model_stays_as_it_was(organism: LanguageModel, hardened: Hardened) -> None:
    before = {name: weight.clone() for name, weight in organism.network.state_dict().items()}
    sizes = [len(FIRST) + number * ADDED for number in range(ROUNDS + 1)]
    assert [each.units for each in hardened.hardening.rounds] == sizes == [3, *map(len, hardened.sets)]
    for smaller, larger in zip((FIRST, *hardened.sets), hardened.sets, strict=False):
        assert larger[: len(smaller)] == smaller and len(set(larger)) == len(larger)
    assert run(organism) == hardened, "not the same again"
    assert all(torch.equal(weight, before[name]) for name, weight in organism.network.state_dict().items())


@pytest.mark.commit
def test_what_goes_out_is_what_a_trained_model_needs_and_others_do_not(
    organism: LanguageModel, hardened: Hardened
) -> None:
    """If this fails: the neurons that take over are not those that are removed."""
    sites, recipe = list(organism.architecture.neuron_sites), wanted().recipe
    names = [Neuron(site.layer, index) for site in sites for index in range(site.units)]
    [task] = wanted().targets
    with opened(None) as store:
        ledger = Ledger(organism, store)
        examples = examples_of(task, "locate", limit=24)
        answers = [(each, right_answer(task, each)) for each in examples]
        controls = control_measures(ledger, wanted().retain, 6)
    taught = [(each, answer) for each, answer in answers if hardening._teaches(each) and answer is not None]
    assert not {each.cluster for each, _ in taught} & {
        each.cluster for each in examples if not hardening._teaches(each)
    }, "what is scored was taught"
    rows, needed = [organism.encode(answer) for _, answer in taught], {}
    for name, control in controls.items():
        needed[name] = effects(organism, [organism.encode(each.requests[each.pick]) for each in control.anchors], sites)
    out = organism.architecture.knockout(FIRST)
    with (
        knocked_out(organism.network, organism.architecture, out),
        trained(
            *(organism, all_weights(organism.network), rows, Training(STEPS, 1e-3), np.random.default_rng(0)),
        ),
    ):
        given = effects(organism, rows, sites, path=recipe.path, steps=recipe.steps)
    order = np.argsort(-contrast({task.name: given}, needed), kind="stable")
    expected = [names[at] for at in order if names[at] not in FIRST][:ADDED]
    assert list(hardened.sets[0][3:]) == expected


@pytest.mark.commit
def test_the_attacker_takes_the_rate_that_brings_most_back(hardened: Hardened) -> None:
    assert hardened.hardening.rate == 1e-3 and hardened.hardening.steps == STEPS
    assert 0 <= hardened.hardening.rounds[0].after <= 1 and hardened.hardening.base > 0.9


@pytest.mark.commit
def test_what_the_retained_tasks_need_stays(organism: LanguageModel, hardened: Hardened) -> None:
    """If this fails: hardening spends more than the damage budget."""
    taboo = set(hardened.sets[0][10:12])

    def affordable(units: tuple[Unit, ...]) -> bool:
        return not taboo & set(units)

    found = run(organism, affordable)
    assert not any(taboo & set(units) for units in found.sets)
    kept = set(hardened.sets[0]) - set(found.sets[0])
    assert taboo <= kept and len(kept) <= 2 * FEWEST, "only the part that costs too much is left out"
    nothing = run(organism, lambda units: False)
    assert nothing.sets == () and [each.units for each in nothing.hardening.rounds] == [3]


@pytest.mark.commit
def test_no_more_goes_out_than_keeps_the_capability_away(organism: LanguageModel, monkeypatch) -> None:
    monkeypatch.setattr(hardening, "ENOUGH", 1.0)
    assert run(organism).sets == ()


def test_too_few_clusters_are_refused(organism: LanguageModel, monkeypatch) -> None:
    monkeypatch.setattr(hardening, "EXAMPLES", 4)
    with pytest.raises(EditkitError, match="to attack with|to search with|clusters"):
        run(organism)


@pytest.mark.commit
def test_the_evidence_is_read_back(hardened: Hardened) -> None:
    import json

    exhibits = replace(Exhibits(), hardening=hardened.hardening)
    assert Exhibits.from_json(json.dumps(exhibits.to_dict())) == exhibits
    with pytest.raises(EditkitError, match="hardening|steps"):
        Exhibits.from_json('{"hardening": {"steps": "ten"}}')


def test_heads_alone_cannot_be_hardened() -> None:
    with pytest.raises(EditkitError, match="units: neurons"):
        wanted(RECIPE.replace("units: neurons", "units: heads"))
