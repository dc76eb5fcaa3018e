"""What measuring prints: scores beside each other with their intervals, and two answers with what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from editkit.cli.shapes import Fitting, columns
from editkit.evidence.report import EvalReport
from editkit.render import wording
from editkit.render.inert import clean
from editkit.render.word_diff import Pieces, differing

if TYPE_CHECKING:
    from editkit.removal.comparison import Standings

STYLES = {
    "target": "bold",
    "transfer": "bold",
    "also": "",
    "holds": "green",
    "uncertain": "yellow",
    "degraded": "bold red",
}
GROUPS = {"target": "to remove", "transfer": "not searched", "also": "also asked"}
GROUPS |= {"holds": "kept", "uncertain": "not shown", "degraded": "lost"}


def compared(report: EvalReport) -> RenderableType:
    """A model beside its base: the rows, then the verdict with its first reason where a removal was claimed."""
    lines: list[RenderableType] = [Text(), evaluation(report), Text()]
    if wording.targets(report):
        met, style = report.verdict.met, "bold green" if report.verdict.met else "bold red"
        lines.append(Text(f" {'✓ Criteria met' if met else '✗ Criteria not met'}", style))
        if not met and report.verdict.reasons:
            lines.append(Padding(Text(clean(report.verdict.reasons[0], limit=600)), (0, 0, 0, 3)))
        lines.append(Text())
    return Group(*lines)


def evaluation(report: EvalReport) -> RenderableType:
    """One line per task; columns go by width, the least needed first."""
    standing = wording.standing(report)

    def build(width: int) -> Table:
        table = columns("task", "#n", "#before", "#after", "#change")
        if width >= 60:
            table = columns("task", "standing", "#n", "#before", "#after", "#change")
        if width >= 72:
            table.add_column("95 % interval", justify="right")
        if width >= 110:
            for title in ("p (Holm)", "chance", "collapse"):
                table.add_column(title, justify="right")
        for row in report.rows:
            group = wording.group(row, standing)
            style = STYLES[group]
            cells = [Text(GROUPS[group], style), Text(str(row.n))]
            cells += [Text(wording.percent(row.before.mean)), Text(wording.percent(row.after.mean))]
            cells += [Text(wording.points(row.delta.mean), style), Text(wording.span(row.delta))]
            cells += [Text(wording.probability(row.p if row.p_holm is None else row.p_holm))]
            cells += [Text(wording.percent(row.chance)), Text(wording.percent(row.collapse_after))]
            cells = cells if width >= 60 else cells[1:]
            name = Text(clean(row.task, limit=40), "bold" if row.role == "target" else "")
            table.add_row(name, *cells[: len(table.columns) - 1])
        table.caption = Text(" scores in %, changes in points", "dim")
        table.caption_justify = "left"
        return table

    return Fitting(build)


def standings(found: Standings) -> RenderableType:
    """What one model can do, task by task."""

    def build(width: int) -> Table:
        table = columns("task", "#n", "#score", "#95 % interval", *(("#chance", "#collapse") if width >= 72 else ()))
        for row in found.rows:
            bounds = f"{wording.percent(row.score.low)} to {wording.percent(row.score.high)}"
            cells = [str(row.n), wording.percent(row.score.mean), bounds]
            cells += [wording.percent(row.chance), wording.percent(row.collapse)]
            table.add_row(Text(clean(row.task, limit=40)), *cells[: len(table.columns) - 1])
        table.caption, table.caption_justify = Text(" in %", "dim"), "left"
        return table

    return Group(Text(), Text(clean(found.model), "bold"), Text(), Fitting(build), Text())


def comparison(prompt: str, before: str, after: str) -> RenderableType:
    """Both answers side by side, or one below the other where that is too narrow; differing words are marked."""
    left, right = differing(clean(before, lines=True, limit=20_000), clean(after, lines=True, limit=20_000))

    def build(width: int) -> RenderableType:
        texts = _marked(left, "red"), _marked(right, "green")
        if width < 70:
            return Group(Text("before", "dim"), texts[0], Text(), Text("after", "dim"), texts[1])
        table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), header_style="dim")
        table.add_column("before", ratio=1)
        table.add_column("after", ratio=1)
        table.add_row(*texts)
        return table

    return Group(Text(), Text(clean(prompt, lines=True, limit=2000), "bold"), Text(), Fitting(build), Text())


def _marked(pieces: Pieces, colour: str) -> Text:
    """Without colours the marks still show: bold and underlined."""
    text = Text()
    for piece, changed in pieces:
        text.append(piece, f"bold underline {colour}" if changed else "")
    return text
