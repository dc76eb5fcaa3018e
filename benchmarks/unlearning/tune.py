"""The setting of each method: of a small grid, what costs retained tasks least of what takes the target far enough.

tuned = tune(bench, "npo", npo.prepare, Grid(own=(1.0, 5.0), rates=(1e-5, 1e-4), steps=(10, 20)))
tuned.setting                 # Setting(own=1.0, rate=1e-4, steps=20)
tuned.reached                 # whether it leaves at most REACHED of the target

Compared on ``choose`` examples; retained tasks are asked where the target is down, and there the course ends. Courses
that were run are kept in files beside the models, so that nothing is trained twice.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.unlearning.bench import REACHED, Bench
from benchmarks.unlearning.descent import Method, Pace, unlearned
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger, name_of
from editkit.tasks.task import Task, examples_of


@dataclass(frozen=True)
class Grid:
    """What is tried: every ``own`` with every rate, looked at after each of ``steps`` until the target is down."""

    own: tuple[float, ...]
    rates: tuple[float, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Setting:
    """``own``: the method's own weight."""

    own: float
    rate: float
    steps: int


@dataclass(frozen=True)
class Outcome:
    """What a setting does on ``choose``.

    Args:
        left: the largest share of a target's score that is left.
        worst, mean: what retained tasks lose; None where they were not asked, because the target is still there.
    """

    setting: Setting
    left: float
    worst: float | None = None
    mean: float | None = None


@dataclass(frozen=True)
class Tuned:
    """The setting that was chosen, all outcomes, and the CPU seconds of all courses and looks.

    Args:
        damage: what the recipe lets a retained task lose, and all of them on average.
    """

    best: Outcome
    outcomes: tuple[Outcome, ...]
    seconds: float
    damage: tuple[float, float]

    @property
    def setting(self) -> Setting:
        return self.best.setting

    @property
    def reached(self) -> bool:
        return self.best.left <= REACHED

    @property
    def within(self) -> bool:
        """Whether the target is down within the damage budget."""
        costs = (self.best.worst, self.best.mean)
        return self.reached and all(
            cost is not None and cost <= most + 1e-9 for cost, most in zip(costs, self.damage, strict=True)
        )


def tune(bench: Bench, name: str, method: Method, grid: Grid) -> Tuned:
    """Run the grid, or read what was run."""
    for task in (*bench.wanted.targets, *bench.wanted.retain):  # while its weights are its own
        _mean(bench, bench.ledger, task)
    courses = [_course(bench, name, method, own, rate, grid.steps) for own in grid.own for rate in grid.rates]
    outcomes = tuple(outcome for course, _ in courses for outcome in course)
    criteria = bench.wanted.recipe.criteria
    damage = criteria.damage_each, criteria.damage_mean
    return Tuned(best_of(outcomes), outcomes, sum(seconds for _, seconds in courses), damage)


def best_of(outcomes: tuple[Outcome, ...]) -> Outcome:
    """The least worst loss of those that take the target far enough; of equal ones the deepest.

    Where none does: what leaves least of the target.
    """

    def cost(outcome: Outcome) -> tuple[float, float, float, int]:
        assert outcome.worst is not None and outcome.mean is not None, "asked where the target is down"
        return outcome.worst, outcome.mean, outcome.left, -outcome.setting.steps

    down = [outcome for outcome in outcomes if outcome.left <= REACHED]
    return min(down, key=cost) if down else min(outcomes, key=lambda outcome: outcome.left)


def _course(
    bench: Bench, name: str, method: Method, own: float, rate: float, steps: tuple[int, ...]
) -> tuple[tuple[Outcome, ...], float]:
    """One training, looked at on the way, until the target is down."""
    model, lessons = bench.ledger.model, bench.lessons
    made = f"{bench.choose}, seed {bench.seed}, {lessons.digest}, {name_of(model.source.base)}, {model.dtype}"
    key = f"{name}, {own} {rate} {steps}, {made}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    kept = bench.folder / "courses" / f"{name}-{digest}.json"
    if kept.exists():
        read = json.loads(kept.read_text("utf-8"))
        return tuple(Outcome(Setting(**each.pop("setting")), **each) for each in read["outcomes"]), read["seconds"]
    started, outcomes = time.process_time(), []

    def watch(step: int) -> bool:
        if step not in steps:
            return False
        ledger = replace(bench.ledger, attack=f"unlearned by {digest}, {step} steps")
        outcomes.append(_outcome(bench, ledger, Setting(own, rate, step)))
        print(f"{name}: {outcomes[-1]}", file=sys.stderr, flush=True)
        return outcomes[-1].left <= REACHED

    with unlearned(model, method(model, lessons, own), lessons, Pace(rate, max(steps)), seed=bench.seed, watch=watch):
        pass
    seconds = time.process_time() - started
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"outcomes": [asdict(each) for each in outcomes], "seconds": seconds}), "utf-8")
    return tuple(outcomes), seconds


def _outcome(bench: Bench, ledger: Ledger, setting: Setting) -> Outcome:
    targets, retained = bench.wanted.targets, bench.wanted.retain
    left = max(now / before for before, now in _pairs(bench, ledger, targets))
    if left > REACHED:
        return Outcome(setting, left)
    lost = [before - now for before, now in _pairs(bench, ledger, retained)]
    return Outcome(setting, left, max(lost), float(np.mean(lost)))


def _pairs(bench: Bench, ledger: Ledger, tasks: tuple[Task, ...]) -> Iterator[tuple[float, float]]:
    """Each task's score in the base, which is stored by now, and in the model as it is."""
    for task in tasks:
        yield _mean(bench, bench.ledger, task), _mean(bench, ledger, task)


def _mean(bench: Bench, ledger: Ledger, task: Task) -> float:
    [cells] = task_scores(ledger, task, examples_of(task, "choose", limit=bench.choose), ledger.knockout())
    return float(np.mean([cell.value for cell in cells]))
