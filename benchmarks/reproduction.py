"""Does ``css`` recover what the paper's algorithm recovers? The algorithm again, straight from its description.

Stratified masks (each takes the heads taken least so far), 0/1 scores of the same 100 examples under every mask,
scikit-learn's Lasso (alpha .01) on standardised scores, heads in order of their coefficients; Appendix A.1 around it.
Nothing of ``editkit.localizers.masks``, ``recover`` and ``localizers.compressed`` is used (arXiv 2603.03335,
Algorithm 1).
"""

from __future__ import annotations

import platform
import warnings

import numpy as np

from benchmarks.contestants import GRID
from benchmarks.worlds import world
from editkit.localizers.compressed import Sensing, css
from tests.planted import Planted

SETTINGS = ((100, 0.02), (200, 0.05), (400, 0.05))
HEADS = 512
FIVE = 5


def stratified(heads: int, masks: int, sparsity: float, rng: np.random.Generator) -> np.ndarray:
    """0/1[masks, heads]: every row takes the heads that were taken least so far, ties at random."""
    rows, taken = np.zeros((masks, heads), dtype=int), [0] * heads
    for row in rows:
        for head in sorted(rng.permutation(heads).tolist(), key=lambda head: taken[head])[: int(sparsity * heads)]:
            row[head] = 1
            taken[head] += 1
    return rows


def coefficients(masks: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The reference code's regression: standardised scores, an intercept, alpha .01; in units of the score."""
    from sklearn.linear_model import Lasso

    standardised = (scores - scores.mean()) / scores.std()
    return Lasso(alpha=0.01, max_iter=5000).fit(masks, standardised).coef_ * scores.std()


def searched(measure: Planted, columns: np.ndarray, grid: Sensing, rng: np.random.Generator) -> np.ndarray:
    """Appendix A.1: for every setting masks of its own; the setting whose five heads lower the score most wins."""
    best: tuple[float, np.ndarray] | None = None
    for count in grid.masks:
        for sparsity in grid.sparsity:
            masks = stratified(len(columns), count, sparsity, rng)
            first = columns[np.argsort(coefficients(masks, _scores(measure, columns, masks)))]
            together = np.zeros((1, measure.units), dtype=bool)
            together[0, first[:FIVE]] = True
            score = float(measure(together).mean())
            if best is None or score < best[0]:
                best = score, first
    assert best is not None
    return best[1]


def run(seeds: int) -> str:
    """The comparison as Markdown: on the same masks, and from masks drawn anew."""
    warnings.simplefilter("ignore")
    rows, difference, same = [], 0.0, 0
    for masks, sparsity in SETTINGS:
        ours, theirs = [], []
        for seed in range(seeds):
            planted = world(HEADS, seed, "graded")
            columns = np.setdiff1d(np.arange(HEADS), planted.universals)
            planted.binary.asked.clear()
            settings = Sensing((masks,), (sparsity,), confirm=0)
            ranking = css(planted.binary, columns, np.random.default_rng(seed), settings)
            asked = planted.binary.asked[1][:, columns]  # the first was the unedited model
            again = coefficients(asked, _scores(planted.binary, columns, asked))
            place = {column: index for index, column in enumerate(columns.tolist())}
            difference = max(
                difference, np.abs(again[[place[c] for c in ranking.columns.tolist()]] - ranking.effect).max()
            )
            same += bool((columns[np.argsort(again, kind="stable")][:FIVE] == ranking.columns[:FIVE]).all())
            anew = stratified(len(columns), masks, sparsity, np.random.default_rng([seed, 9]))
            first = columns[np.argsort(coefficients(anew, _scores(planted.binary, columns, anew)))]
            ours.append(np.isin(planted.needed, ranking.columns[:FIVE]).mean())
            theirs.append(np.isin(planted.needed, first[:FIVE]).mean())
        rows.append((f"M={masks}, p={sparsity}", np.array(ours), np.array(theirs)))
    ours, theirs = np.array([_both_searches(seed) for seed in range(seeds)]).T
    rows.append((f"search over {len(GRID.masks) * len(GRID.sparsity)} settings", ours, theirs))
    return _report(rows, difference, same, seeds)


def _both_searches(seed: int) -> tuple[float, float]:
    planted = world(HEADS, seed, "graded")
    columns = np.setdiff1d(np.arange(HEADS), planted.universals)
    ours = css(planted.binary, columns, np.random.default_rng(seed), GRID).columns
    theirs = searched(planted.binary, columns, GRID, np.random.default_rng([seed, 9]))
    return tuple(float(np.isin(planted.needed, first[:FIVE]).mean()) for first in (ours, theirs))  # type: ignore[return-value]


def _scores(measure: Planted, columns: np.ndarray, masks: np.ndarray) -> np.ndarray:
    full = np.zeros((len(masks), measure.units), dtype=bool)
    full[:, columns] = masks
    return measure(full).mean(axis=1)


def _report(rows: list[tuple[str, np.ndarray, np.ndarray]], difference: float, same: int, seeds: int) -> str:
    runs = len(SETTINGS) * seeds
    lines = [
        "# `css` beside the paper's algorithm\n",
        f"Written by `python -m benchmarks.localizers --only paper` on {platform.machine()}, Python "
        f"{platform.python_version()}, numpy {np.__version__}; {seeds} planted worlds of {HEADS} heads (graded), 0/1 "
        "scores, universal heads set aside. The paper's algorithm is restated in `benchmarks/reproduction.py`.\n",
        f"**Same masks, same scores:** the first {FIVE} heads are the same in {same} of {runs} runs; the coefficients "
        f"differ by at most {difference:.1g} (score units).\n",
        "**Masks drawn anew** (other random numbers, and in the search masks of their own for every setting):\n",
        "| setting | `css`, recall@5 | the paper's, recall@5 | difference \xb1 standard error |",
        "|---|---:|---:|---:|",
    ]
    gaps = []
    for name, ours, theirs in rows:
        gap, error = (ours - theirs).mean(), (ours - theirs).std(ddof=1) / np.sqrt(len(ours))
        gaps.append(abs(gap) <= 2 * error + 1e-9)
        lines.append(f"| {name} | {ours.mean():.2f} | {theirs.mean():.2f} | {gap:+.2f} \xb1 {error:.2f} |")
    verdict = "recovers what the paper's algorithm recovers, no more and no less"
    told = f"`css` with the paper's settings {verdict}" if all(gaps) else "The two differ by more than chance explains"
    return "\n".join(
        [*lines, f"\n{told}: every difference is {'' if all(gaps) else 'not '}within two standard errors.\n"]
    )
