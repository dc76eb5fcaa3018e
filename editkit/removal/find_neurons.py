"""Find the neurons a capability depends on and nothing else does: attribution of every one, exact knockouts of a few.

    neurons = localize_neurons(ledger, capability)
    neurons.order[:2]                        (Effect(L22N517, -.041, ...), Effect(L27N1180, -.036, ...))
    neurons.diagnostics["related"]           {"next-number": {"lost": .52, "shared": .41}}

One backward pass an example attributes a task's right answers to all neurons at once (``measuring.attribution``; by the
recipe's ``path`` and ``steps`` as many as the paper takes); the order is by contrast (``localizers.contrast``). What
carries the target once the first are out is another question, so it is asked again: with the first 30 out, with the
first 90. A retained task that loses much where it is left out of the contrast is *related*: it does what the target
does, and no set of neurons will take one and spare the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from editkit.checkpoints.architecture import Site
from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.errors import EditkitError
from editkit.evidence.localization import Effect, Localization
from editkit.localizers.contrast import contrast, shared
from editkit.localizers.flip_test import weigh
from editkit.measuring.attribution import BACKWARD, effects
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LikelihoodMeasure, likelihood_measure
from editkit.removal.capability import Capability
from editkit.removal.find_heads import control_measures
from editkit.removal.recipe import Recipe
from editkit.tasks.task import examples_of
from editkit.units import PLAIN, Unit

ATTRIBUTED = 60
"""Examples of each task, at least, whose right answers are attributed: a retained task that few speak for is harmed."""
ROUNDS = (30, 60, 150)
"""So many neurons are put in order at a time, each time with those before them out; sets are made of these."""
ALONE, ASKED = 24, 20
"""Of these, so many are knocked out one by one, on so many examples."""
TOGETHER = 30
"""And so many at once: whether there is anything to find, and which retained tasks are related."""
SHARED = 100
"""The overlap of the target's strongest neurons with a retained task's is counted on so many."""
RELATED = 1 / 3
"""A retained task is related if it loses this share of its score with the target's neurons."""


def localize_neurons(ledger: Ledger, capability: Capability, *, seed: int = 0) -> Localization:
    """Order the neurons by contrast. Only the ``locate`` split is looked at. Deterministic in ``seed``.

    Raises:
        EditkitError: no neuron of the model can be reached, or the unedited model does not show the capability.
    """
    architecture, recipe = ledger.model.architecture, capability.recipe
    if not _sites(ledger):
        why = "; ".join(group.reason for group in architecture.unreachable_neurons) or "routed experts have no gates"
        raise EditkitError(f"No neuron of this {architecture.model_type} can be searched: {why}. Use --units heads.")
    with ledger.stage("Baseline answers") as staged:
        most = max(ATTRIBUTED, recipe.examples.locate)
        targets = {
            task.name: likelihood_measure(staged, task, examples_of(task, "locate", limit=most))
            for task in capability.targets
        }
        controls = control_measures(staged, capability.retain, max(ATTRIBUTED, recipe.universal_examples))
    both = targets | controls
    passes = len(_sites(ledger)) if recipe.path == "layers" else 1
    again = (len(ROUNDS) - 1) * sum(measure.examples for measure in targets.values())
    rows = passes * (again + sum(measure.examples for measure in both.values()))
    with ledger.stage("Attributing answers to neurons", rows + again) as staged:
        means = {name: attributed(staged, measure, recipe) for name, measure in both.items()}
        given, needed = ({name: means[name] for name in measures} for measures in (targets, controls))
        places = ordered(staged, targets, given, needed, recipe)
    neurons = len(next(iter(given.values())))
    with ledger.stage("Finding neurons") as staged:
        at_once = tuple(_lost(staged, measure, [Knockout.of(places[:TOGETHER])]) for measure in targets.values())
        is_certain = all(weigh(lost, 1, np.random.default_rng(seed)).needed[0] for lost in at_once)
        first = next(iter(targets.values()))
        first = replace(first, ledger=staged, anchors=first.anchors[:ASKED])
        alone = weigh(
            _lost(staged, first, [Knockout.of(place[None]) for place in places[:ALONE]]),
            neurons,
            np.random.default_rng(seed),
        )
        related = _related(staged, given, needed, controls)
    if related:
        warnings.warn(_warning(related, capability), stacklevel=2)
    units = neurons_at(ledger, places)
    measured = [
        Effect(unit, *row[:4], selectivity=float("nan"), stability=row[4])
        for unit, row in zip(units, alone.rows(), strict=False)
    ]
    unknown = float("nan")
    return Localization(
        method="contrast",
        seed=seed,
        evaluations=BACKWARD * recipe.steps * rows / first.examples + ALONE + len(targets),
        order=(
            *measured,
            *(Effect(unit, unknown, unknown, unknown, unknown, unknown) for unit in units[len(measured) :]),
        ),
        universal=(),
        found=is_certain,
        diagnostics={
            "examples": first.examples,
            "scores": "likelihood",
            "neurons": neurons,
            f"first {TOGETHER} out": {name: float(lost.mean()) for name, lost in zip(targets, at_once, strict=True)},
            "shared": shared(given, needed, min(SHARED, neurons)),
            "related": related,
        },
    )


