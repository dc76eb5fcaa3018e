"""What flips when nothing is changed: the unedited model asked twice (A/A), and what it does to the other rows.

Answers that flip both ways are in the paired changes already, and so in their intervals. What is not in them is a shift
that a whole run has: the second run of the unedited model shows one, and each row of its task allows for as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from editkit.evidence import margin_test
from editkit.evidence.row import Row


def widened(row: Row, noise: Row | None, margin: float) -> Row:
    """The row with a change that may be as much larger or smaller as the A/A run of its task went up or down.

    Args:
        noise: the A/A row of the same task; None: not measured.
        margin: the damage budget of each task, as for ``row``.
    """
    shift = 0.0 if noise is None else abs(noise.delta.mean)
    if shift == 0:
        return row
    delta = replace(row.delta, low=max(-1.0, row.delta.low - shift), high=min(1.0, row.delta.high + shift))
    row = replace(row, delta=delta)
    if row.left is not None and row.left_at_most is not None:
        above = row.before.mean - row.chance
        row = replace(row, left_at_most=max(row.left, min(1.0, row.left_at_most + shift / above)))
    if row.flips is None:
        return row
    less = max(0.0, margin - shift)
    kept, same = margin_test.below_margin(row.flips, less), margin_test.equivalence(row.flips, less)
    return replace(row, p_kept=kept, p_equivalent=same)


def churn(noise: Sequence[Row]) -> tuple[float, str] | None:
    """The largest share of answers that flipped, and of which task; None where it is not known."""
    return max(((row.flips.churn, row.task) for row in noise if row.flips is not None), default=None)
