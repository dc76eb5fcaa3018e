"""A reliability run as tables, as a Markdown page and as a figure.

tables(run)[1] -> Grid("Agreement ...", ("halves of", "#pairs", ...), (("same data set, other content", "3", ...),))
page(run)      -> "# Reliability: capitals\n..."
png(run)       -> PNG bytes
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


def tables(run: Reliability) -> list[Grid]:
    """Every table that has rows."""
    every = [_data(run), _agreement(run), _cuts(run), _erased(run), _enhanced(run)]
    return [grid for grid in every if grid.rows]


def page(run: Reliability) -> str:
    """The whole run as Markdown."""
    sets = ", ".join(f"{len(units)} {name}" for name, units in run.located.items())
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in run.settings.items())
    paragraphs = [
        f"# Reliability: {prose(run.capability)}",
        f"Model {code(run.model)}, {run.total:,} {run.units}; located by {run.chosen}: {sets}.",
        _separation(run),
        *(text for grid in tables(run) for text in (f"## {prose(grid.title)}", _markdown(grid), prose(grid.note))),
        *map(prose, run.notes),
        *(prose(f"Left out: {name}. {reason}") for name, reason in run.left_out.items()),
        f"Published: overlap {run.published['overlap']} %, IoU {run.published['iou']} %. "
        + prose(str(run.published["note"])),
        f"Settings: {prose(settings)}, seed {run.seed}.",
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _separation(run: Reliability) -> str:
    if run.separation is None:
        return ""
    return (
        f"A pair of halves of the capability has the larger IoU than a pair with another one in {run.separation:.0%}."
    )


def _markdown(grid: Grid) -> str:
    head = [title.lstrip("#") for title in grid.head]
    rule = ["--:" if title.startswith("#") else "---" for title in grid.head]
    rows = [[cell if end == "--:" else prose(cell) for cell, end in zip(row, rule, strict=True)] for row in grid.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows])


def _data(run: Reliability) -> Grid:
    rows = tuple(
        (clean(data.task), data.role, *map(str, (data.examples, data.right, data.located, data.reported, data.fresh)))
        for data in run.data
    )
    note = (
        "Only examples that the model gets right locate. Content: about the same things, another capability. Fresh: "
        "reported examples about things that no data set of the capability was located on."
    )
    head = ("data set", "role", "#asked", "#right", "#located", "#reported", "#fresh")
    return Grid("Data sets", head, rows, note)


def _agreement(run: Reliability) -> Grid:
    rows = tuple(
        (
            RELATIONS[agreement.relation],
            str(agreement.pairs),
            f"{agreement.size:.1f}",
            *(_against(agreement, name) for name in MEASURES),
        )
        for agreement in run.agreement
        if agreement.chosen == run.chosen
    )
    note = (
        "Halves of a data set share no content. Means over pairs, in percent; in brackets what random sets of the same "
        "sizes in the same layers share."
    )
    return Grid(
        "What halves have in common", ("halves", "#pairs", "#units", *(f"#{name}" for name in MEASURES)), rows, note
    )


def _against(agreement: Agreement, name: str) -> str:
    if name not in agreement.values:
        return ""
    return f"{wording.percent(agreement.values[name])} ({wording.percent(agreement.expected[name])})"


def _cuts(run: Reliability) -> Grid:
    relations = [name for name in RELATIONS if any(agreement.relation == name for agreement in run.agreement)]
    by = {(agreement.chosen, agreement.relation): agreement for agreement in run.agreement}
    rows = tuple(
        (cut, f"{mean(by[cut, name].size for name in relations):.1f}", *(_iou(by[cut, name]) for name in relations))
        for cut in dict.fromkeys(agreement.chosen for agreement in run.agreement)
    )
    note = "IoU by how sets are chosen: standard deviations above the mean, or a number of units."
    return Grid(
        "IoU by threshold", ("located by", "#units", *(f"#{RELATIONS[name]}" for name in relations)), rows, note
    )


def _iou(agreement: Agreement) -> str:
    empty = f", {agreement.empty} empty" if agreement.empty else ""
    return f"{wording.percent(agreement.values['iou'])}{empty}" if agreement.values else "empty"


def _erased(run: Reliability) -> Grid:
    def row(erased: Erased) -> tuple[str, ...]:
        likely, score = ("", "", ""), erased.few_score[0] if erased.few_score else 0.0
        if erased.likelihood:
            likely = _change(erased.likelihood, erased.likelihood[0], erased.random_likelihood, erased.p_likelihood)
        answers = _change(erased.score, score, erased.random_score, erased.p_score)
        return erased.located, clean(erased.task), erased.role, *likely, *answers, wording.percent(erased.collapse)

    head = ("erased", "data set", "role", "#likelihood", "#random", "#p", "#score", "#random", "#p", "#collapse")
    note = (
        "Before → after, in percent. Likelihood: of the model's own right answers. Random: change in points by "
        "sets of as many units in the same layers, mean and worst. p: the rank of the located set's drop among them."
    )
    return Grid("Erasing", head, tuple(map(row, run.erased)), note)


def _change(both: Sequence[float], start: float, random: Sequence[float], p: float | None) -> tuple[str, str, str]:
    """``start``: what the random sets' scores changed from."""
    before, after = map(wording.percent, both)
    draws = f"{wording.points(mean(random) - start)}, {wording.points(min(random) - start)}" if random else ""
    return f"{before} → {after}", draws, wording.probability(p) if random else ""


