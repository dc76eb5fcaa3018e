"""Attributions of every data set's halves: which units the model's right answers rest on.

    [Located(Sample(CAPITALS, ...), counts=(9, 13), halves=float32[2, units], contents=({"france", ...}, ...)), ...]

The examples of a data set are halved by what they are about, so that halves share no content. What was attributed is
kept in the work folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence.reliability import DataSet
from editkit.measuring.attribution import effects
from editkit.measuring.likelihood import Anchor, likelihood_measure
from editkit.reliability.bench import Bench
from editkit.reliability.samples import Sample, content, half


@dataclass(frozen=True)
class Located:
    """One data set: the mean attribution of each unit over each half, and what each half is about."""

    sample: Sample
    counts: tuple[int, int]
    halves: np.ndarray
    contents: tuple[frozenset[str], frozenset[str]]

    @property
    def effect(self) -> np.ndarray:
        """float[units]: the mean over all examples."""
        return np.average(self.halves, axis=0, weights=self.counts)

    def summary(self, located: np.ndarray) -> DataSet:
        """``located``: bool[units], what it locates by itself."""
        own = self.sample
        asked, right = len(own.locate), sum(self.counts)
        return DataSet(own.task.name, own.role, asked, right, int(located.sum()), len(own.report), own.fresh)


def locate(bench: Bench, samples: Sequence[Sample]) -> tuple[list[Located], dict[str, str]]:
    """The attributions of every data set; and the data sets that have none, each with its reason.

    Raises:
        EditkitError: a data set of the capability is one of those.
    """
    located, left_out = [], {}
    for sample in samples:
        try:
            located.append(_halved(bench, sample))
        except EditkitError as error:
            if sample.role == "capability":
                raise
            left_out[sample.task.name] = str(error)
    return located, left_out


def _halved(bench: Bench, sample: Sample) -> Located:
    name = sample.task.name
    with bench.ledger.stage(f"Answers to {name}", len(sample.locate)) as staged:
        anchors = likelihood_measure(staged, sample.task, sample.locate).anchors
    groups = [[anchor for anchor in anchors if half(content(anchor.example)) == which] for which in (0, 1)]
    if min(map(len, groups)) < 2:
        raise EditkitError(
            f"{name}: of {len(anchors)} right answers one half has {min(map(len, groups))}, and at least 2 are needed "
            "to compare halves. Ask more examples (--locate)."
        )
    effects = [_effect(bench, group, f"{name}, half {n}") for n, group in enumerate(groups, 1)]
    first, second = (frozenset(content(anchor.example) for anchor in group) for group in groups)
    return Located(sample, (len(groups[0]), len(groups[1])), np.stack(effects), (first, second))


def _effect(bench: Bench, anchors: Sequence[Anchor], title: str) -> np.ndarray:
    """float32[units]: the mean attribution."""
    model, settings = bench.ledger.model, bench.settings
    rows = [model.encode(anchor.requests[anchor.pick]) for anchor in anchors]
    passes = len(bench.sites) if settings.path == "layers" else 1

    def made() -> bytes:
        with bench.ledger.stage(f"Attributions of {title}", passes * len(rows)) as staged:
            how = {"path": settings.path, "steps": settings.steps, "probability": True, "advance": staged.advance}
            return effects(model, rows, bench.sites, **how).astype("<f4").tobytes()

    basis = (settings.units, settings.path, settings.steps, rows)
    return np.frombuffer(bench.kept("attributions", basis, made), "<f4")
