"""Find the units a capability depends on, of the kinds that the recipe allows.

locate(ledger, capability, seed=0)      # heads by knockouts, neurons by contrast, or both: heads come first
"""

from __future__ import annotations

from dataclasses import replace

from editkit.evidence.localization import Localization
from editkit.measuring.ledger import Ledger
from editkit.removal.capability import Capability
from editkit.removal.find_heads import localize
from editkit.removal.find_neurons import localize_neurons


def locate(ledger: Ledger, capability: Capability, *, method: str | None = None, seed: int = 0) -> Localization:
    """Only the ``locate`` split is looked at. Deterministic in ``seed``; what the store holds is not measured again.

    Args:
        method: how heads are found, one of ``LOCALIZERS``; the recipe's own if None.

    Raises:
        EditkitError: the unedited model does not show the capability.
    """
    if capability.recipe.units == "neurons":
        return localize_neurons(ledger, capability, seed=seed)
    heads = localize(ledger, capability, method=method, seed=seed)
    if capability.recipe.units == "heads":
        return heads
    neurons = localize_neurons(ledger, capability, seed=seed)
    return replace(
        heads,
        method=f"{heads.method}, {neurons.method}",
        evaluations=heads.evaluations + neurons.evaluations,
        order=heads.order + neurons.order,
        found=heads.found or neurons.found,
        diagnostics=dict(heads.diagnostics) | {"neurons": dict(neurons.diagnostics)},
    )
