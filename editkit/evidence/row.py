"""One task before and after on the same examples: a row of every report.

{"task": "swear", "role": "target", "split": "report", "n": 150, "chance": 0.0,
 "before": {"mean": 0.99, "low": 0.97, "high": 1.0}, "after": {"mean": 0.02, ...},
 "delta": {"mean": -0.97, ...}, "p": 1e-30, "collapse": {"before": 0.0, "after": 0.0}, ...}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence import intervals, margin_test, paired_tests, samples
from editkit.evidence.intervals import Interval
from editkit.evidence.margin_test import Flips
from editkit.evidence.share_left import share_left
from editkit.evidence.typed import typed
from editkit.tasks.task import Score

Role = Literal["target", "retain", "transfer", "also"]
"""``transfer`` is another format of the target, which the search never saw; ``also`` is anything else that a study
measures. Neither is part of the verdict."""


@dataclass(frozen=True)
class Row:
    """One task, before and after, on the same examples.

    Args:
        kept: the mean after the edit if every answer that collapsed had kept its old score: what the goal is judged
            by. Equal to ``after.mean`` where nothing collapsed.
        p_holm: ``p`` corrected over all rows of the report; None until the row is in one.
        p_equivalent: exact TOST at the damage budget of each task; small = shown to be unchanged.
        detectable: the loss that four of five samples like this would have shown, all rows of the report tested
            together; None until the row is in one, and where no loss would have shown.
        clusters: how many clusters the examples lie in, which all is computed over; None = each stands alone.
        lost, gained: how many examples' worth of score went down, and up. With ``n`` and ``clusters`` they give
            ``p_kept``, ``p_equivalent`` and ``detectable`` again.
        p_kept: exact p of "the damage budget or more is lost"; small = shown to be kept.
        divided: other examples of these clusters are in other splits, so they may be what the units were chosen by.
            True of all reports of an older editkit.
        judged_by: the model that scored the answers, with its version; empty: rules or code did.
        left, left_at_most: the share of the score above chance that is left, every answer that collapsed at its old
            score, and its upper 95 % bound; None where there was none.
    """

    task: str
    role: Role
    split: str
    n: int
    chance: float
    before: Interval
    after: Interval
    delta: Interval
    p: float
    collapse_before: float
    collapse_after: float
    kept: float | None = None
    p_holm: float | None = None
    p_equivalent: float | None = None
    detectable: float | None = None
    clusters: int | None = None
    lost: float | None = None
    gained: float | None = None
    p_kept: float | None = None
    left: float | None = None
    left_at_most: float | None = None
    divided: bool = True
    judged_by: str = ""

    @property
    def few(self) -> bool:
        """Whether the examples lie in too few clusters to say anything of others."""
        return self.clusters is not None and self.clusters < paired_tests.FEWEST_CLUSTERS

    @property
    def reused(self) -> bool:
        """Whether the examples are new, but not what they are about: template, fact or word."""
        return self.divided and self.clusters not in (None, self.n)

    @property
    def flips(self) -> Flips | None:
        """What was lost and gained, in clusters where there are any; None: not known."""
        if self.lost is None or self.gained is None:
            return None
        return margin_test.flips(self.lost, self.gained, self.n, self.clusters)


@dataclass(frozen=True)
class Sample:
    """One task's scores of the same examples twice: what a row is computed from.

    Args:
        pairs: each example's score before and after.
        clusters: each example's ``cluster``; an empty name stands alone.
        divided: other examples of these clusters are in other splits.
        judged_by: the model that scored the answers, if one did.
    """

    task: str
    role: Role
    split: str
    chance: float
    pairs: Sequence[tuple[Score, Score]]
    clusters: Sequence[str] = ()
    divided: bool = True
    judged_by: str = ""


def rows(samples: Sequence[Sample], *, margin: float, seed: int) -> list[Row]:
    """A row for each sample. Deterministic in ``seed``, so that whoever has the scores computes the same rows."""
    rng = np.random.default_rng(seed)
    return [row(sample, rng=rng, margin=margin) for sample in samples]


def row(sample: Sample, *, rng: np.random.Generator, margin: float) -> Row:
    """Compare one task's scores of two models, or of one model twice (the A/A noise floor).

    Args:
        margin: how much change counts as none, in score points: the recipe's ``damage_each``.
    """
    pairs, labels = sample.pairs, samples.labels(sample.clusters)
    first, second = [before.value for before, _ in pairs], [after.value for _, after in pairs]
    groups = None if labels is None else len(set(labels))
    try:
        last = [(new if new.valid else old).value for old, new in pairs]
        left = share_left(first, last, chance=sample.chance, clusters=labels)
        change = np.subtract(second, first)
        lost, gained = float(-change.clip(max=0).sum()), float(change.clip(min=0).sum())
        flips = margin_test.flips(lost, gained, len(first), groups)
        return Row(
            task=sample.task,
            role=sample.role,
            split=sample.split,
            n=len(first),
            chance=sample.chance,
            before=intervals.mean_interval(first, clusters=labels),
            after=intervals.mean_interval(second, clusters=labels),
            delta=intervals.change_interval(first, second, clusters=labels),
            p=paired_tests.change_p(first, second, rng=rng, clusters=labels),
            collapse_before=float(np.mean([not before.valid for before, _ in pairs])),
            collapse_after=float(np.mean([not after.valid for _, after in pairs])),
            kept=float(np.mean(last)),
            p_equivalent=margin_test.equivalence(flips, margin),
            clusters=groups,
            lost=lost,
            gained=gained,
            p_kept=margin_test.below_margin(flips, margin),
            left=None if left is None else left.share,
            left_at_most=None if left is None else left.at_most,
            divided=sample.divided,
            judged_by=sample.judged_by,
        )
    except EditkitError as error:
        raise EditkitError(f"Task {sample.task!r}, split {sample.split!r}: {error}") from error


def to_json(row: Row) -> dict[str, Any]:
    """The form in files; numbers that are not finite become null."""
    value = asdict(row)
    if not row.judged_by:
        del value["judged_by"]
    value["collapse"] = {"before": value.pop("collapse_before"), "after": value.pop("collapse_after")}
    return {key: None if isinstance(each, float) and not math.isfinite(each) else each for key, each in value.items()}


def from_json(value: dict[str, Any]) -> Row:
    """Back from the form in files. Raises KeyError or TypeError if it is none."""
    fields: dict[str, Any] = dict(value)
    collapse = fields.pop("collapse", {"before": 0.0, "after": 0.0})
    fields |= {"collapse_before": collapse["before"], "collapse_after": collapse["after"]}
    return typed(Row, fields)
