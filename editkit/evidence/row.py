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
from editkit.evidence import intervals, paired_tests, samples
from editkit.evidence.intervals import Interval
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
        p_equivalent: TOST at the damage budget of each task; small = shown to be unchanged.
        detectable: the smallest change this many examples would have shown (80 % power); None where they lie in too
            few clusters to show any.
        clusters: how many clusters the examples lie in, which intervals and p are computed over; None = not known.
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


def row(
    task: str,
    role: Role,
    *,
    split: str,
    chance: float,
    pairs: Sequence[tuple[Score, Score]],
    rng: np.random.Generator,
    margin: float,
    clusters: Sequence[str] | None = None,
) -> Row:
    """Compare one task's scores of two models, or of one model twice (the A/A noise floor).

    Args:
        pairs: each example's score before and after.
        clusters: each example's ``cluster``; an empty name stands alone.
        margin: how much change counts as none, in score points: the recipe's ``damage_each``.
    """
    first, second = [before.value for before, _ in pairs], [after.value for _, after in pairs]
    labels = None if clusters is None else samples.labels(clusters)
    few = labels is not None and len(set(labels)) < paired_tests.FEWEST_CLUSTERS
    try:
        return Row(
            task=task,
            role=role,
            split=split,
            n=len(first),
            chance=chance,
            before=intervals.mean_interval(first, rng=rng, clusters=labels),
            after=intervals.mean_interval(second, rng=rng, clusters=labels),
            delta=intervals.change_interval(first, second, rng=rng, clusters=labels),
            p=paired_tests.change_p(first, second, rng=rng, clusters=labels),
            collapse_before=float(np.mean([not before.valid for before, _ in pairs])),
            collapse_after=float(np.mean([not after.valid for _, after in pairs])),
            kept=float(np.mean([(new if new.valid else old).value for old, new in pairs])),
            p_equivalent=paired_tests.equivalence_p(first, second, margin=margin, clusters=labels),
            detectable=None if few else paired_tests.detectable(first, second, clusters=labels),
            clusters=None if labels is None else len(set(labels)),
        )
    except EditkitError as error:
        raise EditkitError(f"Task {task!r}, split {split!r}: {error}") from error


def to_json(row: Row) -> dict[str, Any]:
    """The form in files; numbers that are not finite become null."""
    value = asdict(row)
    value["collapse"] = {"before": value.pop("collapse_before"), "after": value.pop("collapse_after")}
    return {key: None if isinstance(part, float) and not math.isfinite(part) else part for key, part in value.items()}


def from_json(value: dict[str, Any]) -> Row:
    """Back from the form in files. Raises KeyError or TypeError if it is none."""
    fields: dict[str, Any] = dict(value)
    collapse = fields.pop("collapse", {"before": 0.0, "after": 0.0})
    fields |= {"collapse_before": collapse["before"], "collapse_after": collapse["after"]}
    fields |= {name: Interval(**fields[name]) for name in ("before", "after", "delta")}
    return Row(**fields)