def ordered(
    ledger: Ledger,
    targets: Mapping[str, LikelihoodMeasure],
    given: Mapping[str, np.ndarray],
    needed: Mapping[str, np.ndarray],
    recipe: Recipe,
    rounds: Sequence[int] = ROUNDS,
) -> np.ndarray:
    """int[neurons]: places, the first to go first.

    A format of the target counts by the share of its score that is left: what is gone no longer gives the order.

    Args:
        given, needed: attributions of the unedited model to each format of the target and to each retained task,
            float[neurons].
        rounds: so many neurons are ordered at a time; one round is the order by the unedited model alone.
    """
    score = contrast(given, needed)
    out = np.argsort(-score, kind="stable")[: rounds[0]]
    for size in rounds[1:]:
        taken = Knockout.of(places_of(ledger, out))
        means = {name: attributed(ledger, measure, recipe, taken) for name, measure in targets.items()}
        score = contrast({name: _left(ledger, targets[name], taken) * mean for name, mean in means.items()}, needed)
        rest = np.setdiff1d(np.arange(len(score)), out)
        out = np.concatenate([out, rest[np.argsort(-score[rest], kind="stable")][:size]])
    return places_of(ledger, out)


def _left(ledger: Ledger, measure: LikelihoodMeasure, out: Knockout) -> float:
    """The share of the answers' probability that is left, from 0 to 1."""
    before, after = replace(measure, ledger=ledger, columns=(out,))(np.array([[False], [True]])).mean(axis=1)
    return float(np.clip(after / max(before, 1e-9), 0, 1))


def attributed(ledger: Ledger, measure: LikelihoodMeasure, recipe: Recipe, out: Knockout = NOTHING) -> np.ndarray:
    """float32[neurons], the mean over anchors, with some neurons out."""
    rows = [ledger.model.encode(anchor.requests[anchor.pick]) for anchor in measure.anchors]
    how: Any = {"path": recipe.path, "steps": recipe.steps, "out": out, "advance": ledger.advance}
    return effects(ledger.model, rows, _sites(ledger), **how)


def _sites(ledger: Ledger) -> list[Site]:
    """The sites whose neurons have gates."""
    return [site for site in ledger.model.architecture.neuron_sites if site.expert == PLAIN]


def places_of(ledger: Ledger, columns: np.ndarray) -> np.ndarray:
    """Columns of the attributions -> places of a knockout."""
    architecture = ledger.model.architecture
    starts = architecture.starts[len(architecture.sites) :]
    plain = np.concatenate(
        [
            np.arange(start, start + site.units)
            for site, start in zip(architecture.neuron_sites, starts, strict=False)
            if site.expert == PLAIN
        ]
    )
    return plain[columns]


def neurons_at(ledger: Ledger, places: np.ndarray) -> list[Unit]:
    """The neurons at some places, in the same order."""
    return [next(iter(ledger.model.architecture.units(Knockout.of(place[None])))) for place in places]


def _lost(ledger: Ledger, measure: LikelihoodMeasure, out: list[Knockout]) -> np.ndarray:
    """Paired changes of the answers' probability: float[knockouts, anchors], negative = needed."""
    asked = replace(measure, ledger=ledger, columns=tuple(out))
    return asked(np.eye(len(out), dtype=bool)) - asked(np.zeros((1, len(out)), dtype=bool))


def _related(
    ledger: Ledger,
    given: Mapping[str, np.ndarray],
    needed: Mapping[str, np.ndarray],
    controls: Mapping[str, LikelihoodMeasure],
) -> dict[str, float]:
    """Retained tasks that lose much where the target's neurons go that no *other* task needs; and how much."""
    related: dict[str, float] = {}
    for name, measure in controls.items():
        few = measure.anchors[:ASKED]
        others = {other: mean for other, mean in needed.items() if other != name}
        first = np.argsort(-contrast(given, others), kind="stable")[:TOGETHER]
        asked = replace(measure, ledger=ledger, anchors=few, columns=(Knockout.of(places_of(ledger, first)),))
        before, after = asked(np.array([[False], [True]])).mean(axis=1)
        if before > 0 and (before - after) / before >= RELATED:
            related[name] = float((before - after) / before)
    return related


def _warning(related: Mapping[str, float], capability: Capability) -> str:
    names = ", ".join(f"{name} (loses {share:.0%})" for name, share in related.items())
    return (
        f"These retained tasks share the neurons of {capability.recipe.capability!r}: {names}. It may be one "
        "capability: add them to target, or accept their loss (--also TASK, or also in the recipe)."
    )
