"""What measuring prints: scores beside each other with their intervals, and two answers with what differs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from editkit.cli.shapes import Fitting, columns, pairs
from editkit.evidence.report import EvalReport
from editkit.render import wording
from editkit.render.inert import clean
from editkit.render.word_diff import Pieces, differing

if TYPE_CHECKING:
    from editkit.removal.comparison import Standings
    from editkit.removal.tryout import Answered, Tryout

ASKED, ANSWER = 200, 300
"""Characters of a prompt's end and of an answer that are shown."""
ABOVE = 0.1
"""A score that is not so much above chance shows no capability (``removal.able``)."""
STYLES = {"target": "bold", "transfer": "bold", "kept": "green", "not shown": "yellow", "lost": "bold red"}
NAMES = {"target": "to remove", "transfer": "not searched", "also": "also asked"}
"""By standing; those of retained tasks are their own names."""


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

    def build(width: int) -> Table:
        titles = ["task", *(["standing"] if width >= 60 else []), "#n", "#before", "#after", "#change"]
        titles += ["#95 % interval"] if width >= 72 else []
        titles += ["#p (Holm)", "#chance", "#collapse"] if width >= 110 else []
        table = columns(*titles, caption="scores in %, changes in points")
        for row in report.rows:
            standing = wording.standing(row, report)
            style = STYLES.get(standing, "")
            cells = [Text(NAMES.get(standing, standing), style), Text(str(row.n))]
            cells += [Text(wording.percent(row.before.mean)), Text(wording.percent(row.after.mean))]
            cells += [Text(wording.points(row.delta.mean), style), Text(wording.span(row.delta))]
            cells += [Text(wording.probability(row.p if row.p_holm is None else row.p_holm))]
            cells += [Text(wording.percent(row.chance)), Text(wording.percent(row.collapse_after))]
            cells = cells if width >= 60 else cells[1:]
            name = Text(clean(row.task, limit=40), "bold" if row.role == "target" else "")
            table.add_row(name, *cells[: len(titles) - 1])
        return table

    return Fitting(build)


def standings(scores: Standings) -> RenderableType:
    """What one model can do, task by task."""

    def build(width: int) -> Table:
        titles = ("task", "#n", "#score", "#95 % interval", *(("#chance", "#collapse") if width >= 72 else ()))
        table = columns(*titles, caption="in %")
        for row in scores.rows:
            bounds = f"{wording.percent(row.score.low)} to {wording.percent(row.score.high)}"
            cells = [str(row.n), wording.percent(row.score.mean), bounds]
            cells += [wording.percent(row.chance), wording.percent(row.collapse)]
            table.add_row(Text(clean(row.task, limit=40)), *cells[: len(titles) - 1])
        return table

    return Group(Text(), Text(clean(scores.model), "bold"), Text(), Fitting(build), Text())


def tryout(looks: Sequence[Tryout], recipe: str | None) -> RenderableType:
    """Prompts with answers and scores, task by task; then what the scores say.

    Args:
        recipe: the recipe that the tasks are of, if they are one's.
    """
    then = "a recipe with this as its target (docs/evaluation.md)"
    if recipe is not None:
        then = f"editkit plan {shlex.quote(recipe)}"
    return Group(*(line for look in looks for line in _look(look, then)))


def _look(look: Tryout, then: str) -> Iterator[RenderableType]:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in look.answers:
        mark, style = _mark(each)
        table.add_row(Text(mark, style), Text(clean(each.prompt[-ASKED:], limit=ASKED), "dim"))
        right = Text(f"   (expected: {clean(each.expected, limit=80)})", "dim")
        answer = Text(clean(each.answer, limit=ANSWER) or "(empty)", style)
        table.add_row("", answer if each.value == 1 or not each.expected else answer + right)
        if not each.valid:
            table.add_row("", Text(f"no answer: {clean(each.note)}", "yellow"))
    count, right = len(look.answers), sum(each.value == 1 for each in look.answers)
    facts = {
        "task": f"{look.task}, {look.model}",
        "score": f"{wording.percent(look.score)} %: {right} of {count} right; guessing scores "
        f"{wording.percent(look.chance)} %",
        "looks for": look.rule,
        **({"clusters": "too few: a report asks new fillings of templates already used"} if look.divided else {}),
        "next": _advice(look, then),
    }
    yield from (Text(), table, Text(), pairs(facts), Text())


def _mark(each: Answered) -> tuple[str, str]:
    if each.value in (0, 1):
        return ("✓ right", "green") if each.value else ("✗ wrong", "red")
    return f"~ {each.value:.2f}", "yellow"


def _advice(look: Tryout, then: str) -> str:
    """What a score means for what follows."""
    if look.score < look.chance + ABOVE:
        return (
            "The score is hardly above guessing. Answers that are right to your eye: the scorer looks for something "
            "else, so mend it. Answers that are wrong: this model cannot do it, and there is nothing to remove."
        )
    if any(each.value < 1 for each in look.answers):
        return f"Read those that are not right: is it the model, or the scorer? Then: {then}"
    return then


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
