"""Which neurons a capability needs and nothing else does: its attribution minus what other tasks have, summed.

    contrast({"capitals": a, "capitals-chat": b}, {"addition": c, "plurals": d}) == (a + b) / 2 - max(c, 0) - max(d, 0)

Attributions (``measuring.attribution``) are float[neurons], means over examples, positive where a neuron makes the
answer likelier.
Chosen by the target alone, a hundred neurons destroy a model; chosen by contrast, they take the capability.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def contrast(targets: Mapping[str, np.ndarray], controls: Mapping[str, np.ndarray]) -> np.ndarray:
    """float[neurons], the largest first to go.

    Args:
        targets: float[neurons] per format of the capability.
        controls: the same per retained task; a neuron that a task would be better without costs it nothing.
    """
    given = np.mean(list(targets.values()), axis=0)
    return given - sum(np.maximum(needed, 0) for needed in controls.values())


def shared(targets: Mapping[str, np.ndarray], controls: Mapping[str, np.ndarray], size: int) -> dict[str, float]:
    """Per retained task, the share of the target's ``size`` strongest neurons that are among its own strongest.

    By chance it is ``size`` / neurons; a task far above the others does the same thing as the target.
    """
    first = _strongest(np.mean(list(targets.values()), axis=0), size)
    return {name: len(first & _strongest(needed, size)) / size for name, needed in controls.items()}


def _strongest(scores: np.ndarray, size: int) -> set[int]:
    return set(np.argpartition(-scores, size - 1)[:size].tolist())
