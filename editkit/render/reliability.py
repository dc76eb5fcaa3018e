"""A reliability run as tables, as a Markdown page and as a figure.

tables(found)[1] -> Grid("Agreement ...", ("halves of", "#pairs", ...), (("same data set, other content", "3", ...),))
page(found)      -> "# Reliability: capitals\n..."
png(found)       -> PNG bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING

from editkit.evidence.overlap import MEASURES
from editkit.evidence.reliability import RELATIONS, Agreement, Enhanced, Erased, Reliability
from editkit.render import figures, wording
from editkit.render.inert import clean, code, prose

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ARMS = ("none", "located", "random", "rest", "full")
WHERE = ("the same", "other of the capability", "same content", "others")
"""Where a training is examined, as seen from the data set that was trained on."""


@dataclass(frozen=True)
class Grid:
    """A titled table of text; a heading with a leading # is a column of numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables(found: Reliability) -> list[Grid]:
    """Every table that has rows."""
    every = [_data(found), _agreement(found), _cuts(found), _erased(found), _enhanced(found)]
    return [grid for grid in every if grid.rows]


def page(found: Reliability) -> str:
    """The whole run as Markdown."""
    sets = ", ".join(f"{len(units)} {name}" for name, units in found.located.items())
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in found.settings.items())
    parts = [
        f"# Reliability: {prose(found.capability)}",
        f"Model {code(found.model)}, {found.total:,} {found.units}; located by {found.chosen}: {sets}.",
        _separation(found),
        *(
            part
            for grid in tables(found)
            for part in (f"## {prose(grid.title)}", _markdown(grid), prose(grid.note))
            if part
        ),
        *map(prose, found.notes),
        *(prose(f"Left out: {name}. {reason}") for name, reason in found.left_out.items()),
        f"Published: overlap {found.published['overlap']} %, IoU {found.published['iou']} %. "
        + prose(str(found.published["note"])),
        f"Settings: {prose(settings)}, seed {found.seed}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _separation(found: Reliability) -> str:
    if found.separation is None:
        return ""
    return (
        f"A pair of halves of the capability has the larger IoU than a pair with another one in {found.separation:.0%}."
    )


def _markdown(grid: Grid) -> str:
    head = [title.lstrip("#") for title in grid.head]
    rule = ["--:" if title.startswith("#") else "---" for title in grid.head]
    rows = [[cell if end == "--:" else prose(cell) for cell, end in zip(row, rule, strict=True)] for row in grid.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows])


def _data(found: Reliability) -> Grid:
    rows = tuple(
        (clean(each.task), each.role, *map(str, (each.examples, each.right, each.located, each.reported, each.fresh)))
        for each in found.data
    )
    note = (
        "Only examples that the model gets right locate. Content: about the same things, another capability. Fresh: "
        "reported examples about things that no data set of the capability was located on."
    )
    head = ("data set", "role", "#asked", "#right", "#located", "#reported", "#fresh")
    return Grid("Data sets", head, rows, note)


def _agreement(found: Reliability) -> Grid:
    rows = tuple(
        (RELATIONS[each.relation], str(each.pairs), f"{each.size:.1f}", *(_against(each, name) for name in MEASURES))
        for each in found.agreement
        if each.chosen == found.chosen
    )
    note = (
        "Halves of a data set share no content. Means over pairs, in percent; in brackets what random sets of the same "
        "sizes in the same layers share."
    )
    return Grid(
        "What halves have in common", ("halves", "#pairs", "#units", *(f"#{name}" for name in MEASURES)), rows, note
    )


def _against(each: Agreement, name: str) -> str:
    if name not in each.values:
        return ""
    return f"{wording.percent(each.values[name])} ({wording.percent(each.expected[name])})"


def _cuts(found: Reliability) -> Grid:
    relations = [name for name in RELATIONS if any(each.relation == name for each in found.agreement)]
    by = {(each.chosen, each.relation): each for each in found.agreement}
    rows = tuple(
        (cut, f"{mean(by[cut, name].size for name in relations):.1f}", *(_iou(by[cut, name]) for name in relations))
        for cut in dict.fromkeys(each.chosen for each in found.agreement)
    )
    note = "IoU by how sets are chosen: standard deviations above the mean, or a number of units."
    return Grid(
        "IoU by threshold", ("located by", "#units", *(f"#{RELATIONS[name]}" for name in relations)), rows, note
    )


def _iou(each: Agreement) -> str:
    empty = f", {each.empty} empty" if each.empty else ""
    return f"{wording.percent(each.values['iou'])}{empty}" if each.values else "empty"


def _erased(found: Reliability) -> Grid:
    def row(each: Erased) -> tuple[str, ...]:
        likely, score = ("", "", ""), each.few_score[0] if each.few_score else 0.0
        if each.likelihood:
            likely = _change(each.likelihood, each.likelihood[0], each.random_likelihood, each.p_likelihood)
        answers = _change(each.score, score, each.random_score, each.p_score)
        return each.located, clean(each.task), each.role, *likely, *answers, wording.percent(each.collapse)

    head = ("erased", "data set", "role", "#likelihood", "#random", "#p", "#score", "#random", "#p", "#collapse")
    note = (
        "Before → after, in percent. Likelihood: of the model's own right answers. Random: change in points by "
        "sets of as many units in the same layers, mean and worst. p: the rank of the located set's drop among them."
    )
    return Grid("Erasing", head, tuple(map(row, found.erased)), note)


def _change(both: Sequence[float], start: float, random: Sequence[float], p: float | None) -> tuple[str, str, str]:
    """``start``: what the random sets' scores changed from."""
    before, after = map(wording.percent, both)
    draws = f"{wording.points(mean(random) - start)}, {wording.points(min(random) - start)}" if random else ""
    return f"{before} → {after}", draws, wording.probability(p) if random else ""


