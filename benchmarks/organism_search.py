"""Quality against cost on the organism: every method, every planted skill, five seeds, recall at the number planted.

The single methods see the first 30 examples that the model gets right (a kind has a share of .15 or more of them) and
are told the universal head. ``auto`` is the whole of ``editkit localize`` on the recipe's 100 examples: it finds the
universal head, and its cost holds everything, selectivity and random sets too. Scores are likelihoods for all.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.organism import layout
from editkit import organism
from editkit.api import load
from editkit.checkpoints.files import digest_of
from editkit.localizers import LOCALIZERS
from editkit.localizers.compressed import Sensing, csb, css
from editkit.localizers.protocol import Localizer
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import Store, opened
from editkit.models.language_model import LanguageModel
from editkit.removal import recipe
from editkit.removal.capability import capability
from editkit.removal.find_heads import localize
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import examples_of
from editkit.units import parse

SKILLS = (*layout.SKILLS, layout.FACTS_BY_LETTER)
SEEDS, EXAMPLES, MASKS = 5, 30, 100
WHOLE = "**auto**, everything included"


SETTING = Sensing(masks=(MASKS,), sparsity=(0.05,), confirm=0)
METHODS: dict[str, Localizer] = {
    "one-shot": LOCALIZERS["one-shot"],
    "halving": LOCALIZERS["halving"],
    "css, M=100 p=.05": partial(css, settings=SETTING),
    "css, alpha cv": partial(css, settings=replace(SETTING, alpha="cv")),
    "css, OMP": partial(css, settings=replace(SETTING, alpha="omp")),
    "csb, M=100 p=.05": partial(csb, settings=SETTING),
    "greedy (5 rounds)": LOCALIZERS["greedy"],
}
"""The fits of css share their masks: the same seed draws the same ones, and the store measures each once."""
FIXED = ("one-shot", "greedy (5 rounds)")
"""No randomness on one set of examples: one seed says all."""


@dataclass(frozen=True)
class Trial:
    """One method on one skill under one seed. ``found``: planted heads among the first as many as are planted."""

    skill: str
    method: str
    evaluations: float
    found: int
    planted: int


def run(out: Path, *, work: Path | None = None) -> None:
    """Measure, and write the tables as far as they go after every skill."""
    warnings.simplefilter("ignore")
    started, trials = time.time(), []
    model = load()
    for skill in SKILLS:
        with opened(None if work is None else work / f"{skill}.sqlite") as store:
            trials += [_whole(model, skill, seed, store) for seed in range(SEEDS)]
            for method in METHODS:
                trials += [_single(model, skill, method, seed, store) for seed in range(SEEDS)]
        print(_table(trials), flush=True)
        out.write_text(_report(trials, (time.time() - started) / 60), encoding="utf-8")


def _whole(model: LanguageModel, skill: str, seed: int, store: Store) -> Trial:
    found = localize(Ledger(model, store), capability(recipe.read(skill)), method="auto", seed=seed)
    wanted = layout.planted(skill)
    first = [str(effect.unit) for effect in found.order[: len(wanted)]]
    return Trial(skill, WHOLE, found.evaluations, len(set(first) & set(wanted)), len(wanted))


def _single(model: LanguageModel, skill: str, method: str, seed: int, store: Store) -> Trial:
    """With the search set cut to a few examples, and the universal head told."""
    task, columns = TASKS[skill], model.architecture.column
    measure = likelihood_measure(Ledger(model, store), task, examples_of(task, "locate", limit=2 * EXAMPLES))
    measure = replace(measure, anchors=measure.anchors[:EXAMPLES])
    aside = columns[parse(layout.UNIVERSAL_HEAD)]  # type: ignore[index]
    rng = np.random.default_rng(0 if method in FIXED else seed)
    ranking = METHODS[method](measure, np.setdiff1d(np.arange(measure.units), [aside]), rng)
    wanted = np.array([columns[parse(name)] for name in layout.planted(skill)])  # type: ignore[index]
    hits = int(np.isin(wanted, ranking.columns[: len(wanted)]).sum())
    return Trial(skill, method, ranking.evaluations, hits, len(wanted))


def _table(trials: list[Trial]) -> str:
    skills = list(dict.fromkeys(trial.skill for trial in trials))
    lines = [
        f"| method | evaluations | recall | {' | '.join(skills)} |",
        "|---|---:|---:" + "|---:" * len(skills) + "|",
    ]
    for method in dict.fromkeys(trial.method for trial in trials):
        mine = [trial for trial in trials if trial.method == method]
        cells = [_recall([trial for trial in mine if trial.skill == skill]) for skill in skills]
        costs = [trial.evaluations for trial in mine]
        span = f"{np.mean(costs):.0f}" if np.ptp(costs) < 1 else f"{np.mean(costs):.0f} (at most {max(costs):.1f})"
        lines.append(f"| {method} | {span} | {_recall(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _recall(trials: list[Trial]) -> str:
    return f"{np.mean([trial.found / trial.planted for trial in trials]):.2f}"


def _report(trials: list[Trial], minutes: float) -> str:
    text = " ".join((__doc__ or "").split("\n\n")[1].split())
    whole = [trial.evaluations for trial in trials if trial.method == WHOLE]
    half, skills = 144 / 2, len({trial.skill for trial in trials})
    return (
        "# Localizers on the organism\n\n"
        f"Written by `python -m benchmarks.localizers --only organism` on {platform.machine()}, {os.cpu_count()} cores "
        f"(one used), Python {platform.python_version()}, in {minutes:.0f} minutes; organism "
        f"`{digest_of(organism.path() / 'model.safetensors')[:12]}`.\n\n"
        f"{text}\n\n"
        f"{SEEDS} seeds draw other masks and other orders of the examples. *recall*: the share of the k planted heads "
        "among the first k of the ranking, k as many as are planted: mean over skills and seeds, then by skill. One "
        "evaluation is one mask on the method's whole search set. css and csb are the bare methods on "
        f"{MASKS} masks; the search of Appendix A.1 is measured on planted worlds (`localizers.md`).\n\n"
        f"{_table(trials)}\n\n"
        f"Half of one-shot's 144 evaluations is {half:.0f}: a whole run of `auto` took at most {max(whole):.1f} over "
        f"{skills} skills and {SEEDS} seeds.\n"
    )
