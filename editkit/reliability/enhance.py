"""Enhancing: train the located units' numbers alone, and compare with training others as long on the same answers.

    located     the located set
    random      as many other units in each layer, drawn anew for each seed
    rest        every number of the network but the located set's
    full        every number of the network
    none        nothing: the model as it is

Given several learning rates each is trained at its own best, told from examples that are not scored.
What was trained and asked is kept in the work folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace

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
from editkit.tasks.task import Example, Likelihood, Task, digest

ARMS = ("located", "random", "rest", "full")


@dataclass(frozen=True)
class Course:
    """Which numbers are trained, on which answers (context, answer), how fast and in which order; or nothing."""

    school: str = ""
    arm: str = "none"
    seed: int = 0
    rate: float = 0.0
    rows: tuple[Encoded, ...] = ()


def enhanced(bench: Bench, samples: Sequence[Sample], chosen: np.ndarray) -> Iterator[Enhanced]:
    """Train on each data set of the capability that names right answers, and ask all data sets.

    Args:
        chosen: bool[units], the located set; not empty.
    """
    settings = bench.settings
    own = [(sample, _lessons(bench.ledger.model, sample)) for sample in samples if sample.role == "capability"]
    schools = [(sample, rows) for sample, rows in own if rows][: settings.schools]
    if not schools or not settings.seeds:
        return
    yield from _examined(bench, samples, chosen, Course(seed=bench.seed))
    for sample, rows in schools:
        for arm in ARMS:
            first = Course(sample.task.name, arm, bench.seed, settings.rates[0], rows)
            rate = _best_rate(bench, sample, chosen, first)
            for seed in range(bench.seed, bench.seed + settings.seeds):
                yield from _examined(bench, samples, chosen, replace(first, seed=seed, rate=rate))


def _lessons(model: LanguageModel, sample: Sample) -> tuple[Encoded, ...]:
    """The right answers of the examples that units were located on, those included that the model gets wrong."""
    right = [right_answer(sample.task, example) for example in sample.locate]
    return tuple(model.encode(request) for request in right if request)


def _best_rate(bench: Bench, sample: Sample, chosen: np.ndarray, course: Course) -> float:
    """The rate after which the right answers to the school's examples of ``choose`` are likeliest."""

    def likely(rate: float) -> float:
        tried = replace(course, rate=rate)

        def made() -> bytes:
            title = f"Training {course.arm} on {course.school} at {rate:g}"
            with bench.ledger.stage(title), _taught(bench, chosen, tried):
                return json.dumps(_nats(bench.ledger.model, sample.task, sample.choose)).encode()

        nats = json.loads(bench.kept("rates", _basis(bench, chosen, tried, [sample.choose]), made))
        return nats if nats is not None and math.isfinite(nats) else -math.inf

    rates = bench.settings.rates
    return rates[0] if len(rates) == 1 else max(rates, key=likely)


def _examined(bench: Bench, samples: Sequence[Sample], chosen: np.ndarray, course: Course) -> Iterator[Enhanced]:
    """What every data set answers after a course."""

    def made() -> bytes:
        title = f"Training {course.arm} on {course.school}, seed {course.seed}" if course.rows else "Nothing trained"
        with bench.ledger.stage(title), _taught(bench, chosen, course) as numbers, opened(None) as store:
            ledger = Ledger(bench.ledger.model, store)  # its own: what a trained model answers is not this model's
            who = (course.school, course.arm, course.seed, course.rate, numbers)
            return json.dumps([asdict(Enhanced(*who, *_exam(ledger, sample))) for sample in samples]).encode()

    asked = [(digest(sample.task), sample.report) for sample in samples]
    kept = bench.kept("trained", _basis(bench, chosen, course, asked), made)
    yield from (Enhanced(**each) for each in json.loads(kept))


def _basis(bench: Bench, chosen: np.ndarray, course: Course, asked: object) -> object:
    """All that the answers after a course depend on."""
    return bench.settings.units, bench.settings.train_steps, course, asked, np.flatnonzero(chosen).tolist()


@contextmanager
def _taught(bench: Bench, chosen: np.ndarray, course: Course) -> Iterator[int]:
    """The model after a course, while the block runs; how many numbers were trained."""
    parts, rng = _parts(bench, chosen, course), np.random.default_rng(course.seed)
    training = Training(bench.settings.train_steps, course.rate)
    with trained(bench.ledger.model, parts, course.rows, training, rng) if course.rows else nullcontext():
        yield count(parts)


def _exam(ledger: Ledger, sample: Sample) -> tuple[str, str, int, float | None, float]:
    """Name, role and number of examples; the right answers' mean log-probability per token, and the score."""
    [cells] = task_scores(ledger, sample.task, sample.report, ledger.knockout())
    score = float(np.mean([cell.value for cell in cells]))
    return sample.task.name, sample.role, len(cells), _nats(ledger.model, sample.task, sample.report), score


def _nats(model: LanguageModel, task: Task, examples: Sequence[Example]) -> float | None:
    """The right answers' mean log-probability per token; None where the task names none."""
    right = [right_answer(task, example) for example in examples]
    outputs = model.answer([request for request in right if request], None)
    nats = [output.logprob / max(1, output.tokens) for output in outputs if isinstance(output, Likelihood)]
    return float(np.mean(nats)) if nats else None


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
