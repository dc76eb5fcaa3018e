"""The columns of a measure: units that are out together count as one candidate of a localizer.

    columns = [architecture.knockout(units) for units in ([Neuron(3, 7), Neuron(3, 9)], [Head(2, 1)])]
    knocked_out(columns, np.array([[True, True]]))      # one row: both neurons and the head

So half a million neurons are searched as a few hundred groups, by the localizers that search heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from editkit.checkpoints.knockout import Knockout, union
from editkit.measuring.ledger import Masks


def knocked_out(columns: Sequence[Knockout] | None, masks: np.ndarray) -> Masks:
    """What each row of bool[m, columns] knocks out; None: columns are the heads, and rows stay as they are."""
    if columns is None:
        return masks
    if masks.ndim != 2 or masks.shape[1] != len(columns):
        raise AssertionError(f"masks of shape {masks.shape} for {len(columns)} columns")
    return [union(columns[place] for place in np.flatnonzero(row).tolist()) for row in masks]
