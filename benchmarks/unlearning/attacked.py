"""A peer under the same attacks as a removal of editkit's, and what it costs other tasks.

finding = found(bench, peer)
finding.attacks.of("relearning"), finding.retained, finding.mean
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.unlearning.bench import Bench
from benchmarks.unlearning.peers import Peer
from editkit.audits import AUDITS, QUICK
from editkit.audits.run import audited
from editkit.audits.subject import Arm, Subject, subject_of
from editkit.checkpoints.knockout import NOTHING
from editkit.edit import Edit
from editkit.evidence.attacks import Attacks
from editkit.evidence.intervals import Interval, change_interval
from editkit.evidence.row import Row
from editkit.removal.trial import Sheet, trial_of

LEFT_OUT = {
    "restored-units": "an unlearned model has no unit out that could be put back",
    "scaling": "no projection of it is edited more than another",
    "merge": "the mean of its weights and the base's is another model for each method: its dose compares nothing",
}
"""Quick audits that do not apply to a peer, and why. What trains the zeroed slices too would be relearning again."""
COMMON = tuple(name for name in QUICK if name not in LEFT_OUT)


@dataclass(frozen=True)
class Finding:
    """What is known of one peer.

    Args:
        rows: every task of the recipe, before and after, on ``report``.
        mean: the change of all answers of retained tasks together.
    """

    peer: Peer
    rows: tuple[Row, ...]
    mean: Interval
    attacks: Attacks

    def of(self, role: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.role == role)

    @property
    def worst(self) -> Row:
        """The retained task that loses most."""
        return min(self.of("retain"), key=lambda row: row.delta.mean)


def found(bench: Bench, peer: Peer) -> Finding:
    """Ask, then attack; what the store holds is not asked again."""
    trial = trial_of(bench.wanted, seed=bench.seed)
    before = trial.answers(bench.ledger)
    after = trial.answers(peer.arm.ledger, peer.edit.units if peer.edit else (), title=f"Answers, {peer.name}")
    edit = peer.edit or Edit(bench.ledger.model.source.base, frozenset())
    attacks = audited(subject(bench, peer), {name: AUDITS[name] for name in bench.audits}, edit)
    retained = {task.name for task in bench.wanted.retain}
    pairs = [pair for pair in zip(before, after, strict=True) if pair[0].task.name in retained]
    return Finding(peer, tuple(trial.rows(before, after)), _together(pairs), attacks)


def subject(bench: Bench, peer: Peer) -> Subject:
    """The same examples, lessons and base for all; a peer's control has nothing out, as the peer has not.

    Without a model that never had the capability, it is the base as it is: it tells whether an attack destroys.
    """
    edit = peer.edit or next(iter(bench.edits.values()))
    whole = subject_of(
        *(bench.ledger, edit.units, bench.wanted, bench.budget), never_had=bench.never_had, seed=bench.seed
    )
    if peer.edit:
        return whole
    control = replace(whole.control, out=NOTHING) if whole.control.lacks else Arm("base, as it is", bench.ledger)
    return replace(whole, edited=peer.arm, control=control)


def _together(pairs: list[tuple[Sheet, Sheet]]) -> Interval:
    """The change of all answers, each once, in the clusters of their tasks."""
    before = [cell.value for first, _ in pairs for cell in first.cells]
    after = [cell.value for _, second in pairs for cell in second.cells]
    clusters = [
        f"{first.task.name}: {example.cluster or example.id}" for first, _ in pairs for example in first.examples
    ]
    return change_interval(before, after, clusters=clusters)
