"""Erasing: every data set without the located units, against random units of the same layers.

Everything goes through the ledger, so what was measured is not measured again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.errors import EditkitError
from editkit.evidence.paired_tests import random_set_p
from editkit.evidence.reliability import Erased
from editkit.measuring.answers import task_scores
from editkit.measuring.likelihood import LikelihoodMeasure, likelihood_measure
from editkit.measuring.store import Cell
from editkit.reliability.bench import Bench
from editkit.reliability.samples import Sample
from editkit.removal.random_sets import random_sets


def erased(bench: Bench, samples: Sequence[Sample], located: Mapping[str, np.ndarray]) -> Iterator[Erased]:
    """Each located set, bool[units], out of each data set. An empty set is left out."""
    for number, (name, chosen) in enumerate(located.items()):
        if chosen.any():
            rng, units = np.random.default_rng([bench.seed, number]), bench.knockout(chosen)
            random = random_sets(bench.ledger.model.architecture, units, bench.settings.draws, rng)
            out = [NOTHING, units, *random]
            yield from (_erased(bench, sample, name, out) for sample in samples)


def _erased(bench: Bench, sample: Sample, name: str, out: Sequence[Knockout]) -> Erased:
    """``out``: nothing, the located set, then the random ones."""
    task, asked = sample.task, sample.report
    few = asked[: bench.settings.draw_examples] if sample.role == "capability" else ()
    with bench.ledger.stage(f"{task.name} without {name}", len(asked) * 2 + len(few) * (len(out) - 2)) as staged:
        whole = task_scores(staged, task, asked, out[:2])
        draws = [_mean(row) for row in task_scores(staged, task, few, out[2:])] if few else []
    likely = _likelihoods(bench, sample, out)
    drawn = [_mean(row[: len(few)]) for row in whole] if few else []
    return Erased(
        located=name,
        task=task.name,
        role=sample.role,
        examples=len(asked),
        likelihood=likely[:2],
        random_likelihood=likely[2:],
        p_likelihood=random_set_p(likely[1], likely[2:]) if likely else None,
        score=(_mean(whole[0]), _mean(whole[1])),
        collapse=sum(not cell.valid for cell in whole[1]) / len(asked),
        few=len(few),
        few_score=tuple(drawn),
        random_score=tuple(draws),
        p_score=random_set_p(drawn[1], draws) if few else None,
    )


def _likelihoods(bench: Bench, sample: Sample, out: Sequence[Knockout]) -> tuple[float, ...]:
    """The mean likelihood of the model's own right answers under each knockout; none where it has too few."""
    try:
        anchors = likelihood_measure(bench.ledger, sample.task, sample.report).anchors
    except EditkitError:
        return ()
    with bench.ledger.stage(f"Likelihoods of {sample.task.name}", len(anchors) * len(out)) as staged:
        measure = LikelihoodMeasure(staged, sample.task, anchors, tuple(out))
        return tuple(float(row.mean()) for row in measure(np.eye(len(out), dtype=bool)))


def _mean(cells: Sequence[Cell]) -> float:
    return float(np.mean([cell.value for cell in cells]))
