"""A set of neurons without those that one retained task depends on most.

    smaller_sets(ledger, antonyms_chat, units, examples=60)   ->   [100 of 105 neurons, 95, 85]

The order of neurons by contrast is a mean over many tasks, by likelihood. What one task loses in real answers is seen
late, when the set is tried. A few of its neurons mostly cost that task, and the target can do without them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from editkit.measuring.attribution import attributions
from editkit.measuring.ledger import Ledger
from editkit.removal.find_heads import control_measures
from editkit.tasks.task import Task
from editkit.units import PLAIN, Neuron, Unit

SHARES = (0.05, 0.1, 0.2)
"""The parts of the neurons that are left out, those first that give the task most."""


def smaller_sets(ledger: Ledger, task: Task, units: Sequence[Unit], *, examples: int) -> list[tuple[Unit, ...]]:
    """The units without the first neurons by attribution to ``task``, on so many ``locate`` examples.

    A neuron whose attribution is not positive stays, and so do heads and neurons of routed experts. Empty where nothing
    can be left out, or where the model does not show the task.
    """
    given = _given(ledger, task, units, examples)
    first = sorted((unit for unit in given if given[unit] > 0), key=lambda unit: -given[unit])
    numbers = {min(len(first), -(-int(100 * share) * len(given) // 100)) for share in SHARES} - {0}
    return [tuple(unit for unit in units if unit not in set(first[:number])) for number in sorted(numbers)]


def _given(ledger: Ledger, task: Task, units: Sequence[Unit], examples: int) -> dict[Neuron, float]:
    """What each neuron gives to the task's right answers on average: activation times gradient."""
    neurons = [unit for unit in units if isinstance(unit, Neuron) and unit.expert == PLAIN]
    measures = control_measures(ledger, [task], examples) if neurons else {}
    if not measures:
        return {}
    rows = [ledger.model.encode(anchor.requests[anchor.pick]) for anchor in measures[task.name].anchors]
    layers = {neuron.layer for neuron in neurons}
    sites = [site for site in ledger.model.architecture.neuron_sites if site.layer in layers and site.expert == PLAIN]
    means = [scores.mean(axis=0) for scores in attributions(ledger.model, rows, sites)]
    at = dict(zip((site.layer for site in sites), means, strict=True))
    return {neuron: float(np.asarray(at[neuron.layer])[neuron.index]) for neuron in neurons}
