"""Attacks on a removal: what brings the capability back, beside controls, at which cost.

    found = audit(subject, AUDITS)
    standing(found).sentence            "suppressed: the first token of the answer (prefill) brings back 96 % of swear"

Each audit is a file with one function, ``audit(subject, rng) -> rows``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from editkit.audits import prefill, relearning, token_nats
from editkit.audits.subject import Subject
from editkit.evidence.attacks import Attack, Nats

Audit = Callable[[Subject, np.random.Generator], Iterator[Attack | Nats]]

AUDITS: Mapping[str, Audit] = {
    "token-nats": token_nats.audit,
    "prefill": prefill.audit,
    "relearning": relearning.audit,
}
"""By name, the cheap ones first."""
