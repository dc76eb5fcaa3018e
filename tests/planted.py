"""Planted oracles: worlds whose needed heads are known, seen through the same arrow as a real model.

A world scores ``sigmoid(2 * margin)`` (or ``margin > 0``) per example, where a knockout lowers the margin of each
example by the head's effect times that example's load, plus a small perturbation fixed by (mask, example): asking
twice gives the same answer, as a deterministic model does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Planted:
    """Implements ``Measure``. ``asked`` keeps every mask that was measured, ``spent`` the cost in full passes.

    ``effects[h]`` is in margin units. ``share[h]`` is the share of examples that depend on head h (1 = all).
    ``pairs``: (a, b, effect): the effect shows only when both are out. ``backups``: (head, backup, part): this part
    of the head's effect is hidden until the backup is out too.
    """

    effects: np.ndarray
    examples: int = 100
    seed: int = 0
    share: dict[int, float] = field(default_factory=dict)
    pairs: Sequence[tuple[int, int, float]] = ()
    backups: Sequence[tuple[int, int, float]] = ()
    margin: float = 1.0
    spread: float = 0.6
    noise: float = 0.05
    binary: bool = False

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.units = len(self.effects)
        self.start = rng.normal(self.margin, self.spread, self.examples)
        load = rng.lognormal(-0.18, 0.6, (self.units, self.examples))
        for head, share in self.share.items():
            load[head] *= rng.random(self.examples) < share
        self.loads = self.effects[:, None] * load
        self.load = load
        self.weights = rng.integers(1, 2**62, self.units, dtype=np.uint64)
        self.asked: list[np.ndarray] = []
        self.spent = 0.0

    def __call__(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        assert masks.dtype == bool and masks.shape[1] == self.units
        chosen = np.arange(self.examples) if examples is None else np.asarray(examples)
        self.asked.append(masks.copy())
        self.spent += len(masks) * len(chosen) / self.examples
        margins = self.margins(masks, chosen)
        return (margins > 0).astype(float) if self.binary else 1 / (1 + np.exp(-2 * margins))

    def margins(self, masks: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        margins = self.start[chosen][None] - masks.astype(float) @ self.loads[:, chosen]
        for first, second, effect in self.pairs:
            both = masks[:, first] & masks[:, second]
            margins -= effect * both[:, None] * self.load[first][chosen][None]
        for head, backup, part in self.backups:
            hidden = masks[:, head] & ~masks[:, backup]
            margins += part * hidden[:, None] * self.loads[head][chosen][None]
        knocked = np.sqrt(np.minimum(masks.sum(1), 20))[:, None]
        return margins + self.noise * knocked * self._perturbation(masks, chosen)

    def _perturbation(self, masks: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """A standard normal per (mask, example), the same whenever it is asked for."""
        with np.errstate(over="ignore"):
            keys = (masks * self.weights).sum(1, dtype=np.uint64)
            places = chosen.astype(np.uint64) + np.uint64(self.seed * 1_000_003 + 1)
            cells = _mix(keys[:, None] + places[None] * GOLDEN)
            first = (cells >> np.uint64(11)).astype(float) / 2**53
            second = (_mix(cells + GOLDEN) >> np.uint64(11)).astype(float) / 2**53
        return np.sqrt(-2 * np.log(first + 1e-300)) * np.cos(2 * np.pi * second)


GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(cells: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser: neighbouring keys give unrelated bits."""
    cells = (cells ^ (cells >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    cells = (cells ^ (cells >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cells ^ (cells >> np.uint64(31))
