"""How often the ``report`` examples of a capability were looked at: each other edit that they judge is a look.

look(ledger, capability, units)   ->   3: two other edits were judged by these examples before

The second look chooses, be it in the mind of who runs it: the more looks, the less the best of them says. Looks are
kept in the store beside the measurements, for one base model and one set of target tasks. A run that is repeated or
resumed asks about the same edit, and keeps its number. Fresh examples (``fresh.py``) are counted by themselves too:
no other edit should be judged by them.
"""

from __future__ import annotations

from editkit.measuring.ledger import Ledger
from editkit.measuring.store import Cell
from editkit.removal.capability import Capability
from editkit.tasks.task import digest
from editkit.units import Unit


def look(ledger: Ledger, capability: Capability, units: frozenset[Unit], *, fresh: str = "") -> int:
    """The number of this look, from 1.

    Args:
        fresh: names a run; then only looks at its own fresh examples count.
    """
    base = ledger.model.source.base
    space = ledger.store.space(
        {"looks": sorted(map(digest, capability.targets)), "model": base.revision or base.model, "split": "report"}
        | ({"fresh": fresh} if fresh else {})
    )
    [edit] = ledger.knockout(units)
    number = 1 + ledger.store.knockouts(space)
    ledger.store.put(space, [(edit, "look", Cell(1.0, output=str(number)))])
    return int(ledger.store.get(space, edit)["look"].output)
