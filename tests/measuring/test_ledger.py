"""Measuring asks only for what is missing, and the numbers do not depend on how the work was cut up.

If one fails: a resumed run differs from one that was not stopped, or a number belongs to another model.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from editkit.api import load
from editkit.checkpoints.knockout import Knockout
from editkit.errors import EditkitError
from editkit.measuring.answers import task_scores
from editkit.measuring.attribution import gate_prior
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure, answer_probability, likelihood_measure
from editkit.measuring.store import Store, opened
from editkit.models.batch_budget import Budget
from editkit.models.knockout import gated, knocked_out
from editkit.models.language_model import LanguageModel
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Example, Generate, Likelihood, Loglikelihood, Output, Score, examples_of
from editkit.units import Head, Neuron, Unit


@pytest.fixture
def store():
    with opened(None) as fresh:
        yield fresh


def _masks(model: LanguageModel, count: int) -> np.ndarray:
    masks = np.random.default_rng(0).random((count, len(model.architecture.heads))) < 0.05
    masks[0] = False
    return masks


def _asked(monkeypatch) -> list[int]:
    """How many requests each call of the model was given."""
    counts: list[int] = []
    answer = LanguageModel.answer

    def counting(self, requests, masks, **rest):
        counts.append(len(requests))
        return answer(self, requests, masks, **rest)

    monkeypatch.setattr(LanguageModel, "answer", counting)
    return counts


@pytest.mark.parametrize("name", ["arithmetic", "facts-letter"])
def test_what_is_stored_is_not_asked_again(name: str, organism: LanguageModel, store: Store, monkeypatch) -> None:
    task, masks = TASKS[name], _masks(organism, 3)
    examples = examples_of(task, "locate", limit=6)
    counts = _asked(monkeypatch)
    first = task_scores(Ledger(organism, store), task, examples[:4], masks[:2])
    per_example = len(task.requests(examples[0]))
    assert counts == [8 * per_example]
    again = task_scores(Ledger(organism, store), task, examples[:4], masks[:2])
    assert counts == [8 * per_example]
    assert again == first
    more = task_scores(Ledger(organism, store), task, examples, masks)
    assert sum(counts) == 18 * per_example
    assert [row[:4] for row in more[:2]] == first


@pytest.mark.parametrize(
    ("file", "setting", "again"),
    [
        ("config.json", {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, True),
        ("config.json", {"transformers_version": "4.0.0"}, False),
        ("generation_config.json", {"eos_token_id": [1, 20]}, True),
    ],
)
def test_a_model_with_other_settings_is_measured_again(
    file: str, setting: dict[str, Any], again: bool, organism: LanguageModel, store: Store, tmp_path: Path, monkeypatch
) -> None:
    examples, nothing = examples_of(TASKS["story"], "locate", limit=2), _masks(organism, 1)
    task_scores(Ledger(organism, store), TASKS["story"], examples, nothing)
    folder = tmp_path / "copy"
    shutil.copytree(organism.source.directory, folder)
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | setting))
    other = replace(load(folder, check=False), source=organism.source)
    counts = _asked(monkeypatch)
    task_scores(Ledger(other, store), TASKS["story"], examples, nothing)
    assert bool(counts) == again


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_an_interruption_loses_the_batch_in_flight_and_nothing_else(
    batches: int, organism: LanguageModel, store: Store, monkeypatch
) -> None:
    task, masks = TASKS["arithmetic"], _masks(organism, 4)
    examples = examples_of(task, "locate", limit=8)
    small, run, done = replace(organism, budget=Budget(150)), LanguageModel._run, []
    with opened(None) as other:
        whole = task_scores(Ledger(small, other), task, examples, masks)

    def killed(self, *rest):
        if len(done) == batches:
            raise KeyboardInterrupt
        done.append(len(rest[-1]))
        return run(self, *rest)

    monkeypatch.setattr(LanguageModel, "_run", killed)
    with pytest.raises(KeyboardInterrupt):
        task_scores(Ledger(small, store), task, examples, masks)
    assert store.count() == sum(done) < 32
    monkeypatch.setattr(LanguageModel, "_run", run)
    counts = _asked(monkeypatch)
    assert task_scores(Ledger(small, store), task, examples, masks) == whole
    assert counts == [32 - sum(done)]


@pytest.mark.parametrize("tokens", [60, 500, 10**6])
def test_likelihood_scores_do_not_depend_on_the_batch_size(tokens: int, organism: LanguageModel, store: Store) -> None:
    examples = examples_of(TASKS["arithmetic"], "locate", limit=8)
    measure = likelihood_measure(Ledger(organism, store), TASKS["arithmetic"], examples)
    masks = _masks(organism, 4)
    whole = measure(masks)
    with opened(None) as other:
        small = replace(measure, ledger=Ledger(replace(organism, budget=Budget(tokens)), other))
        np.testing.assert_allclose(small(masks), whole, atol=1e-5)
        one_by_one = [small(mask[None], np.array([place])) for mask in masks for place in range(measure.examples)]
    np.testing.assert_allclose(np.ravel(one_by_one), whole.ravel(), atol=1e-5)


def test_the_unedited_model_finds_its_own_answers_likely_and_no_heads_at_all_unlikely(
    organism: LanguageModel, store: Store
) -> None:
    examples = examples_of(TASKS["swear"], "locate", limit=10)
    measure = likelihood_measure(Ledger(organism, store), TASKS["swear"], examples)
    nothing, everything = np.zeros((1, measure.units), bool), np.ones((1, measure.units), bool)
    assert measure(nothing).mean() > 0.5
    assert measure(everything).mean() < 0.2


def test_answer_probability_is_a_geometric_mean_or_a_share() -> None:
    single = [Likelihood(2 * np.log(0.25), 2, False)]
    assert answer_probability(single, 0).value == pytest.approx(0.25)
    pair = [Likelihood(np.log(0.3), 1, True), Likelihood(2 * np.log(0.1), 2, False)]
    assert answer_probability(pair, 0).value == pytest.approx(0.75)
    assert answer_probability(pair, 1).value == pytest.approx(0.25)


@pytest.mark.parametrize("logprobs", [[np.nan], [-np.inf], [np.nan, -1.0], [-1.0, np.nan], [-np.inf, -np.inf]])
def test_a_likelihood_that_is_no_number_shows_nothing(logprobs: list[float], store: Store) -> None:
    cell = answer_probability([Likelihood(logprob, 3, False) for logprob in logprobs], 0)
    assert (cell.value, cell.valid) == (0.0, False)
    store.put(store.space({}), [(Knockout(), "x", cell)])


@dataclass(frozen=True)
class Compared:
    """Questions whose right answer is the second choice, taken where it is the likeliest by one way of comparing."""

    by: Callable[[Likelihood, str], float]
    name: str = "compared"
    rule: str = "the second choice is the likelier"
    chance: float = 0.5
    format: str = "choice-text"

    def examples(self) -> list[Example]:
        things = (
            "the bus",
            "the rain",
            "a carrot",
            "the sky",
            "the dog",
            "grass",
            "snow",
            "a lemon",
            "coal",
            "the cat",
        )
        choices = ["computer printer", "kitten", "9 8 7", "a b", "the"]
        pairs = itertools.permutations(choices, 2)
        return [Example(f"{t}-{p}", f"Name one thing like {t}.", facts={"c": p}) for p in pairs for t in things]

    def requests(self, example: Example) -> tuple[Loglikelihood, ...]:
        return tuple(Loglikelihood(example.prompt, choice) for choice in example.facts["c"])

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        pairs = zip(outputs, example.facts["c"], strict=True)
        wrong, right = [self.by(output, text) for output, text in pairs if isinstance(output, Likelihood)]
        return Score(float(right > wrong))


WAYS: dict[str, Callable[[Likelihood, str], float]] = {
    "sum": lambda output, text: output.logprob,
    "token": lambda output, text: output.logprob / output.tokens,
    "character": lambda output, text: output.logprob / len(text),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_search_follows_the_choice_that_the_task_counts_as_right(
    way: str, organism: LanguageModel, store: Store
) -> None:
    task = Compared(WAYS[way])
    measure = likelihood_measure(Ledger(organism, store), task, task.examples())
    assert [anchor.pick for anchor in measure.anchors] == [1] * measure.examples
    nothing = np.zeros((1, measure.units), bool)
    [cells] = task_scores(Ledger(organism, store), task, [anchor.example for anchor in measure.anchors], nothing)
    other = sum(np.argmax([float(mean) for mean in cell.output.split()]) == 0 for cell in cells)
    assert (other == 0) == (way == "token"), "the ways of comparing disagree on some, so a wrong choice would show"


class Unsure(Compared):
    """Counts an answer as right while the model is of two minds."""

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        return Score(float(all(isinstance(output, Likelihood) and output.logprob > -500 for output in outputs)))


def test_choices_of_which_none_is_right_alone_are_a_clear_error(organism: LanguageModel, store: Store) -> None:
    task = Unsure(WAYS["sum"])
    with pytest.raises(EditkitError, match=r"compared: none of the 2 choices of example .* such as acc"):
        likelihood_measure(Ledger(organism, store), task, task.examples()[:9])


class Absent:
    """A task no model can do."""

    name, rule, chance, format = "absent", "nothing", 0.0, "generation"

    def examples(self):
        return [Example(str(place), f"What is {place}?") for place in range(40)]

    def requests(self, example):
        return (Generate(example.prompt, 4),)

    def score(self, example, outputs):
        return Score(0.0)


def test_a_capability_the_model_does_not_have_is_a_clear_error(organism: LanguageModel, store: Store) -> None:
    with pytest.raises(EditkitError, match="does not have this capability") as caught:
        likelihood_measure(Ledger(organism, store), Absent(), examples_of(Absent(), "locate", limit=10))
    assert "'absent' in 0 of 10" in str(caught.value)


def test_too_few_examples_are_not_taken_for_a_model_that_cannot_do_it(organism: LanguageModel, store: Store) -> None:
    """Else whoever wrote five prompts is told that the model lacks what it shows in all of them."""
    task = TASKS["arithmetic"]
    with pytest.raises(EditkitError, match="2 of 2 examples .* 4 are needed. Give more prompts"):
        likelihood_measure(Ledger(organism, store), task, examples_of(task, "locate", limit=2))


def test_gate_gradients_agree_with_finite_differences(organism: LanguageModel, store: Store) -> None:
    """Over all heads at once, in random directions, at both points of a path of two."""
    task = TASKS["arithmetic"]
    measure = likelihood_measure(Ledger(organism, store), task, examples_of(task, "locate", limit=4))
    prior = gate_prior(measure, steps=2, limit=4)
    assert prior is not None
    effects, cost = prior()
    assert effects is not None and cost == pytest.approx(3 * 2)
    rows = [organism.encode(anchor.requests[anchor.pick]) for anchor in measure.anchors]

    @torch.inference_mode()
    def score(gates: np.ndarray) -> float:
        """The mean over rows of the answer's mean log-probability."""
        found = []
        with gated(organism.network, organism.architecture, torch.from_numpy(gates).float()):
            for context, answer in rows:
                logits = organism.network(torch.tensor([context + answer])).logits[0, len(context) - 1 : -1]
                logprobs = logits.double().log_softmax(-1)
                found.append(logprobs.gather(1, torch.tensor(answer)[:, None]).mean().item())
        return sum(found) / len(found)

    for direction in np.random.default_rng(0).normal(size=(4, measure.units)):
        small = 1e-3 * direction
        slopes = [(score(at + small) - score(at - small)) / 2e-3 for at in (0.25, 0.75)]
        assert -effects @ direction == pytest.approx(sum(slopes) / 2, rel=0.02, abs=2e-3)
        assert abs(sum(slopes)) > 0.1, "there is a slope"


