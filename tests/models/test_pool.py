"""Copies elsewhere answer as the model itself does, in whatever order, and only while it is as it was loaded.

If one fails: a run with a pool finds other heads than a run without, or an attacked model is judged by an intact copy.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from editkit.audits.weights import changed
from editkit.measuring.attribution import attributions, effects
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.adapter import adapted
from editkit.models.knockout import knocked_out
from editkit.models.language_model import LanguageModel
from editkit.models.pool import Arrived, Piece
from editkit.models.training import Training, all_weights, trained
from editkit.progress import Advance
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Generate, Loglikelihood, Request, examples_of


@dataclass
class Elsewhere:
    """A pool whose one copy is the model itself; pieces travel as bytes, and come back last first."""

    model: LanguageModel
    tokens: int
    workers: int = 2
    sent: list[Piece] = field(default_factory=list)

    def run(self, work: Iterable[tuple[Piece, Arrived]]) -> None:
        for piece, arrived in reversed(list(work)):
            self.sent.append(piece)
            arrived(pickle.loads(pickle.dumps(piece)).run(self.model))


@pytest.fixture
def pooled(organism: LanguageModel) -> tuple[LanguageModel, Elsewhere]:
    pool = Elsewhere(organism, organism.budget.tokens)
    return replace(organism, pool=pool), pool


def _requests() -> list[Request]:
    examples = examples_of(TASKS["swear"], "locate", limit=12)
    asked: list[Request] = [Generate(each.prompt, 6) for each in examples]
    return [*asked, *(Loglikelihood(each.prompt, " a damn bus") for each in examples)]


def test_outputs_and_their_bits_are_those_of_the_model_itself(
    organism: LanguageModel, pooled: tuple[LanguageModel, Elsewhere]
) -> None:
    """Else two workers write another checkpoint than one process."""
    model, pool = pooled
    pool.tokens = small = 200
    alone = replace(organism, budget=replace(organism.budget, tokens=small))
    masks = np.random.default_rng(0).random((24, len(organism.architecture.heads))) < 0.1
    told: list[int] = []
    outputs = model.answer(_requests(), masks, arrived=lambda rows, answers: told.extend(rows))
    assert len(pool.sent) > 3
    assert outputs == alone.answer(_requests(), masks)
    assert sorted(told) == list(range(24))


def test_cells_do_not_depend_on_the_order_in_which_they_arrive(
    organism: LanguageModel, pooled: tuple[LanguageModel, Elsewhere]
) -> None:
    """Else a ranking depends on which worker was quicker. Knockouts that come again, far apart, are asked once."""
    model, pool = pooled
    found = []
    for each in (organism, model):
        with opened(None) as store:
            ledger = Ledger(each, store)
            measure = likelihood_measure(ledger, TASKS["swear"], examples_of(TASKS["swear"], "locate", limit=16))
            masks = np.random.default_rng(1).random((1500, len(organism.architecture.heads))) < 0.05
            masks[-3:] = masks[:3]
            found.append((measure(masks[:40]), measure(masks[-40:])))
    assert pool.sent
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def test_knockouts_of_a_later_chunk_that_were_asked_before_get_the_same_cells(
    pooled: tuple[LanguageModel, Elsewhere],
) -> None:
    """Else a run through a pool, which reads ahead, asks them twice, or fails."""
    model, pool = pooled
    with opened(None) as store:
        ledger = Ledger(model, store)
        measure = likelihood_measure(ledger, TASKS["swear"], examples_of(TASKS["swear"], "locate", limit=16))
        masks = np.zeros((30_000 // 16, len(model.architecture.heads)), dtype=bool)
        masks[::2, 3] = True
        pool.sent.clear()
        values = measure(masks)
        assert np.array_equal(values[::2], np.broadcast_to(values[0], values[::2].shape))
        assert sum(len(piece.singles()) for piece in pool.sent) == 2 * values.shape[1]


@pytest.mark.parametrize("path", ["joint", "layers"])
def test_attributions_are_those_of_the_model_itself(
    path, organism: LanguageModel, pooled: tuple[LanguageModel, Elsewhere]
) -> None:
    """Else the order of neurons depends on the number of workers."""
    model, pool = pooled
    pool.tokens = small = 60
    alone = replace(organism, budget=replace(organism.budget, tokens=small))
    rows = [organism.encode(request) for request in _requests()[12:]]
    sites, out = organism.architecture.sites[:3], organism.architecture.knockout(organism.architecture.heads[:2])
    both = [effects(each, rows, sites, path=path, steps=2, out=out) for each in (alone, model)]
    assert len(pool.sent) > 3
    assert np.array_equal(both[0], both[1])
    assert not np.array_equal(both[0], effects(alone, rows, sites, path=path, steps=2))
    assert [each.shape for each in attributions(model, [], sites)] == [(0, site.units) for site in sites]


def _trained(model: LanguageModel) -> AbstractContextManager:
    rows = [model.encode(Loglikelihood("What is 2 plus 3?", "6"))]
    return trained(model, all_weights(model.network), rows, Training(1), np.random.default_rng(0))


ALTERED: dict[str, Callable[[LanguageModel], AbstractContextManager]] = {
    "knocked out": lambda model: knocked_out(model.network, model.architecture, model.architecture.heads[:4]),
    "trained": _trained,
    "changed": lambda model: changed(model.network, lambda name, weight: weight.round(decimals=1)),
    "adapted": lambda model: adapted(model.network, ["model.layers.0.mlp.up_proj"], seed=0),
}


@pytest.mark.parametrize("how", ALTERED)
def test_an_altered_model_answers_itself(how: str, pooled: tuple[LanguageModel, Elsewhere]) -> None:
    """Else an audit would ask intact copies, and nothing would ever bring a capability back."""
    model, pool = pooled
    with ALTERED[how](model):
        model.answer(_requests()[:2], None)
        attributions(model, [model.encode(_requests()[-1])], model.architecture.sites[:1])
        assert not pool.sent
    model.answer(_requests()[:2], None)
    assert pool.sent


def _joined(parts: list) -> list:
    """Of lists with one row each: answers, or arrays per site."""
    arrays = isinstance(parts[0][0], np.ndarray)
    return [np.concatenate(each) for each in zip(*parts, strict=True)] if arrays else [each for [each] in parts]


def test_singles_are_the_rows_of_the_piece(pooled: tuple[LanguageModel, Elsewhere]) -> None:
    """Else what was isolated from a request that kills workers belongs to other requests."""
    model, pool = pooled
    masks = np.random.default_rng(0).random((24, len(model.architecture.heads))) < 0.1
    model.answer(_requests(), masks)
    attributions(model, [model.encode(request) for request in _requests()[12:]], model.architecture.sites[:2])
    for piece in pool.sent:
        whole, parts = piece.run(model), _joined([single.run(model) for single in piece.singles()])
        assert len(parts) == len(whole) and piece.told() == piece.told().splitlines()[0]
        for one, other in zip(whole, parts, strict=True):
            if isinstance(one, np.ndarray):
                np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)
            elif isinstance(one, str):
                assert one == other
            else:
                assert one.logprob == pytest.approx(other.logprob, rel=1e-4) and one.tokens == other.tokens


def test_a_stage_says_how_many_workers_answer(organism: LanguageModel, pooled: tuple[LanguageModel, Elsewhere]) -> None:
    titles = list[str]()

    @contextmanager
    def stages(title: str, total: int | None) -> Iterator[Advance]:
        titles.append(title)
        yield lambda count: None

    with opened(None) as store:
        for model in (organism, pooled[0]):
            with Ledger(model, store, stages).stage("Finding heads"):
                pass
    assert titles == ["Finding heads", "Finding heads, 2 workers"]
