"""Normal noise on every weight matrix, of 1 and 3 percent of its root mean square; the zeroed slices stay zero."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import torch

from editkit.audits.subject import Subject
from editkit.audits.weights import WeightAttack, rows
from editkit.evidence.attacks import Attack

SHARES = (0.01, 0.03)


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    seed = int(rng.integers(2**31))

    def noisy(share: float) -> WeightAttack:
        def change(name: str, weight: torch.Tensor) -> torch.Tensor | None:
            if weight.ndim < 2:
                return None
            drawn = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
            noise = torch.randn(weight.shape, generator=drawn).to(weight.device)
            return weight.float() + share * weight.float().square().mean().sqrt() * noise

        return WeightAttack(f"{share:.0%} of rms", lambda model, zero: change)

    return rows(subject, "noise", [noisy(share) for share in SHARES], seed)
