"""The terminal's tables and progress: results to stdout, progress and notes to stderr.

    show(removal(outcome))
    with stages()("Finding heads", 4000) as advance: advance(100)

Names, prompts and answers are data: they are cleaned and shown as ``Text``, never read as markup. Colours follow
``NO_COLOR``; tables drop columns in narrow terminals and are not cut when piped.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from editkit.architecture import Architecture
from editkit.evaluation import EvalReport, Row
from editkit.localization import Effect, Localization
from editkit.render import wording
from editkit.render.differing import Pieces, differing
from editkit.render.headmap import is_certain
from editkit.render.inert import clean
from editkit.render.stages import stages
from editkit.units import Unit
from editkit.units import show as names

if TYPE_CHECKING:
    from editkit.outcome import Outcome

__all__ = [
    "comparison",
    "console",
    "evaluation",
    "inspection",
    "localization",
    "pairs",
    "removal",
    "show",
    "stages",
    "universal",
]

PIPED_WIDTH = 160
"""Columns when the output is no terminal and nobody said how wide it is: enough that no table is cut."""

RANKED = 20
NEAREST = {"−": "-", "–": "-", "→": "->", "…": "...", "✓": "+", "✗": "x", "█": "#", "’": "'"}
STYLES = {"target": "bold", "holds": "green", "uncertain": "yellow", "degraded": "bold red"}
GROUPS = {"target": "to remove", "holds": "kept", "uncertain": "not certain", "degraded": "degraded"}


def show(result: RenderableType) -> None:
    """Print a result to stdout."""
    console(sys.stdout).print(result)


def console(stream: IO[str]) -> Console:
    """A console on ``stream`` that honours NO_COLOR and COLUMNS, and never fails on a character it cannot write."""
    if hasattr(stream, "reconfigure"):
        codecs.register_error("editkit", _nearest)
        stream.reconfigure(errors="editkit")  # type: ignore[attr-defined]
    piped = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(file=stream, width=PIPED_WIDTH if piped else None, highlight=False, emoji=False)


def removal(outcome: Outcome) -> RenderableType:
    """The closing summary: verdict, scores, heads, where to look next."""
    edit, report, provenance = outcome.edit, outcome.report, outcome.provenance
    conclusion = wording.conclusion(outcome.localization, report)
    written = provenance.format != "evidence"
    lines: list[RenderableType] = [
        Text.assemble(
            (" ✓ " if conclusion.met else " ✗ ", "bold green" if conclusion.met else "bold red"),
            (conclusion.line, "bold green" if conclusion.met else "bold red"),
            (f"   {wording.subject(provenance)}, {wording.base_name(provenance)}", "bold"),
        )
    ]
    if not conclusion.met:
        lines.append(Padding(Text(clean(conclusion.reason, limit=600)), (0, 0, 0, 3)))
    facts = {("removed" if written else "tried"): f"{wording.head_count(edit, provenance)}: {_units(edit.units)}"}
    if outcome.localization.universal:
        facts["set aside"] = f"universal: {_units(outcome.localization.universal)}"
    if control := wording.null_line(report):
        facts["control"] = control
    if written:
        facts["model"] = str(outcome.out)
        facts["card"] = str(outcome.out / "README.md")
    facts["report"] = str(outcome.out / "editkit" / "report.html")
    if written:
        facts["undo"] = f"editkit undo {_path(outcome.out)} -o base"
    return Group(Text(), *lines, Text(), evaluation(report), Text(), pairs(facts), Text())


def evaluation(report: EvalReport) -> RenderableType:
    """One line per task; columns go by width, the least needed first."""
    standing = wording.standing(report)

    def group(row: Row) -> str:
        if row.role == "target":
            return "target"
        return next(name for name in ("holds", "uncertain", "degraded") if row in getattr(standing, name))

    def build(width: int) -> Table:
        table = _table("task", "#n", "#before", "#after", "#change")
        if width >= 60:
            table = _table("task", "standing", "#n", "#before", "#after", "#change")
        if width >= 72:
            table.add_column("95 % interval", justify="right")
        if width >= 110:
            for title in ("p (Holm)", "chance", "collapse"):
                table.add_column(title, justify="right")
        for row in report.rows:
            style = STYLES[group(row)]
            cells = [Text(GROUPS[group(row)], style), Text(str(row.n))]
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

    return _Fitting(build)


def localization(found: Localization, *, limit: int = RANKED) -> RenderableType:
    """Ranked heads with a bar of the effect; what is not certain is dim."""
    if found.found:
        heading = Text("Heads in order of effect", "bold")
    else:
        heading = Text("Not localized: no heads stand out; the order below may be noise.", "bold yellow")

    def build(width: int) -> Table:
        table = _table("#", "head", "#effect", "#95 % interval")
        if width >= 60:
            table.add_column("p (corrected)", justify="right")
        if width >= 72:
            table.add_column("selectivity", justify="right")
        if width >= 92:
            table.add_column("")
        strongest = max((abs(effect.effect) for effect in found.order if effect.effect == effect.effect), default=1.0)
        for rank, effect in enumerate(found.order[:limit], start=1):
            cells = [str(rank), str(effect.unit), wording.points(effect.effect)]
            cells += [wording.between(effect.low, effect.high), wording.probability(effect.p)]
            cells += [wording.share(effect.selectivity), _bar(effect, strongest)]
            style = "" if is_certain(effect) else "dim"
            table.add_row(*(Text(cell, style) for cell in cells[: len(table.columns)]))
        return table

    facts = {
        "method": f"{clean(found.method)}, seed {found.seed}, {wording.count(found.evaluations)} passes",
        "set aside": f"universal: {_units(found.universal)}" if found.universal else "no universal heads found",
    }
    more = len(found.order) - limit
    if more > 0:
        facts["not shown"] = f"{more} more heads; --json has them all"
    return Group(Text(), heading, Text(), _Fitting(build), Text(), pairs(facts), Text())


def universal(effects: Sequence[Effect]) -> RenderableType:
    """Universal heads, strongest first."""
    if not effects:
        return Text("No universal heads were found.")
    table = _table("head", "#effect", "#95 % interval", "#p (corrected)")
    for effect in effects:
        cells = (str(effect.unit), wording.points(effect.effect), wording.between(effect.low, effect.high))
        table.add_row(*cells, wording.probability(effect.p))
    return table


def inspection(name: str, architecture: Architecture) -> RenderableType:
    """Layers with equal shapes share a line; what is out of reach is said with its reason."""
    table = _table("layers", "#heads", "#width", "#KV groups", "output projection")
    runs: list[list[Any]] = []
    for site in architecture.sites:
        shape = (site.units, site.width, site.groups, site.module.replace(f".{site.layer}.", ".{}.", 1))
        if runs and runs[-1][1] == shape and runs[-1][0][-1] == site.layer - 1:
            runs[-1][0].append(site.layer)
        else:
            runs.append([[site.layer], shape])
    for layers, (units, width, groups, module) in runs:
        span = f"{layers[0]}" if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"
        table.add_row(span, str(units), str(width), wording.UNKNOWN if groups is None else str(groups), clean(module))
    total = f"{len(architecture.heads)} heads in {len(architecture.sites)} of {architecture.layers} layers"
    facts = {"model": clean(name), "type": clean(architecture.model_type), "reachable": total}
    for part in architecture.unreachable:
        listed = ", ".join(str(layer) for layer in part.layers)
        facts[f"out of reach: layers {listed}"] = clean(part.reason)
    return Group(Text(), pairs(facts), Text(), table, Text())


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

    return Group(Text(), Text(clean(prompt, lines=True, limit=2000), "bold"), Text(), _Fitting(build), Text())


def pairs(facts: Mapping[str, Any]) -> RenderableType:
    """Names and values, aligned; values are wrapped, not cut."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(clean(str(name), limit=80)), Text(clean(str(value), limit=2000)))
    return table


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """What a stream without Unicode shows: a minus sign must not become a question mark."""
    assert isinstance(error, UnicodeEncodeError), "only writing can fail so"
    found = error.object[error.start : error.end]
    return "".join(NEAREST.get(character, "?") for character in found), error.end


@dataclass(frozen=True)
class _Fitting:
    """Builds for the width at hand: the number of columns that are left to it."""

    build: Callable[[int], RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions):
        yield self.build(options.max_width)


def _table(*titles: str) -> Table:
    """A plain table; a title with a leading # is a column of numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), header_style="dim", show_edge=False)
    for title in titles:
        number = title.startswith("#")
        table.add_column(title[1:] if number and len(title) > 1 else title, justify="right" if number else "left")
    return table


def _bar(effect: Effect, strongest: float) -> str:
    if effect.effect != effect.effect or strongest <= 0:
        return ""
    return "█" * max(0, round(abs(effect.effect) / strongest * 16))


def _marked(pieces: Pieces, colour: str) -> Text:
    """Without colours the marks still show: bold and underlined."""
    text = Text()
    for piece, changed in pieces:
        text.append(piece, f"bold underline {colour}" if changed else "")
    return text


def _units(units: Sequence[Unit] | frozenset[Unit]) -> str:
    listed = names(units)
    return ", ".join(listed[:24]) + (f" and {len(listed) - 24} more" if len(listed) > 24 else "") or "none"


def _path(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
