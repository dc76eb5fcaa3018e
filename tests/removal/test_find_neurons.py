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

from editkit.errors import EditkitError
from editkit.evidence.localization import Localization
from editkit.measuring.attribution import effects
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.knockout import knocked_out
from editkit.models.language_model import LanguageModel
from editkit.removal import find_neurons
from editkit.removal import recipe as recipes
from editkit.removal.capability import Capability, capability
from editkit.removal.find_neurons import ALONE, LISTED, localize_neurons
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
    assert len(units) == LISTED == len(set(units)) and all(isinstance(unit, Neuron) for unit in units)
    assert [math.isnan(effect.effect) for effect in found.order] == [False] * ALONE + [True] * (LISTED - ALONE)
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
