"""One ranking out of several: what the formats of one capability have in common.

A head's effect is the one in the format that it harms least, and so is its p: a head is certain where it is certain in
every format (intersection-union test, Berger 1982). The order takes turns: first the strongest head of each format,
then the second, so that sets may be made of heads that each carry another format.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from editkit.localizers.protocol import Ranking


def common(rankings: Mapping[str, Ranking]) -> Ranking:
    """The ranking of all formats together; that of a single format is returned as it is.

    Args:
        rankings: by the format's name, all over the same columns.
    """
    several = list(rankings.values())
    if len(several) == 1:
        return several[0]
    columns = np.sort(several[0].columns)
    at = [np.argsort(ranking.columns, kind="stable") for ranking in several]
    effect, low, high, p, stability = (
        np.stack([getattr(ranking, name)[order] for ranking, order in zip(several, at, strict=True)])
        for name in ("effect", "low", "high", "p", "stability")
    )
    measured = ~np.isnan(effect).any(0)
    least = np.where(measured, np.nan_to_num(effect, nan=-np.inf).argmax(0), 0)
    best = np.stack(at).min(0)  # the sorting order is also each column's rank
    order = np.lexsort((np.nan_to_num(effect.mean(0), nan=np.inf), best))

    def of_least(values: np.ndarray) -> np.ndarray:
        return np.where(measured, values[least, np.arange(len(columns))], np.nan)[order]

    return Ranking(
        columns[order],
        of_least(effect),
        of_least(low),
        of_least(high),
        np.where(measured, p.max(0), np.nan)[order],
        np.where(measured, stability.min(0), np.nan)[order],
        found=all(ranking.found for ranking in several),
        evaluations=sum(ranking.evaluations for ranking in several),
        given={column: given for ranking in several for column, given in ranking.given.items()},
        diagnostics={name: dict(ranking.diagnostics) for name, ranking in rankings.items()},
    )
