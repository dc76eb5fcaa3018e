"""A report computed again from its examples, and every number in which the two differ.

differences(report, recomputed(report, examples, seed=0))
["rows.swear.after.mean: expected 0.02, found 1.0", "verdict.met: expected false, found true"]

What no example tells is taken from the report: the role and the chance level of a task, which model judged it, what was
demanded, what the random and the strong sets scored, and from how many heads the latter were drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from editkit.errors import IntegrityError
from editkit.evidence import paired_tests
from editkit.evidence.examples import NAME, Asked
from editkit.evidence.report import EvalReport, report
from editkit.evidence.row import Row, Sample, rows
from editkit.evidence.strong_heads import StrongHeads, strong_heads
from editkit.evidence.verdict import RandomHeads
from editkit.printable import printable
from editkit.tasks.task import Score

CLOSE = 1e-6
"""Numbers may differ by this share: another release of numpy or scipy adds in another order."""
COUNTED = ("n", "chance", "split", "role", "mean", "collapse", "kept", "clusters", "lost", "gained")
"""Parts of a row that are sums and counts, whatever the formulas of a release are."""


def recomputed(told: EvalReport, asked: Sequence[Asked], *, seed: int) -> EvalReport:
    """The report that the examples give.

    Args:
        seed: the run's.

    Raises:
        IntegrityError: the examples are those of other tasks than the rows.
    """
    sheets: dict[str, list[Asked]] = {}
    for each in asked:
        sheets.setdefault(each.task, []).append(each)
    names = [row.task for row in told.rows]
    if list(sheets) != names:
        raise IntegrityError(f"{NAME}: expected examples of {_listed(names)}, found {_listed(list(sheets))}.")

    def computed(second: Sequence[Sequence[Score]]) -> list[Row]:
        samples = [
            Sample(
                row.task,
                row.role,
                row.split,
                row.chance,
                [(each.before, other) for each, other in zip(sheets[row.task], scores, strict=True)],
                [each.cluster for each in sheets[row.task]],
                row.divided,
                row.judged_by,
            )
            for row, scores in zip(told.rows, second, strict=True)
        ]
        return rows(samples, margin=told.criteria.damage_each, seed=seed)

    after = computed([[each.after for each in sheet] for sheet in sheets.values()])
    noise = computed([[each.again for each in sheet] for sheet in sheets.values()])
    return report(after, criteria=told.criteria, null=_null(told, sheets), noise=noise, strong=_strong(told, sheets))


def _null(told: EvalReport, sheets: dict[str, list[Asked]]) -> RandomHeads | None:
    """The change by the chosen set on the examples of the random sets, and its rank among theirs."""
    null = told.random_heads
    if null is None:
        return None
    targets = [row.task for row in told.rows if row.role == "target"]
    name = null.task if null.task is not None or len(targets) != 1 else targets[0]
    delta, _ = _change(told, sheets, name, null.examples, "random")
    return replace(null, sets=len(null.deltas), delta=delta, p=paired_tests.random_set_p(delta, null.deltas))


def _strong(told: EvalReport, sheets: dict[str, list[Asked]]) -> StrongHeads | None:
    """The same beside the sets of strong heads."""
    strong = told.strong_heads
    if strong is None:
        return None
    delta, asked = _change(told, sheets, strong.task, strong.examples, "strong")
    return strong_heads(delta, strong.deltas, pool=strong.pool, examples=asked, task=strong.task)


def _change(
    told: EvalReport, sheets: dict[str, list[Asked]], task: str | None, examples: int | None, sets: str
) -> tuple[float, int]:
    """The change by the chosen set on the first examples of a target, and on how many."""
    if task not in [row.task for row in told.rows if row.role == "target"]:
        raise IntegrityError(f"editkit/report.json: the {sets} sets were asked {printable(str(task))}, no target.")
    few = sheets[task][:examples]
    delta = float(np.mean([each.after.value for each in few]) - np.mean([each.before.value for each in few]))
    return delta, len(few)


def differences(told: EvalReport, expected: EvalReport, *, same_formulas: bool = True) -> list[str]:
    """Every number of ``told`` that is not the expected one, in the order of the report.

    Args:
        same_formulas: False compares only what is ``COUNTED``.
    """
    stated, right = _numbers(told), _numbers(expected)
    return [
        f"{printable('.'.join(path))}: expected {_shown(right.get(path))}, found {_shown(stated.get(path))}"
        for path in right | stated
        if not _same(stated.get(path), right.get(path)) and (same_formulas or set(path[2:]) & {*COUNTED})
    ]


def _numbers(each: EvalReport) -> dict[tuple[str, ...], Any]:
    """What the report says, by where it says it; rows go by their names."""
    value = json.loads(each.to_json())
    for group in ("rows", "noise"):
        value[f"order of {group}"] = [row["task"] for row in value[group]]
        value[group] = {row["task"]: row for row in value[group]}
    return dict(_leaves(value))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(child, (*path, str(key)))
    else:
        yield path, value


def _same(one: Any, other: Any) -> bool:
    floats = isinstance(one, float) and isinstance(other, float)
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-9) if floats else one == other


def _shown(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))


def _listed(names: Sequence[str]) -> str:
    return printable(", ".join(names)) or "none"
