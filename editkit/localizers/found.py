"""What ``auto`` has found so far: heads, the numbers they were taken on, and which show only given others.

numbers      {17: (effect -.31, low -.38, high -.24, p .0003, stability 1.0), ...}   by position among the candidates
conditional  {88: [17, 40]}                                                          88 is needed only with these out
"""

from __future__ import annotations

import numpy as np

from editkit.evidence.localization import Ranking
from editkit.localizers.flip_test import Evidence, Row
from editkit.localizers.halving import Table

NOTABLE = 0.1
"""What is not at least this share of the strongest drop is not worth conditioning on, nor counted as a backup."""


class Found:
    """The heads taken so far, the numbers they were taken on, and which of them show only given others."""

    def __init__(self, table: Table, evidence: Evidence, finalists: np.ndarray) -> None:
        self.table = table
        self.numbers: dict[int, Row] = {}
        self.weight: dict[int, float] = {}
        self.places: list[int] = []
        self.conditional: dict[int, np.ndarray] = {}
        for place, row, needed in zip(finalists.tolist(), evidence.rows(), evidence.needed, strict=True):
            self.numbers[place] = row
            if needed:
                self.add(place, row, None)

    def add(self, place: int, row: Row, given: np.ndarray | None, beyond: float | None = None) -> None:
        """Take a head on the strength of ``row`` (effect, low, high, p, stability), measured with ``given`` out.

        Args:
            beyond: what decides its place in the order: the drop that it adds beyond its drop alone.
        """
        self.numbers[place] = row
        self.places.append(place)
        self.weight[place] = row[0] if beyond is None else beyond
        if given is not None:
            self.conditional[place] = given

    def strongest(self) -> float:
        """The largest drop of a taken head, as a change: negative."""
        return min(self.numbers[place][0] for place in self.places)

    def notable(self) -> np.ndarray:
        """Positions of the taken heads that matter next to the strongest: those to knock out when looking again."""
        least = NOTABLE * self.strongest() if self.places else 0.0
        return np.array([place for place in self.places if self.numbers[place][0] <= least], dtype=int)

    def ranking(self, diagnostics: dict[str, object]) -> Ranking:
        """Found heads by what they do (``weight``), then the others by how far they came."""
        taken = sorted(self.places, key=lambda place: self.weight[place])
        order = taken + [place for place in self.table.order().tolist() if place not in self.places]
        unknown = (float("nan"),) * 4
        means = self.table.means()
        rows = np.array([self.numbers.get(place, (float(means[place]), *unknown)) for place in order], dtype=float)
        effect, low, high, p, again = rows.T
        search, found = self.table.search, bool(self.places)
        return Ranking(search.columns[order], effect, low, high, p, again, found, search.evaluations, diagnostics)
