"""Enhancing: train the located units' numbers alone, and compare with training others as long on the same answers.

    located     the located set
    random      as many other units in each layer, drawn anew for each seed
    rest        every number of the network but the located set's
    full        every number of the network
    none        nothing: the model as it is

What was trained and asked is kept in the work folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import numpy as np

from editkit.evidence.reliability import Enhanced
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.right_answers import right_answer
from editkit.measuring.store import opened
from editkit.models.encoding import Encoded
from editkit.models.language_model import LanguageModel
from editkit.models.training import Parts, Training, all_but, all_weights, count, trained, weights_of
from editkit.reliability.bench import Bench
from editkit.reliability.samples import Sample
from editkit.removal.random_sets import random_sets
from editkit.tasks.task import Likelihood, digest

ARMS = ("located", "random", "rest", "full")


@dataclass(frozen=True)
class Course:
    """Which numbers are trained, on which answers (context, answer), in which order; without answers: none."""

    school: str = ""
    arm: str = "none"
    seed: int = 0
    rows: tuple[Encoded, ...] = ()


def enhanced(bench: Bench, samples: Sequence[Sample], chosen: np.ndarray) -> Iterator[Enhanced]:
    """Train on each data set of the capability that names right answers, and ask all data sets.

    Args:
        chosen: bool[units], the located set; not empty.
    """
    for course in _courses(bench, samples):
        basis = (bench.settings.units, bench.settings.train_steps, bench.settings.rate, course)
        asked = [(digest(sample.task), [example.id for example in sample.report]) for sample in samples]

        def made(course: Course = course) -> bytes:
            title = (
                f"Training {course.arm} on {course.school}, seed {course.seed}" if course.rows else "Nothing trained"
            )
            with bench.ledger.stage(title):
                return json.dumps([asdict(each) for each in _taught(bench, samples, chosen, course)]).encode()

        data = bench.kept("trained", (basis, asked, np.flatnonzero(chosen).tolist()), made)
        yield from (Enhanced(**each) for each in json.loads(data))


def _courses(bench: Bench, samples: Sequence[Sample]) -> list[Course]:
    settings = bench.settings
    own = [sample for sample in samples if sample.role == "capability"]
    schools = [(sample.task.name, rows) for sample in own if (rows := _lessons(bench.ledger.model, sample))]
    seeds = range(bench.seed, bench.seed + settings.seeds)
    grid = [
        Course(name, arm, seed, rows) for name, rows in schools[: settings.schools] for seed in seeds for arm in ARMS
    ]
    return [Course(seed=bench.seed), *grid] if grid else []


def _lessons(model: LanguageModel, sample: Sample) -> tuple[Encoded, ...]:
    """The right answers of the examples that units were located on, those included that the model gets wrong."""
    right = [right_answer(sample.task, example) for example in sample.locate]
    return tuple(model.encode(request) for request in right if request)


def _taught(bench: Bench, samples: Sequence[Sample], chosen: np.ndarray, course: Course) -> list[Enhanced]:
    model, training = bench.ledger.model, Training(bench.settings.train_steps, bench.settings.rate)
    parts, rng = _parts(bench, chosen, course), np.random.default_rng(course.seed)
    learnt = trained(model, parts, course.rows, training, rng) if course.rows else nullcontext()
    who = (course.school, course.arm, course.seed, count(parts))
    with learnt, opened(None) as store:
        ledger = Ledger(model, store)  # a store of its own: what a trained model answers is not this model's
        return [Enhanced(*who, *_exam(ledger, sample)) for sample in samples]


def _exam(ledger: Ledger, sample: Sample) -> tuple[str, str, int, float | None, float]:
    """Name, role and number of examples; the right answers' mean log-probability per token, and the score."""
    [cells] = task_scores(ledger, sample.task, sample.report, ledger.knockout())
    right = [right_answer(sample.task, example) for example in sample.report]
    outputs = ledger.model.answer([request for request in right if request], None)
    nats = [output.logprob / max(1, output.tokens) for output in outputs if isinstance(output, Likelihood)]
    score = float(np.mean([cell.value for cell in cells]))
    return sample.task.name, sample.role, len(cells), float(np.mean(nats)) if nats else None, score


def _parts(bench: Bench, chosen: np.ndarray, course: Course) -> Parts:
    network, architecture = bench.ledger.model.network, bench.ledger.model.architecture
    units = bench.knockout(chosen)
    if course.arm == "none":
        return {}
    if course.arm == "full":
        return all_weights(network)
    if course.arm == "random":
        [units] = random_sets(architecture, units, 1, np.random.default_rng(course.seed))
    own = weights_of(network, architecture, units)
    return all_but(network, own) if course.arm == "rest" else own