def _enhanced(found: Reliability) -> Grid:
    rows = []
    for school in dict.fromkeys(each.trained_on for each in found.enhanced if each.trained_on):
        for arm in ARMS:
            some = [each for each in found.enhanced if each.arm == arm and each.trained_on in ("", school)]
            numbers = f"{some[0].numbers:,}" if some else ""
            cells = [cell for where in WHERE for cell in _exam(found, some, school, where)]
            rows.append((clean(school), arm, numbers, *cells))
    head = ("trained on", "what", "#numbers", *(f"#{where}: {what}" for where in WHERE for what in ("nats", "score")))
    note = (
        "Mean ± standard deviation over seeds. Nats: log-probability of the right answer per token, nearer to 0 is "
        "better; score in percent. Random: other units of the same layers; rest: everything but the located."
    )
    return Grid("Enhancing", head, tuple(rows), note)


def _exam(found: Reliability, some: Sequence[Enhanced], school: str, where: str) -> tuple[str, str]:
    here = [each for each in some if place(each, school) == where]
    seeds = dict.fromkeys(each.seed for each in here)
    nats, scores = [], []
    for seed in seeds:
        known = [each for each in here if each.seed == seed]
        nats += [mean(each.nats for each in known if each.nats is not None)] if any(e.nats for e in known) else []
        scores.append(100 * mean(each.score for each in known))
    return _spread(nats, 3), _spread(scores, 1)


def place(each: Enhanced, school: str) -> str:
    """Where a data set stands, seen from the one that was trained on: one of ``WHERE``."""
    if each.role == "capability":
        return WHERE[0] if each.task == school else WHERE[1]
    return WHERE[2] if each.role == "content" else WHERE[3]


def _spread(values: Iterable[float], digits: int) -> str:
    several = list(values)
    if not several:
        return ""
    spread = f" ± {stdev(several):.{digits}f}" if len(several) > 1 else ""
    return f"{mean(several):.{digits}f}{spread}".replace("-", "−")


def png(found: Reliability) -> bytes:
    """Agreement, erasing and enhancing side by side."""
    return figures.png(lambda figure, theme: _draw(figure, theme, found))


def _draw(figure: Figure, theme: figures.Theme, found: Reliability) -> None:
    panels = [_draw_agreement, *([_draw_erased] if found.erased else []), *([_draw_enhanced] if found.enhanced else [])]
    figure.set_size_inches(8.4, 2.6 * len(panels))
    for panel, axis in zip(panels, figure.subplots(len(panels), 1, squeeze=False)[:, 0], strict=True):
        panel(axis, theme, found)
        figures.calm(axis, theme, grid="x")
        axis.invert_yaxis()


def _draw_agreement(axis: Axes, theme: figures.Theme, found: Reliability) -> None:
    pairs = [pair for pair in found.pairs if pair.overlap.values]
    names = [name for name in RELATIONS if any(pair.relation == name for pair in pairs)]
    for height, name in enumerate(names):
        here = [pair.overlap for pair in pairs if pair.relation == name]
        axis.plot([100 * each.values["iou"] for each in here], [height] * len(here), "o", color=theme.rise, alpha=0.7)
        chance = 100 * mean(each.expected["iou"] for each in here)
        axis.plot([chance], [height], "|", color=theme.warn, markersize=16)
    axis.set_yticks(range(len(names)), [RELATIONS[name] for name in names])
    axis.set_xlim(-2, 102)
    _titled(axis, theme, f"IoU of located sets, %, {found.chosen}; bar: by chance")


def _draw_erased(axis: Axes, theme: figures.Theme, found: Reliability) -> None:
    rows = [each for each in found.erased if each.likelihood]
    for height, each in enumerate(rows):
        before, after = each.likelihood
        axis.plot([100 * (value - before) for value in each.random_likelihood], [height] * len(each.random_likelihood),
                  "|", color=theme.soft, markersize=9)  # fmt: skip
        colour = theme.accent if each.role == "capability" else theme.good
        axis.plot([100 * (after - before)], [height], "o", color=colour)
    axis.set_yticks(range(len(rows)), [clean(f"{each.task}, {each.located}") for each in rows])
    _titled(axis, theme, "Erasing: change of the likelihood, points; bars: random sets")


def _draw_enhanced(axis: Axes, theme: figures.Theme, found: Reliability) -> None:
    start = {each.task: each.nats for each in found.enhanced if each.arm == "none"}
    marks = {"the same": ("o", theme.accent), "other of the capability": ("s", theme.rise), "others": ("^", theme.good)}
    for height, arm in enumerate(ARMS[1:]):
        for shift, (where, (mark, colour)) in enumerate(marks.items()):
            gains = [
                each.nats - before
                for each in found.enhanced
                if each.arm == arm and each.nats is not None and place(each, each.trained_on) == where
                if (before := start.get(each.task)) is not None
            ]
            label = where if height == 0 else None
            axis.plot(gains, [height + 0.22 * (shift - 1)] * len(gains), mark, color=colour, alpha=0.7, label=label)
    axis.set_yticks(range(len(ARMS) - 1), list(ARMS[1:]))
    axis.legend(frameon=False, labelcolor=theme.ink, fontsize=8)
    _titled(axis, theme, "Enhancing: gain in nats per token of the right answer, by data set asked")


def _titled(axis: Axes, theme: figures.Theme, text: str) -> None:
    axis.set_title(text, loc="left", color=theme.ink, fontsize=9.5, fontweight="bold")