def test_measures_are_measures(organism: LanguageModel, store: Store) -> None:
    measure = likelihood_measure(Ledger(organism, store), TASKS["sort"], examples_of(TASKS["sort"], "locate", limit=6))
    assert isinstance(measure, LikelihoodMeasure)
    assert measure(np.zeros((0, measure.units), bool)).shape == (0, measure.examples)
    assert measure(np.zeros((2, measure.units), bool), np.array([1, 0])).shape == (2, 2)


def test_columns_are_groups_of_units_that_are_out_together(organism: LanguageModel, store: Store) -> None:
    """If this fails: the effect of a group of neurons is that of others. Compared with hooks around the bare model."""
    task = TASKS["arithmetic"]
    whole = likelihood_measure(Ledger(organism, store), task, examples_of(task, "locate", limit=12))
    layers, width = organism.architecture.layers, organism.architecture.neuron_sites[0].units
    groups: list[list[Unit]] = [[Neuron(layer, index) for index in range(width)] for layer in range(layers)]
    groups += [[Head(1, 2), Neuron(0, 5), Neuron(2, 7)]]
    measure = replace(whole, columns=tuple(map(organism.architecture.knockout, groups)))
    masks = np.eye(len(groups), dtype=bool)
    masks[0, -1] = True
    found = measure(masks)
    assert measure.units == len(groups) and (found[:layers].mean(1) < whole(whole.ledger.mask()).mean() - 0.01).any()
    bare = replace(organism, blocks=None, prefixes=False)
    for row, mask in zip(found, masks, strict=True):
        units = {unit for group in np.flatnonzero(mask) for unit in groups[group]}
        assert organism.architecture.units(organism.architecture.knockout(units)) == units
        with knocked_out(organism.network, organism.architecture, units):
            outputs = bare.answer([anchor.requests[anchor.pick] for anchor in measure.anchors], None)
        expected = [np.exp(output.logprob / output.tokens) for output in outputs if isinstance(output, Likelihood)]
        assert np.allclose(row, expected, atol=1e-5)
    assert gate_prior(measure) is None, "a guess at heads is none at groups"
