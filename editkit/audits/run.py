"""All audits on one edit, in order; the same subject and seed give the same rows.

attacks = audited(subject, chosen("quick"), edit)
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping

import numpy as np

from editkit.audits import Audit
from editkit.audits.subject import Subject
from editkit.edit import Edit
from editkit.evidence.attacks import Attack, Attacks, Nats


def audited(subject: Subject, audits: Mapping[str, Audit], edit: Edit) -> Attacks:
    """Run the audits."""
    model, control = subject.base.model, subject.control
    rows: list[Attack] = []
    nats: list[Nats] = []
    notes: list[str] = []
    seconds: dict[str, float] = {}
    for name, audit in audits.items():
        rng = np.random.default_rng([subject.seed, zlib.crc32(name.encode())])
        count, started = len(rows) + len(nats), time.monotonic()
        with subject.base.ledger.stages(f"Audit: {name}", None):
            for row in audit(subject, rng):
                if isinstance(row, Nats):
                    nats.append(row)
                else:
                    rows.append(row)
        seconds[name] = round(time.monotonic() - started, 1)
        if len(rows) + len(nats) == count:
            notes.append(f"{name}: nothing here can be attacked so.")
    return Attacks(
        base=model.source.base.model,
        edit=edit.digest,
        budget=subject.budget.name,
        seed=subject.seed,
        dtype=model.dtype,
        kept=subject.kept,
        never_had=control.name if control.lacks else None,
        rows=tuple(rows),
        nats=tuple(nats),
        notes=tuple(notes),
        seconds=seconds,
    )
