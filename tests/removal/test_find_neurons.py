"""Neurons of the organism, against knockouts that are computed here. If one fails: the neurons that a card names are
not those that were measured, or the effects beside them are not theirs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editkit.checkpoints.knockout import Knockout
from editkit.errors import EditkitError
from editkit.evidence.localization import Localization
from editkit.localizers.contrast import contrast
from editkit.measuring.attribution import effects
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure, likelihood_measure
from editkit.measuring.store import opened
from editkit.models.encoding import Encoded
from editkit.models.knockout import knocked_out
from editkit.models.language_model import LanguageModel
from editkit.removal import find_neurons
from editkit.removal import recipe as recipes
from editkit.removal.capability import Capability, capability
from editkit.removal.find_heads import control_measures
from editkit.removal.find_neurons import ALONE, ROUNDS, localize_neurons
from editkit.removal.locate import locate
from editkit.removal.trial import trial_of
from editkit.tasks.task import Likelihood, examples_of
from editkit.units import Head, Neuron

RECIPE = """
capability: facts
target: facts
retain: [rhyme, story]
units: neurons
examples: {locate: 10, choose: 8, report: 8}
universal_examples: 6
"""


def wanted(text: str = RECIPE) -> Capability:
    return capability(recipes.parse(text, where="here"))


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    """Six examples of each task instead of sixty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find_neurons, "ATTRIBUTED", 6)
        yield


@pytest.fixture(scope="module")
def found(few: None, organism: LanguageModel) -> Localization:
    with opened(None) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return locate(Ledger(organism, store), wanted())


def test_the_effect_of_a_neuron_is_what_its_knockout_does(organism: LanguageModel, found: Localization) -> None:
    units = [effect.unit for effect in found.order]
    listed = sum(ROUNDS)
    assert len(units) == listed == len(set(units)) and all(isinstance(unit, Neuron) for unit in units)
    assert [math.isnan(effect.effect) for effect in found.order] == [False] * ALONE + [True] * (listed - ALONE)
    with opened(None) as store:
        ledger = Ledger(organism, store)
        [task] = wanted().targets
        anchors = likelihood_measure(ledger, task, examples_of(task, "locate", limit=10)).anchors
    requests = [anchor.requests[anchor.pick] for anchor in anchors]

    def probabilities() -> np.ndarray:
        outputs = [output for output in organism.answer(requests, None) if isinstance(output, Likelihood)]
        return np.array([math.exp(output.logprob / output.tokens) for output in outputs])

    before = probabilities()
    with knocked_out(organism.network, organism.architecture, frozenset(units[:1])):
        expected = float(np.mean(probabilities() - before))
    assert found.order[0].effect == pytest.approx(expected, abs=1e-5)


def test_later_neurons_are_those_that_carry_the_target_without_the_first(
    organism: LanguageModel, found: Localization
) -> None:
    """If this fails: what takes over for the first neurons is not found, and a format survives the removal."""
    architecture = organism.architecture
    sites = list(architecture.neuron_sites)
    names = [Neuron(site.layer, index) for site in sites for index in range(site.units)]
    asked, units, start = wanted(), [effect.unit for effect in found.order], 0
    [target], recipe = asked.targets, asked.recipe
    with opened(None) as store:
        ledger = Ledger(organism, store)
        measure = likelihood_measure(ledger, target, examples_of(target, "locate", limit=recipe.examples.locate))
        controls = control_measures(ledger, asked.retain, max(6, recipe.universal_examples))
        needed = {name: effects(organism, encoded(control), sites) for name, control in controls.items()}
        for size in ROUNDS:
            share = left(measure, architecture.knockout(units[:start]))
            with knocked_out(organism.network, architecture, frozenset(units[:start])):
                given = effects(organism, encoded(measure), sites)
            score = contrast({target.name: share * given}, needed)
            expected = [names[at] for at in np.argsort(-score, kind="stable") if names[at] not in units[:start]]
            assert units[start : start + size] == expected[:size]
            start += size


def encoded(measure: LikelihoodMeasure) -> list[Encoded]:
    return [measure.ledger.model.encode(anchor.requests[anchor.pick]) for anchor in measure.anchors]


def left(measure: LikelihoodMeasure, out: Knockout) -> float:
    before, after = replace(measure, columns=(out,))(np.array([[False], [True]])).mean(axis=1)
    return float(after / before)


def test_both_kinds_are_searched_together_and_heads_come_first(organism: LanguageModel) -> None:
    text = RECIPE.replace("units: neurons", "units: both\nmethod: halving")
    with opened(None) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = locate(Ledger(organism, store), wanted(text))
    kinds = [isinstance(effect.unit, Head) for effect in both.order]
    assert kinds == sorted(kinds, reverse=True) and any(kinds) and not all(kinds)


def test_the_recipe_says_how_answers_are_attributed(
    organism: LanguageModel, found: Localization, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails: who asks for the paper's integrated gradients gets the cheap order under their name."""
    asked = []

    def quick(*args: Any, path: str, steps: int, **rest: Any) -> np.ndarray:
        asked.append((path, steps))
        return effects(*args, **rest)

    monkeypatch.setattr(find_neurons, "effects", quick)
    with opened(None) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = localize_neurons(Ledger(organism, store), wanted(RECIPE + "path: layers\nsteps: 19"))
    assert set(asked) == {("layers", 19)}
    assert [effect.unit for effect in exact.order] == [effect.unit for effect in found.order]
    passes = 19 * len(organism.architecture.neuron_sites)
    assert exact.evaluations - ALONE - 1 == pytest.approx(passes * (found.evaluations - ALONE - 1))


def test_a_model_without_neurons_says_so(organism: LanguageModel) -> None:
    bare = replace(organism, architecture=replace(organism.architecture, neuron_sites=()))
    with opened(None) as store, pytest.raises(EditkitError, match="No neuron of this .* can be searched"):
        localize_neurons(Ledger(bare, store), wanted())


def test_tasks_that_may_be_lost_are_reported_and_not_retained(tmp_path: Path) -> None:
    recipe = recipes.changed(recipes.parse(RECIPE, where="here"), {"also": ["story"]})
    assert recipe.retain == ("rhyme",) and recipe.also == ("story",)
    trial = trial_of(capability(recipe))
    assert [trial.roles[task.name] for task in trial.tasks] == ["target", "retain", "also"]
    assert [task.name for task in trial_of(capability(recipe), split="choose").tasks] == ["facts", "rhyme"]


def test_a_number_of_heads_with_neurons_is_refused() -> None:
    with pytest.raises(EditkitError, match="a number of heads needs units: heads"):
        recipes.changed(recipes.parse(RECIPE, where="here"), {"heads": 3})
