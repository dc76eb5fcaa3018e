"""A reliability run: locate, compare, erase, enhance, in this order; the answer is one value.

result = reliability(ledger, data_sets(plan), folder, seed=0)
result.to_json()
"""

from __future__ import annotations

from pathlib import Path

from editkit.evidence.reliability import Reliability
from editkit.measuring.ledger import Ledger
from editkit.reliability.bench import Bench
from editkit.reliability.compare import agreement, contrast, cut_of, pairs, sets
from editkit.reliability.enhance import enhanced
from editkit.reliability.erase import erased
from editkit.reliability.locate import locate
from editkit.reliability.plan import DataSets
from editkit.reliability.samples import samples
from editkit.units import show


def reliability(ledger: Ledger, data: DataSets, folder: Path, *, seed: int = 0) -> Reliability:
    """Test what a localizer of a capability finds.

    Args:
        folder: where attributions and training results are kept.

    Raises:
        EditkitError: the model does not show the capability on one of its data sets, or has no such units.
    """
    settings, model, notes = data.plan.settings, ledger.model, []
    bench, cut = Bench(ledger, settings, folder, seed), cut_of(settings)
    total = len(bench.layer)
    attributed, left_out = locate(bench, samples(data))
    located, asked = contrast(attributed, settings.contrast), [each.sample for each in attributed]
    chosen = sets(located, cut)
    taught = chosen[settings.train]
    if not taught.any() and chosen["common"].any():
        notes.append("All common units are located by other data sets too; what is trained is the common set.")
        taught = chosen["common"]
    out = {"common": chosen["common"]}
    if (chosen["specific"] != chosen["common"]).any():
        out["specific"] = chosen["specific"]
    if settings.contrast:
        notes.append(
            "With contrast sets of other capabilities are nearly disjoint by construction: see the same one's."
        )
    return Reliability(
        capability=data.plan.reliability,
        model=model.source.base.model,
        units=settings.units,
        total=total,
        chosen=cut.name,
        settings={**settings.model_dump(), "dtype": model.dtype, "device": model.device.type},
        seed=seed,
        data=tuple(each.summary(cut.choose(each.effect)) for each in located),
        left_out=left_out,
        pairs=tuple(pairs(located, bench.layer, cut)),
        agreement=tuple(agreement(located, bench.layer, cut)),
        located={name: tuple(show(model.architecture.units(bench.knockout(units)))) for name, units in chosen.items()},
        erased=tuple(erased(bench, asked, out)),
        enhanced=tuple(enhanced(bench, asked, taught)) if taught.any() else (),
        notes=tuple(notes),
    )
