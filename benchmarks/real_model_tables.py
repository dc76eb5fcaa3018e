"""The tables of ``real_model``: benchmarks/results/real-model.md and its picture, from build/real-model/results."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real_model import ASKED, CAPABILITIES, CONTESTED, LOCALIZED, SEARCHED, TRUTH, WORK
from editkit.evidence.intervals import Interval, change_interval
from editkit.render.wording import percent, points

RESULTS = Path(__file__).parent / "results"
LAYERS, HEADS, GROUPS = 30, 9, 3
NAMES = [f"L{layer}H{index}" for layer in range(LAYERS) for index in range(HEADS)]


def write() -> None:
    """Everything that has been measured; what has not is left out.

    Raises:
        SystemExit: nothing has been: what is written there stays.
    """
    if not any(_read("truth", name) for name in CAPABILITIES):
        raise SystemExit(f"Nothing is in {WORK}/results: run `python -m benchmarks.real_model` first.")
    parts = [*_head(), *_truth(), *_search(), *_frontier(), *_capabilities(), *_places()]
    (RESULTS / "real-model.md").write_text("\n".join(parts) + "\n")
    _picture()


def _read(part: str, name: str) -> dict[str, Any] | None:
    path = WORK / "results" / f"{part}-{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _changes(name: str) -> np.ndarray | None:
    found = _read("truth", name)
    return None if found is None else np.array(found["changes"])


def _head() -> Iterator[str]:
    yield "# A real model: SmolLM2-135M-Instruct"
    yield ""
    yield (
        "30 layers of 9 heads (3 KV groups). Few-shot completions, greedy, bfloat16 on a CPU. `python -m "
        "benchmarks.real_model` writes this file; a score is in percent, a change in points. One model, one "
        "seed: intervals are over examples."
    )
    yield ""
    yield f"Machine: {platform.machine()}, {os.cpu_count()} cores."
    yield ""


def _truth() -> Iterator[str]:
    yield f"## Every head alone (up to {TRUTH} examples that the model gets right)"
    yield ""
    yield (
        "*Effect*: change of the probability of the model's own right answer, in points, with its 95 % "
        "interval. *Selectivity*: drop / (drop + mean drop of the six other capabilities)."
    )
    yield ""
    yield "| capability | score | examples | strongest heads: effect [95 %], selectivity | heads below −10 points |"
    yield "|---|--:|--:|---|--:|"
    known = {name: changes for name in CAPABILITIES if (changes := _changes(name)) is not None}
    for name, changes in known.items():
        found = _read("truth", name)
        assert found is not None
        means = changes.mean(1)
        error = 1.96 * changes.std(1, ddof=1) / np.sqrt(changes.shape[1])
        others = np.mean([np.maximum(0, -other.mean(1)) for key, other in known.items() if key != name], axis=0)
        share = np.maximum(0, -means) / np.maximum(1e-9, np.maximum(0, -means) + others)
        first = [
            f"{NAMES[at]} {points(means[at])} [{points(means[at] - error[at])}, {points(means[at] + error[at])}], "
            f"{share[at]:.2f}"
            for at in np.argsort(means)[:5]
        ]
        few = int((means < -0.1).sum())
        yield f"| {name} | {percent(found['score'])} | {found['anchors']} | {'; '.join(first)} | {few} |"
    yield ""


def _search() -> Iterator[str]:
    if not any(_read("search", name) for name in CONTESTED):
        return
    yield "## Localizers against that truth"
    yield ""
    yield (
        "*Recall*: how many of the truth's first 5 and 10 heads are among the first 5 and 10 found. *Rank "
        "correlation*: Spearman, over the heads that got a number. *Cost*: model rows (one example under one "
        f"mask), as a share of one-shot's on {SEARCHED} examples. CSS and CSB are the paper's, with 200 masks "
        "of 5 % of the heads; greedy is on half of the examples."
    )
    yield ""
    yield "| capability | localizer | recall at 5 | at 10 | rank correlation | cost |"
    yield "|---|---|--:|--:|--:|--:|"
    for name in CONTESTED:
        found, changes = _read("search", name), _changes(name)
        if found is None or changes is None:
            continue
        from scipy.stats import rankdata

        best = np.argsort(changes.mean(1))
        for method, row in found.items():
            hits = [len({*row["columns"][:few]} & {*best[:few].tolist()}) for few in (5, 10)]
            numbers = [
                (value, changes[column].mean())
                for column, value in zip(row["columns"], row["effect"], strict=True)
                if value is not None
            ]
            ranks = np.apply_along_axis(rankdata, 0, np.array(numbers))
            correlation = float(np.corrcoef(ranks.T)[0, 1])
            cost = row["rows"] / found["one-shot"]["rows"]
            yield f"| {name} | {method} | {hits[0]} of 5 | {hits[1]} of 10 | {correlation:.2f} | {cost:.2f} |"
    yield ""


def _frontier() -> Iterator[str]:
    if not any(_read("frontier", name) for name in CONTESTED):
        return
    yield "## The best drop within a damage budget"
    yield ""
    yield (
        "Each way to choose may remove up to ten heads; the set that takes the target furthest, while no "
        "other capability loses more than half the budget by likelihood, is then asked for real answers on "
        f"fresh examples (`report`, up to {ASKED} a task; 95 % interval of the change). *Sets*: how many sets the "
        "target was measured on."
    )
    yield ""
    yield "| capability | way | budget | heads out | target, before → after (change) | worst other | sets |"
    yield "|---|---|--:|---|--:|--:|--:|"
    for name in CONTESTED:
        found = _read("frontier", name)
        for row in found["rows"] if found else []:
            budget = "–" if row["budget"] is None else f"{100 * row['budget']:.0f}"
            if not row["heads"]:
                yield f"| {name} | {row['way']} | {budget} | none within it | | | {row['sets']} |"
                continue
            worst = _worst(row["scores"], name)
            yield (
                f"| {name} | {row['way']} | {budget} | {' '.join(row['heads'])} | {_row(row['scores'][name])} | "
                f"{worst} {_row(row['scores'][worst])} | {row['sets']} |"
            )
    yield ""


def _capabilities() -> Iterator[str]:
    if not any(_read("capabilities", name) for name in CAPABILITIES):
        return
    yield "## Which capabilities localize"
    yield ""
    yield (
        "The set search among the candidates that the exact effects rank first: the set that takes the few-shot "
        f"format furthest, while no other capability loses more than half of {100 * LOCALIZED:.0f} points by "
        f"likelihood. Real answers on `report`, up to {ASKED} examples a task, 95 % intervals of the change. Other "
        "formats were neither searched nor chosen on."
    )
    yield ""
    yield "| capability | heads out | few-shot, before → after (change) | worst other | other formats | sets |"
    yield "|---|---|---|---|---|--:|"
    for name in CAPABILITIES:
        found = _read("capabilities", name)
        if found is None:
            continue
        if not found["heads"]:
            yield f"| {name} | none within the budget | | | | {found['sets']} |"
            continue
        scores = found["scores"]
        elsewhere = [f"{task} {_row(scores[task])}" for task in found["formats"]]
        worst = _worst({other: scores[other] for other in CAPABILITIES}, name)
        yield (
            f"| {name} | {' '.join(found['heads'])} | {_row(scores[name])} | {worst} {_row(scores[worst])} | "
            f"{'; '.join(elsewhere) or 'none built in'} | {found['sets']} |"
        )
    yield ""


def _worst(scores: dict[str, Any], name: str) -> str:
    """The capability other than ``name`` that lost most."""
    return min((other for other in scores if other != name), key=lambda other: _change(scores[other]).mean)


def _change(arms: list[list[float]]) -> Interval:
    return change_interval(arms[0], arms[1])


def _row(arms: list[list[float]]) -> str:
    change = _change(arms)
    return (
        f"{percent(float(np.mean(arms[0])))} → {percent(float(np.mean(arms[1])))} "
        f"({points(change.mean)} [{points(change.low)}, {points(change.high)}])"
    )


def _places() -> Iterator[str]:
    """Layers and KV groups of the first ten heads of each capability."""
    yield "## Where the heads are"
    yield ""
    yield (
        "The ten strongest heads of each capability: how many lie in each third of the layers, and how many "
        "pairs of them share keys and values; ten heads drawn at random make 0.3 such pairs on average."
    )
    yield ""
    yield "| capability | layers 0 to 9 | 10 to 19 | 20 to 29 | pairs in one KV group |"
    yield "|---|--:|--:|--:|--:|"
    for name in CAPABILITIES:
        changes = _changes(name)
        if changes is None:
            continue
        first = np.argsort(changes.mean(1))[:10]
        thirds = np.bincount(first // HEADS // 10, minlength=3)
        groups = first // HEADS * GROUPS + first % HEADS // (HEADS // GROUPS)
        pairs = sum(int(count * (count - 1) // 2) for count in np.bincount(groups))
        yield f"| {name} | {thirds[0]} | {thirds[1]} | {thirds[2]} | {pairs} |"
    yield ""
    yield "![Effect of every head on every capability](real-model.png)"


def _picture() -> None:
    """A panel per capability, layers down and heads across."""
    from matplotlib.figure import Figure

    known = [(name, changes) for name in CAPABILITIES if (changes := _changes(name)) is not None]
    figure = Figure(figsize=(1.5 * len(known), 4.6), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(known), sharey=True))
    for axis, (name, changes) in zip(axes, known, strict=True):
        image = axis.imshow(100 * changes.mean(1).reshape(LAYERS, HEADS), cmap="RdBu", vmin=-25, vmax=25, aspect="auto")
        axis.set_title(name, fontsize=9)
        axis.set_xticks([1, 4, 7], ["KV 0", "1", "2"], fontsize=7)
        for border in (2.5, 5.5):
            axis.axvline(border, color="#9aa3ad", linewidth=0.5)
        axis.tick_params(length=0, labelsize=7)
    axes[0].set_ylabel("layer", fontsize=8)
    figure.colorbar(image, ax=axes, shrink=0.7, label="effect, points")
    figure.savefig(RESULTS / "real-model.png", dpi=110)
