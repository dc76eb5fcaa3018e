"""Rounds of attack and removal: what a little fine-tuning finds in place of the removed neurons goes out as well.

    hardened = harden(ledger, capability, units, affordable, seed=0)
    hardened.sets                     the sets of each round, each with the units of the one before
    hardened.hardening.rounds         (Round(74, before=.01, after=.29), Round(154, .0, .04))

A knockout leaves whatever else can do the same, and fine-tuning finds it. So each round lets an attacker find it first:
all weights of the edited model are trained for a few steps on right answers of the target, the zeroed slices held; the
neurons are put in order by what they then give to these answers and no retained task needs (``localizers.contrast``);
the first go out too. Examples of other clusters tell what came back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.errors import EditkitError
from editkit.evidence.hardening import Hardening, Round
from editkit.localizers.contrast import contrast
from editkit.measuring.answers import task_scores
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import LEAST, Anchor, LikelihoodMeasure, likelihood_measure
from editkit.measuring.right_answers import right_answer
from editkit.models.knockout import knocked_out
from editkit.models.training import Training, all_weights, trained
from editkit.progress import Advance
from editkit.removal.capability import Capability
from editkit.removal.find_heads import control_measures
from editkit.removal.find_neurons import ATTRIBUTED, attributed, neurons_at, places_of
from editkit.tasks.task import Example, Task, examples_of
from editkit.units import Unit

ROUNDS, ADDED = 3, 80
"""So many rounds, and in each so many neurons at most."""
FEWEST = 5
"""What costs too much is halved down to so many neurons."""
ENOUGH = 0.1
"""No further round where so small a share of the unedited score comes back."""
STEPS = 25
"""Of the attack: AdamW, batches of 8."""
RATES = (3e-5, 2e-4, 1e-3)
"""The attacker takes the one that brings most back, at the first attack."""
EXAMPLES = 160
"""Of each format, ``locate``: the right answers in one half of the clusters teach, all examples in the other score."""

Units = tuple[Unit, ...]


@dataclass(frozen=True)
class Hardened:
    """A larger set for each round, and what the attack brought back from the first set and from each of them."""

    sets: tuple[Units, ...]
    hardening: Hardening


@dataclass(frozen=True)
class _Attacker:
    """Fine-tuning on lessons of all formats; what came back is asked of held-back examples.

    Args:
        advance: told of each step.
        lessons: by format, anchored on right answers.
        held: by format.
    """

    ledger: Ledger
    advance: Advance
    capability: Capability
    lessons: Mapping[str, LikelihoodMeasure]
    held: Mapping[str, Sequence[Example]]
    seed: int

    @property
    def rows(self) -> list[tuple[list[int], list[int]]]:
        anchors = [anchor for measure in self.lessons.values() for anchor in measure.anchors]
        return [self.ledger.model.encode(anchor.requests[anchor.pick]) for anchor in anchors]

    def scores(self, out: Knockout, attack: str = "") -> dict[str, float]:
        """The mean score of each format on the held-back examples."""
        ledger = replace(self.ledger, attack=attack)
        return {
            task.name: float(
                np.mean([cell.value for cell in task_scores(ledger, task, self.held[task.name], [out])[0]])
            )
            for task in self.capability.targets
        }

    def attacked(
        self, units: Units, rate: float, *, attribute: bool = True
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Scores after the attack on the model without ``units``, and what each neuron then gives to the lessons."""
        model, rows = self.ledger.model, self.rows
        out = model.architecture.knockout(units)
        name = f"hardening: {STEPS} steps at {rate} on {_digest(rows)}, seed {self.seed}, without {out.key.hex()}"
        with (
            knocked_out(model.network, model.architecture, out),
            trained(
                *(model, all_weights(model.network), rows, Training(STEPS, rate), np.random.default_rng(self.seed)),
                watch=lambda steps: self.advance(1),
            ),
        ):
            given = {
                format: attributed(self.ledger, measure, self.capability.recipe)
                for format, measure in (self.lessons.items() if attribute else ())
            }
            return self.scores(out, name), given


