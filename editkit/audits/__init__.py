"""Attacks on a removal: what brings the capability back, beside controls, at which cost.

    attacks = audited(subject, chosen("quick"), edit)
    standing(attacks).sentence          "suppressed: the first token of the answer (prefill) brings back 96 % of swear"

Each audit is a file with one function, ``audit(subject, rng) -> rows``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

import numpy as np

from editkit.audits import (
    few_shot,
    fine_tuning,
    formats,
    further_units,
    merge,
    noise,
    paraphrases,
    prefill,
    probe,
    relearning,
    restored_units,
    rounding,
    sampling,
    scaling,
    soft_prompt,
    steering,
    token_nats,
)
from editkit.audits.subject import Subject
from editkit.evidence.attacks import Attack, Nats

Audit = Callable[[Subject, np.random.Generator], Iterator[Attack | Nats]]

AUDITS: Mapping[str, Audit] = {
    "token-nats": token_nats.audit,
    "formats": formats.audit,
    "prefill": prefill.audit,
    "few-shot": few_shot.audit,
    "paraphrases": paraphrases.audit,
    "restored-units": restored_units.audit,
    "further-units": further_units.audit,
    "rounding": rounding.audit,
    "noise": noise.audit,
    "scaling": scaling.audit,
    "merge": merge.audit,
    "sampling": sampling.audit,
    "fine-tuning": fine_tuning.audit,
    **{name: partial(relearning.audit, name=name) for name in relearning.WAYS},
    "soft-prompt": soft_prompt.audit,
    "probe": probe.audit,
    "steering": steering.audit,
}
"""By name, the cheap ones first."""

FULL = ("further-units", "relearning-slices", "relearning-adapter", "soft-prompt", "probe", "steering")
QUICK = [name for name in AUDITS if name not in FULL]
"""What a removal ends with."""


def chosen(budget: str, only: Collection[str] = ()) -> dict[str, Audit]:
    """The audits that are wanted: by name, else all that the budget has time for."""
    return {name: audit for name, audit in AUDITS.items() if name in (only or (QUICK if budget == "quick" else AUDITS))}
