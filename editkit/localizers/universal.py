"""Universal heads: heads whose knockout breaks many unrelated tasks, so that a mask with one of them tells nothing.

    universal({"recall": ..., "facts": ..., "letters": ..., "story": ...}, {"recall": "generation", ...}, columns, rng)
    -> Universals(columns=[31, 61], p=[2e-4, 2e-4], drops=[[.71, .52, .48, .66], ...], failing=[{"repetition": .9}, ..])

The rule (partial conjunction over m >= 4 tasks, r = ceil(.75 m) of them):

    p = (m - r + 1) * (the r-th smallest p over tasks), Benjamini-Hochberg over candidates at .05, and
    the r-th strongest drop exceeds .1 and five times what that statistic is for the median head

The second line is on the r-th strongest drop, not on the mean: a head that is everything to two tasks and nothing to
the others is shared, not universal.

A *format head* (``format_heads``) is told apart where a task asks by letter what another asks as text.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from editkit.errors import EditkitError
from editkit.localizers.flip_test import uncorrected
from editkit.localizers.format_heads import Pairs, carry_format, only_letters
from editkit.localizers.knockouts import Search
from editkit.localizers.protocol import Measure
from editkit.units import Unit

TASKS = 4
"""Below this many tasks "many unrelated tasks" cannot be told from "two of them"."""
SHARE = 0.75
LEAST_DROP = 0.1
TIMES_MEDIAN = 5.0
RATE = 0.05
GROUP = 8
SCREENING, DECIDING = 8, 80
"""Examples over all tasks: to choose candidates with, and to judge them by."""
LETTERS = 4
"""Examples that screen a letter task and its text: one may be right by the letter that a broken model always says."""

Failures = Callable[[Sequence[int]], Sequence[Mapping[str, float]]]
"""Columns -> for each, the share of answers that fail in each mode: ``{"repetition": .9, "collapse": .1}``."""


@dataclass(frozen=True)
class Universals:
    """Heads to set aside before any search. Arrays share one length; ``drops`` is float[heads, tasks], + = worse.

    ``failing`` says how each model without the head fails, as shares of its answers; empty where it was not asked.
    ``format_heads`` carry an answer format (letter choices break, the same as text does not): not universal, and no
    knowledge either; ``format_drops`` is float[format heads, tasks].
    """

    columns: np.ndarray
    p: np.ndarray
    drops: np.ndarray
    tasks: tuple[str, ...]
    failing: tuple[Mapping[str, float], ...]
    format_heads: np.ndarray
    format_drops: np.ndarray
    evaluations: float
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def modes(self) -> tuple[str | None, ...]:
        """The way in which most answers fail, per head; None where it was not asked."""
        return tuple(max(shares, key=lambda mode: shares[mode]) if shares else None for shares in self.failing)

    def to_dict(self, heads: Sequence[Unit]) -> dict[str, Any]:
        """The JSON form; ``heads`` names the columns: ``architecture.heads``."""
        rows = zip(self.columns, self.p, self.modes, self.failing, self.drops, strict=True)
        return {
            "universal": [
                {"unit": str(heads[int(column)]), "p": float(p), "fails_by": mode, "failing": dict(shares)}
                | {"drops": self._named(drops)}
                for column, p, mode, shares, drops in rows
            ],
            "format_heads": [
                {"unit": str(heads[int(column)]), "drops": self._named(drops)}
                for column, drops in zip(self.format_heads, self.format_drops, strict=True)
            ],
            "evaluations": float(self.evaluations),
            "diagnostics": dict(self.diagnostics),
        }

    def _named(self, drops: np.ndarray) -> dict[str, float]:
        return {task: float(drop) for task, drop in zip(self.tasks, drops, strict=True)}


def universal(
    measures: Mapping[str, Measure],
    formats: Mapping[str, str],
    columns: np.ndarray,
    rng: np.random.Generator,
    *,
    failures: Failures | None = None,
    same: Mapping[str, str] | None = None,
    examples: int | None = None,
    per: int | None = None,
) -> Universals:
    """Find the universal heads among ``columns``.

    Args:
        measures: at least four tasks, of at least two formats; none of them the capability to remove. With fewer the
            answer is empty, ``diagnostics["untested"]`` says why, and a warning too.
        formats: the format of each task (``generation``, ``choice-letter``, ``choice-text``, ``likelihood``).
        failures: how the model fails without a head; asked for the universal heads only.
        same: which task asks as text what a letter task asks by letter (``same_questions``); None: format heads are
            not looked for, which saves a few passes.
        examples: how many examples of each task decide, beside the one or two that screen; None = 80 over all tasks,
            but 12 to 20 of each. Below 8, few heads can pass the test.
        per: how many examples one evaluation stands for (the target's search set); None = the largest set given.
    """
    reason = _too_few(measures, formats)
    if reason:
        return _untested(measures, reason)
    from scipy.stats import false_discovery_control

    tasks = tuple(measures)
    pairs = [(tasks.index(letter), tasks.index(text)) for letter, text in (same or {}).items()]
    screening = np.full(len(tasks), max(1, round(SCREENING / len(tasks))))
    screening[np.unique(pairs).astype(int)] = LETTERS
    per = max(measure.examples for measure in measures.values()) if per is None else per
    deciding = int(np.clip(DECIDING / len(tasks), 12, 20)) if examples is None else examples
    searches = [
        Search.of(_Few(measures[task], few + deciding), columns) for task, few in zip(tasks, screening, strict=True)
    ]
    sequences = [
        np.split(rng.permutation(search.examples), [few]) for search, few in zip(searches, screening, strict=True)
    ]
    candidates, typical = _candidates(searches, pairs, [first for first, _ in sequences], rng)
    drops, p = _verify(searches, candidates, pairs, [fresh for _, fresh in sequences], rng)
    needed = _needed(len(tasks))
    broad = np.sort(drops, axis=1)[:, -needed]
    conjunction = np.minimum((len(tasks) - needed + 1) * np.sort(p, axis=1)[:, needed - 1], 1.0)
    # The candidates are all the hypotheses there are: fresh examples judge them.
    significant = false_discovery_control(conjunction) <= RATE
    chosen = significant & (broad > max(LEAST_DROP, TIMES_MEDIAN * typical))
    of_format = ~chosen & carry_format(drops, p, pairs, [formats[task] == "choice-letter" for task in tasks])
    order = np.flatnonzero(chosen)[np.argsort(-broad[chosen], kind="stable")]
    heads = candidates[order]
    named = np.asarray(columns)[heads]
    return Universals(
        columns=named,
        p=conjunction[order],
        drops=drops[order],
        tasks=tasks,
        failing=tuple(failures(named.tolist())) if failures and len(named) else ({},) * len(named),
        format_heads=np.asarray(columns)[candidates[of_format]],
        format_drops=drops[of_format],
        evaluations=sum(search.evaluations * search.examples for search in searches) / per,
        diagnostics={
            "required_tasks": needed,
            "median_drop": typical,
            "candidates": len(candidates),
            "examples": [len(fresh) for _, fresh in sequences],
            "format_tested": bool(pairs),
        },
    )


class _Few:
    """The first examples of a measure, as a measure."""

    def __init__(self, measure: Measure, examples: int) -> None:
        self.measure, self.units = measure, measure.units
        self.examples = min(examples, measure.examples)

    def __call__(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        return self.measure(masks, np.arange(self.examples) if examples is None else examples)


def _candidates(
    searches: list[Search], pairs: Pairs, few: list[np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Groups of heads on few examples a task, the members of the worst groups alone, and of those the worst.

    Returns positions, and the drop of the median head: per head, the r-th strongest over tasks.
    """
    heads = searches[0].candidates
    size = int(np.clip(heads // 16, 1, GROUP))
    groups = np.array_split(rng.permutation(heads), -(-heads // size))
    kept = max(6, len(groups) // 16)
    together = _drops(searches, searches[0].masks(groups), few)
    suspects = np.concatenate([groups[index] for index in _worst(together, pairs, kept)])
    alone = _drops(searches, np.eye(heads, dtype=bool)[suspects], few)
    typical = float(np.median(np.abs(np.sort(alone, axis=1)[:, -_needed(len(searches))])))
    return suspects[_worst(alone, pairs, max(6, heads // 64))], typical


def _drops(searches: list[Search], masks: np.ndarray, examples: list[np.ndarray]) -> np.ndarray:
    """float[masks, tasks], positive = worse."""
    each = zip(searches, examples, strict=True)
    return np.stack([-search.differences(masks, chosen).mean(1) for search, chosen in each], axis=1)


def _worst(drops: np.ndarray, pairs: Pairs, count: int) -> np.ndarray:
    """The rows that break most tasks; and those that break letters, where the same questions are asked as text too."""
    broad = np.sort(drops, axis=1)[:, -_needed(drops.shape[1])]
    chosen = np.argsort(-broad, kind="stable")[:count]
    if pairs:
        chosen = np.union1d(chosen, np.argsort(-only_letters(drops, pairs), kind="stable")[: max(2, count // 4)])
    return chosen


def _verify(
    searches: list[Search], candidates: np.ndarray, pairs: Pairs, fresh: list[np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Drops and p of each candidate alone, float[candidates, tasks], on examples that had no part in choosing them.

    A candidate that does next to nothing on a third of them is not asked further: its p is 1, so the test stays fair.
    """
    third = [len(examples) // 3 for examples in fresh]
    first = [search.alone(candidates, chosen[:few]) for search, chosen, few in zip(searches, fresh, third, strict=True)]
    drops = np.stack([-differences.mean(1) for differences in first], axis=1)
    p = np.ones_like(drops)
    promising = np.sort(drops, axis=1)[:, -_needed(len(searches))] > LEAST_DROP / 2
    if pairs:
        promising |= only_letters(drops, pairs) > LEAST_DROP
    for task, search in enumerate(searches):
        if promising.any():
            rest = search.alone(candidates[promising], fresh[task][third[task] :])
            differences = np.concatenate([first[task][promising], rest], axis=1)
            drops[promising, task] = -differences.mean(1)
            p[promising, task] = uncorrected(differences, rng)
    return drops, p


def _needed(tasks: int) -> int:
    return math.ceil(SHARE * tasks)


def _untested(measures: Mapping[str, Measure], reason: str) -> Universals:
    warnings.warn(reason, stacklevel=3)
    none, drops = np.zeros(0), np.zeros((0, len(measures)))
    nobody = none.astype(int)
    return Universals(nobody, none, drops, tuple(measures), (), nobody, drops, 0.0, {"untested": reason})


def _too_few(measures: Mapping[str, Measure], formats: Mapping[str, str]) -> str | None:
    unknown = sorted(set(measures) - set(formats))
    if unknown:
        raise EditkitError(f"no format is given for {', '.join(unknown)}: every task of a universal search needs one.")
    kinds = sorted({formats[task] for task in measures})
    if len(measures) >= TASKS and len(kinds) > 1:
        return None
    return (
        f"universal heads were not looked for: that takes at least {TASKS} tasks of two formats or more; found "
        f"{len(measures)} ({', '.join(sorted(measures)) or 'none'}) of {len(kinds)} ({', '.join(kinds) or 'none'}). "
        "A head that breaks everything may be taken for one that the capability needs. Add tasks to retain."
    )
