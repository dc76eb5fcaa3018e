"""The frontier says what was measured: no line through sets that others beat, no mean of tasks that were not asked.

If one fails: the chart shows that taking less costs more; or a set that was given up after one task looks harmless.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from editkit.render import evidence_folder
from editkit.render.frontier import rows, undominated

CARD = Path(__file__).parents[2] / "cards" / "capitals-whole-answers"


def test_the_line_falls_and_no_set_lies_below_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        sets = [tuple(pair) for pair in rng.integers(0, 6, (8, 2)).astype(float).tolist()]
        line = undominated(sets)
        assert set(line) <= set(sets) and all(a[0] < b[0] and a[1] > b[1] for a, b in zip(line, line[1:], strict=False))
        assert all(any(loss <= worse and left <= more for loss, left in line) for worse, more in sets)


def test_a_set_that_was_asked_no_further_has_a_worst_loss_and_no_mean() -> None:
    outcome = evidence_folder.read(CARD)
    points = {len(point.units): point for point in outcome.exhibits.frontier if point.answers}
    tried = {point.units: point.tried for point in rows(outcome) if point.tried}
    assert len(points) == len(tried) > 2
    for size, point in points.items():
        before, after = point.answers["antonyms-chat"]
        worst, mean = tried[f"{size} neurons"][1:]
        assert worst >= before - after - 1e-9
        assert math.isnan(mean) == (not point.lost.keys() <= point.answers.keys())