def _enhanced(run: Reliability) -> Grid:
    rows = []
    for school in dict.fromkeys(exam.trained_on for exam in run.enhanced if exam.trained_on):
        for arm in ARMS:
            exams = [exam for exam in run.enhanced if exam.arm == arm and exam.trained_on in ("", school)]
            numbers = f"{exams[0].numbers:,}" if exams else ""
            rate = f"{exams[0].rate:g}" if exams and exams[0].rate else ""
            cells = [cell for where in WHERE for cell in _exam(run, exams, school, where)]
            rows.append((clean(school), arm, numbers, rate, *cells))
    asked = (f"#{where}: {what}" for where in WHERE for what in ("nats", "score"))
    head = ("trained on", "what", "#numbers", "#rate", *asked)
    note = (
        "Mean ± standard deviation over seeds. Nats: log-probability of the right answer per token, nearer to 0 is "
        "better; score in percent. Rate: where several were tried, the best by other examples. Random: other units of "
        "the same layers; rest: everything but the located."
    )
    return Grid("Enhancing", head, tuple(rows), note)


def _exam(run: Reliability, exams: Sequence[Enhanced], school: str, where: str) -> tuple[str, str]:
    here = [exam for exam in exams if standing(exam, school) == where]
    seeds = dict.fromkeys(exam.seed for exam in here)
    nats, scores = [], []
    for seed in seeds:
        of_seed = [exam for exam in here if exam.seed == seed]
        nats += [mean(exam.nats for exam in of_seed if exam.nats is not None)] if any(e.nats for e in of_seed) else []
        scores.append(100 * mean(exam.score for exam in of_seed))
    return _spread(nats, 3), _spread(scores, 1)


def standing(exam: Enhanced, school: str) -> str:
    """Where a data set stands, seen from the one that was trained on: one of ``WHERE``."""
    if exam.role == "capability":
        return WHERE[0] if exam.task == school else WHERE[1]
    return WHERE[2] if exam.role == "content" else WHERE[3]


def _spread(values: Iterable[float], digits: int) -> str:
    several = list(values)
    if not several:
        return ""
    spread = f" ± {stdev(several):.{digits}f}" if len(several) > 1 else ""
    return f"{mean(several):.{digits}f}{spread}".replace("-", "−")


def png(run: Reliability) -> bytes:
    """Agreement, erasing and enhancing side by side."""
    return figures.png(lambda figure, theme: _draw(figure, theme, run))


def _draw(figure: Figure, theme: figures.Theme, run: Reliability) -> None:
    panels = [_draw_agreement, *([_draw_erased] if run.erased else []), *([_draw_enhanced] if run.enhanced else [])]
    figure.set_size_inches(8.4, 2.6 * len(panels))
    for panel, axis in zip(panels, figure.subplots(len(panels), 1, squeeze=False)[:, 0], strict=True):
        panel(axis, theme, run)
        figures.calm(axis, theme, grid="x")
        axis.invert_yaxis()


def _draw_agreement(axis: Axes, theme: figures.Theme, run: Reliability) -> None:
    pairs = [pair for pair in run.pairs if pair.overlap.values]
    names = [name for name in RELATIONS if any(pair.relation == name for pair in pairs)]
    for height, name in enumerate(names):
        here = [pair.overlap for pair in pairs if pair.relation == name]
        axis.plot([100 * each.values["iou"] for each in here], [height] * len(here), "o", color=theme.rise, alpha=0.7)
        chance = 100 * mean(each.expected["iou"] for each in here)
        axis.plot([chance], [height], "|", color=theme.warn, markersize=16)
    axis.set_yticks(range(len(names)), [RELATIONS[name] for name in names])
    axis.set_xlim(-2, 102)
    _titled(axis, theme, f"IoU of located sets, %, {run.chosen}; bar: by chance")


def _draw_erased(axis: Axes, theme: figures.Theme, run: Reliability) -> None:
    rows = [erased for erased in run.erased if erased.likelihood]
    for height, erased in enumerate(rows):
        before, after = erased.likelihood
        random = [100 * (value - before) for value in erased.random_likelihood]
        axis.plot(random, [height] * len(random), "|", color=theme.soft, markersize=9)
        colour = theme.accent if erased.role == "capability" else theme.good
        axis.plot([100 * (after - before)], [height], "o", color=colour)
    axis.set_yticks(range(len(rows)), [clean(f"{erased.task}, {erased.located}") for erased in rows])
    _titled(axis, theme, "Erasing: change of the likelihood, points; bars: random sets")


def _draw_enhanced(axis: Axes, theme: figures.Theme, run: Reliability) -> None:
    start = {exam.task: exam.nats for exam in run.enhanced if exam.arm == "none"}
    marks = {"the same": ("o", theme.accent), "other of the capability": ("s", theme.rise), "others": ("^", theme.good)}
    for height, arm in enumerate(ARMS[1:]):
        for shift, (where, (mark, colour)) in enumerate(marks.items()):
            gains = [
                exam.nats - before
                for exam in run.enhanced
                if exam.arm == arm and exam.nats is not None and standing(exam, exam.trained_on) == where
                if (before := start.get(exam.task)) is not None
            ]
            label = where if height == 0 else None
            axis.plot(gains, [height + 0.22 * (shift - 1)] * len(gains), mark, color=colour, alpha=0.7, label=label)
    axis.set_yticks(range(len(ARMS) - 1), list(ARMS[1:]))
    axis.legend(frameon=False, labelcolor=theme.ink, fontsize=8)
    _titled(axis, theme, "Enhancing: gain in nats per token of the right answer, by data set asked")


def _titled(axis: Axes, theme: figures.Theme, text: str) -> None:
    axis.set_title(text, loc="left", color=theme.ink, fontsize=9.5, fontweight="bold")
