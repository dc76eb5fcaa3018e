"""How many heads to remove: the smallest prefix of the ranking that meets the goal within the damage budget.

Decided with real answers on the ``choose`` split. A number of heads will do when the whole interval of what is left of
the target is below the goal, so that fresh examples will most likely agree; where none is so certain, the first whose
mean is. The target is measured for every number of heads, the retained tasks only where the target has fallen far
enough; the result is also the dose curve of the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from editkit.errors import EditkitError
from editkit.evidence.exhibits import Dose
from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.hardening import Hardening
from editkit.evidence.intervals import mean_interval
from editkit.evidence.localization import Localization
from editkit.evidence.samples import labels
from editkit.evidence.share_left import ShareLeft, share_left
from editkit.evidence.verdict import judge
from editkit.measuring.ledger import Ledger
from editkit.removal.capability import Capability
from editkit.removal.trial import Sheet, trial_of
from editkit.units import Unit


@dataclass(frozen=True)
class Choice:
    """The units to remove; or, where none will do, the strongest that were tried.

    Args:
        dose: scores with the strongest 0, 1, 2, ... heads out; empty where a set was chosen.
        frontier: where a set was chosen, what could be had at which damage.
        hardening: what fine-tuning brought back, round by round, where the recipe hardens.
    """

    units: frozenset[Unit]
    dose: tuple[Dose, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    hardening: Hardening | None = None


def choose(
    ledger: Ledger, capability: Capability, localization: Localization, *, count: int | None = None, seed: int = 0
) -> Choice:
    """Try the strongest 1, 2, 3, ... heads; or 1, 2, 4, ... where the search found none, to show what they do.

    Args:
        count: exactly so many heads, whatever they do; None: the smallest number that will do.

    Raises:
        EditkitError: if ``count`` is more than there are to choose from.
    """
    trial = trial_of(capability, split="choose", seed=seed)
    ranked = [effect.unit for effect in localization.order]
    if count is not None and count > len(ranked):
        raise EditkitError(
            f"{count} heads were asked for, but the search ranked {len(ranked)} (universal heads are set aside). "
            "Ask for fewer (--heads), or leave the number open."
        )
    most = min(len(ranked), count or capability.recipe.max_heads)
    chosen, hoped = None, None
    with ledger.stage("Choosing heads") as ledger:
        unedited = [trial.sheet(ledger, task) for task in capability.targets]
        retained = [trial.sheet(ledger, task) for task in capability.retain]
        curve = [_dose(0, unedited[0], retained)]
        for number in numbers(most, thorough=localization.found):
            if chosen is not None and number > chosen + 2 and number != count:
                continue  # enough is known of the curve
            heads = ranked[:number]
            sheets = [trial.sheet(ledger, task, heads) for task in capability.targets]
            shares = [kept(before, after) for before, after in zip(unedited, sheets, strict=True)]
            share, at_worst = max(one.share for one in shares), max(one.at_most for one in shares)
            reached = share <= capability.recipe.goal
            others = (
                [trial.sheet(ledger, task, heads) for task in capability.retain] if reached or number == count else []
            )
            curve.append(_dose(number, trial.least_lost(unedited, sheets)[1], others))
            if chosen is None and reached:
                status = judge(trial.rows([*unedited, *retained], [*sheets, *others]), trial.criteria).status
                chosen = number if status == "met" and at_worst <= capability.recipe.goal else None
                hoped = hoped or (number if status in ("met", "reduced") else None)
    number = count or chosen or hoped or _least(curve)
    return Choice(frozenset(ranked[:number]), tuple(curve))


def numbers(most: int, *, thorough: bool) -> list[int]:
    """How many heads are tried: every number up to ``most``, or powers of two and ``most`` itself."""
    return [number for number in range(1, most + 1) if thorough or number == most or number & (number - 1) == 0]


def kept(before: Sheet, after: Sheet) -> ShareLeft:
    """The share of the capability that is left. An answer that collapsed keeps its old score."""
    pairs = zip(before.cells, after.cells, strict=True)
    last = [new.value if new.valid else old.value for old, new in pairs]
    first, groups = [cell.value for cell in before.cells], labels(before.clusters)
    return share_left(first, last, chance=before.task.chance, clusters=groups) or ShareLeft(1.0, 1.0)


def _least(dose: Sequence[Dose]) -> int:
    """The smallest number of heads with the lowest target score: what to show when nothing will do."""
    return min(dose, key=lambda point: (round(point.target.mean, 6), point.heads)).heads or 1


def _dose(number: int, target: Sheet, retained: Sequence[Sheet]) -> Dose:
    """One point of the dose curve: ``number`` heads out."""
    interval = mean_interval([cell.value for cell in target.cells], clusters=labels(target.clusters))
    return Dose(number, interval, {sheet.task.name: sheet.mean for sheet in retained})