def harden(
    ledger: Ledger, capability: Capability, units: Units, affordable: Callable[[Units], bool], *, seed: int = 0
) -> Hardened:
    """Grow a set of neurons by what brings the target back. Only ``locate`` is looked at. Deterministic in ``seed``.

    Args:
        units: the set that was chosen.
        affordable: whether a set costs the retained tasks no more than it may.

    Raises:
        EditkitError: too few clusters or right answers to attack with and to score.
    """
    with ledger.stage("Hardening", (len(RATES) + ROUNDS) * STEPS) as staged:
        attacker = _attacker(staged, capability, seed)
        first = {rate: attacker.attacked(units, rate) for rate in RATES}
        rate = max(first, key=lambda each: max(first[each][0].values()))
        after, given = first[rate]
        controls = control_measures(attacker.ledger, capability.retain, ATTRIBUTED)
        needed = {name: attributed(attacker.ledger, measure, capability.recipe) for name, measure in controls.items()}
        base = max(attacker.scores(NOTHING).values())
        sets, rounds = [tuple(units)], list[Round]()
        while True:
            before = attacker.scores(ledger.model.architecture.knockout(sets[-1]))
            worst = max(after, key=lambda name: after[name])
            rounds.append(Round(len(sets[-1]), before[worst], after[worst]))
            if len(sets) > ROUNDS or after[worst] <= ENOUGH * base:
                break
            order = np.argsort(-contrast(given, needed), kind="stable")[: len(sets[-1]) + ADDED]
            out = set(sets[-1])
            added = [unit for unit in neurons_at(staged, places_of(staged, order)) if unit not in out][:ADDED]
            grown = _grown(sets[-1], tuple(added), affordable)
            if grown == sets[-1]:
                break
            sets.append(grown)
            after, given = attacker.attacked(grown, rate, attribute=len(sets) <= ROUNDS)
    lessons, held = len(attacker.rows), sum(map(len, attacker.held.values()))
    return Hardened(tuple(sets[1:]), Hardening(STEPS, rate, lessons, held, base, tuple(rounds)))


def _grown(units: Units, group: Units, affordable: Callable[[Units], bool]) -> Units:
    """The units with as much of the group as can be afforded."""
    if not group or affordable((*units, *group)):
        return (*units, *group)
    if len(group) <= FEWEST:
        return units
    for part in (group[: len(group) // 2], group[len(group) // 2 :]):
        units = _grown(units, part, affordable)
    return units


def _attacker(ledger: Ledger, capability: Capability, seed: int) -> _Attacker:
    lessons, held = dict[str, LikelihoodMeasure](), dict[str, list[Example]]()
    quiet = replace(ledger, advance=lambda cells: None)
    for task in capability.targets:
        examples = examples_of(task, "locate", limit=EXAMPLES)
        taught = [example for example in examples if _teaches(example)]
        lessons[task.name] = _right_answers(quiet, task, taught)
        held[task.name] = [example for example in examples if not _teaches(example)]
        counts = lessons[task.name].examples, len(held[task.name])
        if min(counts) < LEAST:
            raise EditkitError(
                f"Hardening needs {LEAST} right answers of {task.name!r} to attack with and {LEAST} examples of other "
                f"clusters to score; there are {counts[0]} and {counts[1]}. Give the task more clusters."
            )
    return _Attacker(quiet, ledger.advance, capability, lessons, held, seed)


def _right_answers(ledger: Ledger, task: Task, examples: Sequence[Example]) -> LikelihoodMeasure:
    """Anchored on the answers that the task names; where it names none, on the unedited model's own right ones."""
    answers = [(example, right_answer(task, example)) for example in examples]
    named = tuple(Anchor(example, (answer,)) for example, answer in answers if answer is not None)
    return LikelihoodMeasure(ledger, task, named) if named else likelihood_measure(ledger, task, examples)


def _teaches(example: Example) -> bool:
    """Half of the clusters, in every format the same."""
    cluster = example.cluster or f"alone: {example.id}"
    return hashlib.sha256(f"hardening\0{cluster}".encode()).digest()[0] % 2 == 0


def _digest(rows: Sequence[tuple[list[int], list[int]]]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
