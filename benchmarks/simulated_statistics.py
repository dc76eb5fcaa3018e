"""How often the printed statistics are right, in worlds where the truth is known: writes results/statistics.md.

    python benchmarks/simulated_statistics.py            # about three minutes on one core

Coverage of every interval, size of every p-value, and the power at the printed ``detectable`` change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np

from editkit.evidence.intervals import bounds
from editkit.evidence.margin_test import Flips, below_margin
from editkit.evidence.paired_tests import discordant_p, sign_flip
from editkit.evidence.power import detectable, needed
from editkit.evidence.share_left import SURE
from editkit.evidence.verdict import OPEN, PASSING, TWICE

OUT = Path(__file__).parent / "results" / "statistics.md"
RUNS = 2000
"""Samples of a world: a coverage of .95 then has a standard error of .005."""
MORE = 10_000
"""The same for sizes: of .05 then .002."""
EXAMPLES = (20, 50, 100, 200, 500, 1000)
BASES = (0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98)
CLUSTERS = (6, 10, 20, 30)
ALIKE = (0.0, 0.1, 0.3, 0.9)
"""Intraclass correlations."""
Table = list[str]


def main() -> None:
    rng = np.random.default_rng(0)
    parts = [coverage(rng), size(rng), shown(rng)]
    seeds = {words: 1, batches: 3, noise: 2, crossed: 4}
    parts += [part(np.random.default_rng(seed)) for part, seed in seeds.items()]
    OUT.write_text(
        "# Simulated worlds\n\nMade by `benchmarks/simulated_statistics.py`.\n\n" + "\n".join(parts), "utf-8"
    )
    print(OUT)


def coverage(rng: np.random.Generator) -> str:
    rows = [
        _worst("mean of 0/1 scores", (covered(apart(rng, n, p), 0.0, p) for n, p in product(EXAMPLES, BASES))),
        _worst("mean, in clusters", clustered_means(rng)),
        _worst("mean of skewed scores", skewed(rng)),
        _worst("change of 0/1 scores", changes(rng)),
        _worst("change, in clusters", clustered_changes(rng)),
    ]
    head = ["| interval | worlds | mean coverage | least coverage |", "|---|--:|--:|--:|"]
    return _section("Coverage of 95 % intervals", head + rows, COVERAGE)


COVERAGE = (
    f"{RUNS:,} samples a world, n 20 to 1,000, rates .02 to .98. In clusters: 6, 10, 20 and 30 of 5 and of 30 "
    "examples, beta-binomial with intraclass correlation 0, .1, .3 and .9."
)


def covered(sums: np.ndarray, least: float, truth: float, size: int = 1) -> float:
    """How often the bounds of these samples, float[samples, clusters], hold the truth."""
    low, high = bounds(sums, np.full(sums.shape[1], float(size)), least=least)
    return float(np.mean((low <= truth + 1e-12) & (truth - 1e-12 <= high)))


def apart(rng: np.random.Generator, n: int, rate: float, runs: int = RUNS) -> np.ndarray:
    return (rng.random((runs, n)) < rate).astype(float)


def rates(rng: np.random.Generator, mean: float, alike: float, shape: tuple[int, ...]) -> np.ndarray:
    """A rate for each cluster, which a share ``alike`` of the variance is due to."""
    if alike == 0:
        return np.full(shape, mean)
    rest = (1 - alike) / alike
    return rng.beta(mean * rest, (1 - mean) * rest, shape)


def clustered_means(rng: np.random.Generator) -> Iterable[float]:
    for groups, size, alike, p in product(CLUSTERS, (5, 30), ALIKE, BASES):
        sums = rng.binomial(size, rates(rng, p, alike, (RUNS, groups)))
        yield covered(sums, 0.0, p, size)


def clustered_changes(rng: np.random.Generator) -> Iterable[float]:
    """Losses that differ between clusters, beside gains that do not."""
    for groups, size, alike, loss, gain in product(CLUSTERS, (5, 30), ALIKE, (0.02, 0.1, 0.5, 0.9), (0.0, 0.05)):
        lost = rng.binomial(size, rates(rng, loss, alike, (RUNS, groups)))
        gained = rng.binomial(size - lost, gain)
        yield covered(gained - lost, -1.0, gain * (1 - loss) - loss, size)


def skewed(rng: np.random.Generator) -> Iterable[float]:
    for n, (a, b) in product(EXAMPLES, ((0.1, 2), (2, 0.1), (0.5, 10), (0.2, 0.2), (20, 1))):
        yield covered(rng.beta(a, b, (RUNS, n)), 0.0, a / (a + b))


def changes(rng: np.random.Generator) -> Iterable[float]:
    for n, p, lost, gained in product(EXAMPLES, BASES, (0.0, 0.02, 0.1, 0.5, 1.0), (0.0, 0.05, 0.3)):
        change = flipped(rng, n, p * lost, (1 - p) * gained)
        yield covered(change, -1.0, (1 - p) * gained - p * lost)


def flipped(rng: np.random.Generator, n: int, loss: float, gain: float, runs: int = RUNS) -> np.ndarray:
    """float[runs, n] of -1, 0 and 1."""
    draw = rng.random((runs, n))
    return np.where(draw < loss, -1.0, np.where(draw < loss + gain, 1.0, 0.0))


def size(rng: np.random.Generator) -> str:
    rows = [
        _worst("`p`, McNemar", (mcnemar_size(rng, n, churn) for n, churn in product(EXAMPLES, (0.02, 0.1, 0.3))), max),
        _worst("`p`, sign flips over clusters", sign_flip_sizes(rng), max),
        _worst("`p_kept`, examples apart", (kept_size(rng, *w) for w in product(EXAMPLES, MARGINS, CHURNS)), max),
        _worst("`p_kept`, whole clusters, 1 to 5 examples each", kept_sizes_clustered(rng), max),
        _worst("`left_at_most` below a goal that is just missed", goal_sizes(rng), max),
    ]
    head = ["| p | worlds | mean size | largest size |", "|---|--:|--:|--:|"]
    return _section("Size of tests at .05", head + rows, SIZE)


SIZE = (
    "How often nothing, or a loss of exactly the budget, is called something, or less: at most .05 is promised. "
    f"{MORE:,} samples a world; budgets 2, 5 and 10 points, churn 0 to 20 %."
)
MARGINS, CHURNS = (0.02, 0.05, 0.1), (0.0, 0.05, 0.1, 0.2)


changed = lru_cache(None)(discordant_p)


def mcnemar_size(rng: np.random.Generator, n: int, churn: float) -> float:
    counts = rng.multinomial(n, [churn / 2, churn / 2, 1 - churn], MORE).tolist()
    return float(np.mean([changed(lost, gained) <= 0.05 for lost, gained, _ in counts]))


def sign_flip_sizes(rng: np.random.Generator) -> Iterable[float]:
    """Clusters that go up or down as a whole, each as likely."""
    for groups, alike in product((6, 10, 20), ALIKE):
        up = rates(rng, 0.5, alike, (MORE, groups))
        change = rng.binomial(10, up) - rng.binomial(10, 1 - up)
        yield float(np.mean([sign_flip(row, rng=rng, flips=499) <= 0.05 for row in change]))


@lru_cache(None)
def less(lost: int, gained: int, n: int, margin: float, level: float = 0.05) -> bool:
    return below_margin(Flips(lost, gained, n), margin) <= level


def kept_size(rng: np.random.Generator, n: int, margin: float, churn: float) -> float:
    counts = rng.multinomial(n, [margin + churn / 2, churn / 2, 1 - margin - churn], MORE).tolist()
    return float(np.mean([less(lost, gained, n, margin) for lost, gained, _ in counts]))


def kept_sizes_clustered(rng: np.random.Generator) -> Iterable[float]:
    """Clusters of different sizes that are lost or gained as a whole: the worst that clustering can do."""
    for groups, margin, churn in product((20, 40, 70, 150), MARGINS, CHURNS):
        sizes = np.clip(rng.poisson(1.4, groups), 1, 5)
        change = flipped(rng, groups, margin + churn / 2, churn / 2, MORE)
        lost, gained = ((change * sign).clip(min=0) @ sizes * groups / sizes.sum() for sign in (-1, 1))
        pairs = zip(np.ceil(lost - 1e-9).astype(int), np.floor(gained + 1e-9).astype(int), strict=True)
        yield float(np.mean([less(int(down), int(up), groups, margin) for down, up in pairs]))


def goal_sizes(rng: np.random.Generator) -> Iterable[float]:
    for n, goal, (chance, before) in product(EXAMPLES, (0.15, 0.3), ((0.0, 1.0), (0.0, 0.6), (0.25, 0.9))):
        after = chance + goal * (before - chance)
        first, second = apart(rng, n, before, MORE), apart(rng, n, after, MORE)
        _, high = bounds(second - goal * first, np.ones(n), least=-goal, most=1 - goal, confidence=SURE)
        yield float(np.mean(high < chance * (1 - goal)))


def shown(rng: np.random.Generator) -> str:
    head = ["| n | churn | rows | `detectable` | its power |", "|--:|--:|--:|--:|--:|"]
    for n, churn, tests in product((50, 200, 1000), (0.0, 0.1, 0.2), (1, 9)):
        found, level = Flips(n * churn / 2, n * churn / 2, n), 0.05 / tests
        loss = detectable(found, level)
        assert loss is not None
        rates = [churn / 2 + loss, churn / 2, 1 - churn - loss]
        counts = rng.multinomial(n, rates, MORE)
        power = np.mean([changed(lost, gained) <= level for lost, gained, _ in counts.tolist()])
        head.append(f"| {n} | {churn:.0%} | {tests} | {100 * loss:.1f} points | {power:.3f} |")
    head += ["", "| budget | churn | examples that would show *kept* | how often they do |", "|--:|--:|--:|--:|"]
    for margin, churn in product((0.02, 0.05), CHURNS):
        n = needed(Flips(50 * churn, 50 * churn, 100), margin)
        counts = rng.multinomial(n, [churn / 2, churn / 2, 1 - churn], 500).tolist()
        share = np.mean([less(lost, gained, n, margin) for lost, gained, _ in counts])
        head.append(f"| {100 * margin:.0f} points | {churn:.0%} | {n} | {share:.3f} |")
    return _section("What n examples would have shown", head, SHOWN)


SHOWN = "80 % is promised. Without churn *kept* is certain as soon as it is possible."


def words(rng: np.random.Generator) -> str:
    lines = ["| budget | n | churn | true loss | kept | not shown, passes | not shown, refused | lost |"]
    lines += ["|--:|--:|--:|--:|--:|--:|--:|--:|"]
    worlds = [(0.02, n, churn, loss) for n, churn, loss in product((50, 200, 1000), WORDS, (0, 0.01, 0.02, 0.04, 0.08))]
    worlds += [(0.05, n, churn, loss) for n, churn, loss in product((50, 120, 200, 500), WORDS, (0, 0.03, 0.05, 0.1))]
    for margin, n, churn, loss in worlds:
        shares = [f"{100 * share:.0f}" for share in said(rng, margin, n, churn, loss)]
        lines.append(f"| {margin:.0%} | {n} | {churn:.0%} | {loss:.0%} | {' | '.join(shares)} |")
    return _section("How often a retained task gets which word, in percent", lines, CALLED)


WORDS = (0.0, 0.05, 0.1, 0.2)
CALLED = (
    f"Examples apart. *Refused*: more than {PASSING:.0%} of the budget was lost in the sample. *Lost* is refused too."
)


def said(rng: np.random.Generator, margin: float, n: int, churn: float, loss: float) -> list[float]:
    counts = rng.multinomial(n, [loss + churn / 2, churn / 2, 1 - loss - churn], RUNS)[:, :2]
    pairs, often = np.unique(counts, axis=0, return_counts=True)
    lost, gained = pairs[:, :1], pairs[:, 1:]
    place = np.arange(n)
    change = np.where(place < lost, -1.0, np.where(place < lost + gained, 1.0, 0.0))
    beyond = bounds(change, np.ones(n), least=-1.0)[1] < -margin
    kept = ~beyond & (lost[:, 0] <= [most_lost(up, n, margin) for up in gained[:, 0].tolist()])
    over = -change.mean(axis=1) > PASSING * margin + 1e-9
    groups = (kept, ~kept & ~beyond & ~over, ~kept & ~beyond & over, beyond)
    return [float(often[group].sum() / RUNS) for group in groups]


@lru_cache(None)
def most_lost(gained: int, n: int, margin: float) -> int:
    """The most losses beside so many gains that are still called *kept*; -1: none."""
    low, high = -1, n - gained
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if less(middle, gained, n, margin) else (low, middle - 1)
    return low


def batches(rng: np.random.Generator) -> str:
    """A budget of 5 points, 120 examples first and 200 where these leave it open, against either alone."""
    head = ["churn", "true loss", "refused by 120", "by 200", "in batches", "one of nine, in batches", "asked"]
    lines = [f"| {' | '.join([*head, '*kept* by 200', 'in batches'])} |", "|--:" * (len(head) + 2) + "|"]
    for churn, loss in product(CHURNS, (0.0, 0.03, 0.05, 0.1)):
        odds = [loss + churn / 2, churn / 2, 1 - loss - churn]
        few, rest = (rng.multinomial(n, odds, MORE)[:, :2].tolist() for n in (FIRST, WHOLE - FIRST))
        seen = [looked(*first, *more) for first, more in zip(few, rest, strict=True)]
        refused, kept, asked = zip(*seen, strict=True)
        whole = [[first[0] + more[0], first[1] + more[1]] for first, more in zip(few, rest, strict=True)]
        alone = [
            np.mean([over(lost, gained, n) for lost, gained in pairs]) for pairs, n in ((few, FIRST), (whole, WHOLE))
        ]
        once = np.mean([less(lost, gained, WHOLE, 0.05) for lost, gained in whole])
        nine = 1 - (1 - np.mean(refused)) ** 9
        shares = [f"{100 * share:.1f}" for share in (*alone, np.mean(refused), nine)]
        shares += [f"{np.mean(asked):.0f}", f"{100 * once:.0f}", f"{100 * np.mean(kept):.0f}"]
        lines.append(f"| {churn:.0%} | {loss:.0%} | {' | '.join(shares)} |")
    return _section("Examples in batches, in percent of runs", lines, BATCHES)


FIRST, WHOLE = 120, 200
BATCHES = (
    f"Budget 5 points. {FIRST} examples; where these lost more than {OPEN:.0%} of it, but not surely all, {WHOLE}. "
    f"*Kept* asks for a p of at most {TWICE} in batches, else .05. *Asked*: examples, on average. *One of nine*: "
    "of as many retained tasks, apart from each other, at least one is refused."
)


def over(lost: int, gained: int, n: int) -> bool:
    """Whether the sample lost too much to pass; what is *kept* passes all the same, with more examples than these."""
    return lost - gained > PASSING * 0.05 * n + 1e-9


@lru_cache(None)
def looked(lost: int, gained: int, more_lost: int, more_gained: int) -> tuple[bool, bool, int]:
    """Whether a task is refused, whether it is kept, and on how many examples: by the rule of ``evidence.verdict``."""
    kept = less(lost, gained, FIRST, 0.05, TWICE)
    if kept or lost - gained <= OPEN * 0.05 * FIRST + 1e-9 or beyond(lost, gained, FIRST):
        return over(lost, gained, FIRST) and not kept, kept, FIRST
    lost, gained = lost + more_lost, gained + more_gained
    kept = less(lost, gained, WHOLE, 0.05, TWICE)
    return over(lost, gained, WHOLE) and not kept, kept, WHOLE


@lru_cache(None)
def beyond(lost: int, gained: int, n: int) -> bool:
    """Whether the whole interval of the change lies beyond the budget."""
    change = np.array([[-1.0] * lost + [1.0] * gained + [0.0] * (n - lost - gained)])
    return bool(bounds(change, np.ones(n), least=-1.0)[1][0] < -0.05)


def noise(rng: np.random.Generator) -> str:
    worlds = list(product(EXAMPLES, (0.3, 0.7, 0.95), (0.0, 0.02, 0.1, 0.3)))
    rows = []
    for name, shift in (("flips both ways only", 0.0), ("and later runs lose 2 %", 0.02), ("and they lose 10 %", 0.1)):
        shares = [repeated(rng, n, right, flips, shift) for n, right, flips in worlds]
        for place, which in enumerate(("as it is", "wider by the A/A change")):
            rows.append(_worst(f"{name}; {which}", (share[place] for share in shares)))
    head = ["| answers | worlds | mean coverage | least coverage |", "|---|--:|--:|--:|"]
    return _section("Coverage of a change that is none, by answers that flip", head + rows, NOISE)


NOISE = (
    "An edit that changes nothing; 30, 70 and 95 % are right. Each time a model is asked, 0, 2, 10 or 30 % of answers "
    "flip; in the last rows the second run of the unedited model and the run of the edited one also lose right answers."
)


def repeated(rng: np.random.Generator, n: int, right: float, flips: float, shift: float) -> tuple[float, float]:
    """How often the interval of after - before holds 0: as it is, and wider by the mean of again - before."""
    truth = rng.random((RUNS, n)) < right

    def run(lost: float) -> np.ndarray:
        return (truth ^ (rng.random((RUNS, n)) < flips)) & (rng.random((RUNS, n)) >= lost)

    before, after, again = (run(lost).astype(float) for lost in (0.0, shift, shift))
    low, high = bounds(after - before, np.ones(n), least=-1.0)
    wider = np.abs((again - before).mean(axis=1))
    plain, wide = ((low - more <= 0) & (high + more >= 0) for more in (0.0, wider))
    return float(plain.mean()), float(wide.mean())


def crossed(rng: np.random.Generator) -> str:
    """Clusters that share halves: phrasings, each an opening with an ending."""
    head = [
        "| what is kept or lost together | coverage | a goal that is just missed is called reached |",
        "|---|--:|--:|",
    ]
    rows = []
    for name, by, modulo in (("a phrasing", 1, 160), ("an opening", 8, 20), ("an ending", 1, 8)):
        asked = np.argsort(rng.random((RUNS, 160)), axis=1)[:, :50]  # phrasing = opening * 8 + ending
        group = asked // by % modulo
        kept = np.take_along_axis(rng.random((RUNS, 160)) < REST, group, axis=1)
        _, high = bounds(4.0 * kept, np.full(50, 4.0), least=0.0, confidence=SURE)
        rows.append(f"| {name} | {covered(4 * kept, 0.0, REST, 4):.3f} | {np.mean(high < REST):.3f} |")
    return _section("Clusters that are alike", head + rows, CROSSED)


REST = 0.1
CROSSED = (
    "Of 20 openings with 8 endings, 160 phrasings as `swear` has them, `report` asks 50, each about four things. 10 % "
    "of what is named in the first column keeps the capability, and the rest has lost it. The intervals take each "
    "phrasing for a cluster of its own, which it is in the first row only."
)


def _worst(name: str, shares: Iterable[float], worst: Callable[..., float] = min) -> str:
    values = list(shares)
    return f"| {name} | {len(values)} | {math.fsum(values) / len(values):.3f} | {worst(values):.3f} |"


def _section(title: str, lines: Table, note: str) -> str:
    return f"## {title}\n\n{note}\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
