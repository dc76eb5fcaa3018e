"""What commands print, as tables for the terminal.

    show(removal(outcome))     results go to stdout (streams.py)

Names, prompts and answers are data: they are cleaned and shown as ``Text``, never read as markup. Colours follow
``NO_COLOR``; tables drop columns in narrow terminals and are not cut when piped.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from editkit.evidence.localization import Effect, Localization
from editkit.evidence.report import EvalReport
from editkit.render import wording
from editkit.render.diagnostics import joint
from editkit.render.head_map import is_certain
from editkit.render.inert import clean
from editkit.render.word_diff import Pieces, differing
from editkit.units import PLAIN, Head, Unit, kind
from editkit.units import show as names

if TYPE_CHECKING:
    from editkit.checkpoints.architecture import Architecture
    from editkit.evidence.outcome import Outcome
    from editkit.hub import Preflight, Pushed, Verification
    from editkit.localizers.universal import Universals
    from editkit.planning.inspection import Inspection
    from editkit.removal.comparison import Standings

RANKED = 20
STYLES = {
    "target": "bold",
    "transfer": "bold",
    "also": "",
    "holds": "green",
    "uncertain": "yellow",
    "degraded": "bold red",
}
GROUPS = {"target": "to remove", "transfer": "not searched", "also": "also asked"}
GROUPS |= {"holds": "kept", "uncertain": "not certain", "degraded": "degraded"}
KINDS = {"upload": "bold", "copy": "green", "keep": "dim", "delete": "yellow"}


def removal(outcome: Outcome) -> RenderableType:
    """The closing summary: verdict, scores, heads, where to look next."""
    edit, report, provenance = outcome.edit, outcome.report, outcome.provenance
    conclusion = wording.conclusion(outcome.localization, report)
    fate = wording.fate(provenance)
    written = fate == "removed"
    lines: list[RenderableType] = [
        Text.assemble(
            (" ✓ " if conclusion.met else " ✗ ", "bold green" if conclusion.met else "bold red"),
            (conclusion.line, "bold green" if conclusion.met else "bold red"),
            (f"   {wording.subject(provenance)}, {wording.base_name(provenance)}", "bold"),
        )
    ]
    if not conclusion.met:
        lines.append(Padding(Text(clean(conclusion.reason, limit=600)), (0, 0, 0, 3)))
    facts = {str(fate): f"{wording.head_count(edit, provenance)}: {_units(edit.units)}"}
    if outcome.localization.universal:
        facts["set aside"] = f"universal: {_units(outcome.localization.universal)}"
    if control := wording.null_line(report):
        facts["control"] = control
    if written:
        facts["model"] = str(outcome.out)
        facts["card"] = str(outcome.out / "README.md")
    facts["report"] = str(outcome.out / "editkit" / "report.html")
    if written:
        facts["undo"] = f"editkit undo {shlex.quote(str(outcome.out))} -o base"
    tables = [evaluation(report), *([Text(), frontier(outcome)] if outcome.exhibits.frontier else [])]
    return Group(Text(), *lines, Text(), *tables, Text(), pairs(facts), Text())


def frontier(outcome: Outcome) -> RenderableType:
    """What could be had at which damage: a line per set, by likelihood and, where it was tried, by real answers."""
    from editkit.render.frontier import rows

    def build(width: int) -> Table:
        wide = width >= 100
        titles = ("left", "#worst", "#mean") if wide else ("left", "#worst")
        table = columns(
            f"{outcome.edit.kind}s out",
            f"#{titles[0]}",
            *titles[1:],
            "#left, asked",
            *(f"{title}, asked" for title in titles[1:]),
        )
        for row in rows(outcome):
            known = (row.left, row.worst, row.mean), row.tried or (math.nan,) * 3
            cells = [
                cell
                for left, *lost in known
                for cell in (wording.percent(left), *(wording.points(-part) for part in lost))
            ]
            kept = cells if wide else [*cells[:2], *cells[3:5]]
            table.add_row(*(Text(cell, "bold" if row.chosen else "") for cell in (row.units, *kept)))
        table.caption = Text(
            " left of the target in %, change of retained tasks in points; asked: by real answers", "dim"
        )
        table.caption_justify = "left"
        return table

    return Group(Text("What could be had at which damage", "bold"), Fitting(build))


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


def localization(found: Localization, *, limit: int = RANKED) -> RenderableType:
    """Ranked units with a bar of the effect; what is not certain is dim."""
    kinds = kind(effect.unit for effect in found.order)
    if found.found:
        heading = Text("Heads in order of effect" if kinds == "head" else "Neurons in order of contrast", "bold")
    else:
        heading = Text(f"Not localized: no {kinds}s stand out; the order below may be noise.", "bold yellow")

    def build(width: int) -> Table:
        table = columns("#", kinds, "#effect", "#95 % interval")
        if width >= 60:
            table.add_column("p (corrected)", justify="right")
        if width >= 72:
            table.add_column("selectivity", justify="right")
        if width >= 84:
            table.add_column("stability", justify="right")
        if width >= 104:
            table.add_column("")
        strongest = max((abs(effect.effect) for effect in found.order if effect.effect == effect.effect), default=1.0)
        for rank, effect in enumerate(found.order[:limit], start=1):
            cells = [str(rank), f"{effect.unit}{'*' if effect.given else ''}", wording.effect(effect.effect)]
            cells += [wording.effect_span(effect.low, effect.high), wording.probability(effect.p)]
            cells += [wording.share(effect.selectivity), wording.share(effect.stability), _bar(effect, strongest)]
            style = "" if is_certain(effect) else "dim"
            table.add_row(*(Text(cell, style) for cell in cells[: len(table.columns)]))
        return table

    facts = {
        "method": f"{clean(found.method)}, seed {found.seed}, {wording.count(found.evaluations)} passes",
    }
    if kinds != "neuron":
        facts["set aside"] = f"universal: {_universals(found)}" if found.universal else "no universal heads found"
    if found.formats:
        facts["format"] = f"{_units(found.formats)}: letters fail without, the same questions as text do not"
    facts |= joint(found.diagnostics)
    if any(effect.given for effect in found.order[:limit]):
        facts["*"] = "shows only with others knocked out as well: the change it adds to theirs"
    more = len(found.order) - limit
    if more > 0:
        facts["not shown"] = f"{more} more {kinds}s; --json has them all"
    return Group(Text(), heading, Text(), Fitting(build), Text(), pairs(facts), Text())


def _universals(found: Localization) -> str:
    """Each with the way in which the model fails without it."""
    told = found.diagnostics.get("universal")
    heads = told.get("heads", {}) if isinstance(told, Mapping) else {}
    ways = {unit: heads.get(str(unit), {}).get("fails_by") for unit in found.universal}
    return ", ".join(f"{unit} ({clean(way, limit=40)})" if way else str(unit) for unit, way in ways.items())


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


def universal(found: Universals, heads: Sequence[Head]) -> RenderableType:
    """Universal heads with what each breaks. ``heads`` names the columns: ``architecture.heads``."""
    if not len(found.columns):
        reason = found.diagnostics.get("untested")
        return Text(f"No universal heads were found.{f' {clean(str(reason), limit=300)}' if reason else ''}")

    def build(width: int) -> Table:
        shown = found.tasks if width >= 34 + sum(len(task) + 3 for task in found.tasks) else ()
        table = columns("head", "#p", "fails by", *(f"#{clean(task, limit=20)}" for task in shown))
        for column, p, mode, drops in zip(found.columns, found.p, found.modes, found.drops, strict=True):
            cells = [str(heads[int(column)]), wording.probability(float(p)), clean(mode or wording.UNKNOWN)]
            table.add_row(
                *map(Text, cells), *(f"{-float(drop):+.2f}".replace("-", "−") for drop in drops[: len(shown)])
            )
        if shown:
            table.caption, table.caption_justify = Text(" change of each task's score without the head", "dim"), "left"
        return table

    facts = {"cost": f"{wording.count(found.evaluations)} passes"}
    if len(found.format_heads):
        named = _units([heads[int(column)] for column in found.format_heads])
        facts["format heads"] = f"{named}: letters fail without, the same questions as text do not"
    return Group(Text(), Fitting(build), Text(), pairs(facts), Text())


def inspection(found: Inspection) -> RenderableType:
    """A model from its metadata: layers with equal shapes share a line; what is out of reach, with its reason."""
    architecture = found.architecture
    table = columns("layers", "#heads", "#width", "#KV groups", "#neurons", "output projection")
    table.columns[-1].overflow = "fold"
    runs: list[list[Any]] = []
    neurons = _neurons(architecture)
    for site in architecture.sites:
        module = site.module.replace(f".{site.layer}.", ".{}.", 1)
        shape = (site.units, site.width, site.groups, neurons.pop(site.layer, wording.UNKNOWN), module)
        if runs and runs[-1][1] == shape and runs[-1][0][-1] == site.layer - 1:
            runs[-1][0].append(site.layer)
        else:
            runs.append([[site.layer], shape])
    for layers, (units, width, groups, each, module) in runs:
        span = f"{layers[0]}" if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"
        shared = wording.UNKNOWN if groups is None else str(groups)
        table.add_row(span, str(units), str(width), shared, each, clean(module))
    total = f"{len(architecture.heads)} heads in {len(architecture.sites)} of {architecture.layers} layers"
    mlps = len({site.layer for site in architecture.neuron_sites})
    total += f"; {architecture.neurons} neurons in {mlps}"
    facts = {"model": found.name, "type": architecture.model_type, "reachable": total}
    if neurons:
        facts["without heads"] = ", ".join(f"layer {layer}: {count} neurons" for layer, count in neurons.items())
    for word, parts in (("out of reach", architecture.unreachable), ("neurons", architecture.unreachable_neurons)):
        reasons = [f"layers {', '.join(map(str, part.layers))}: {part.reason}" for part in parts]
        facts |= {word: "; ".join(reasons)} if reasons else {}
    facts |= found.facts()
    return Group(Text(), pairs(facts), Text(), table, Text())


def _neurons(architecture: Architecture) -> dict[int, str]:
    """Layer -> its neurons: ``8192``; with experts ``128 x 768`` or ``2048 + 128 x 768``."""
    counted: dict[int, Counter[tuple[bool, int]]] = {}
    for site in architecture.neuron_sites:
        counted.setdefault(site.layer, Counter())[site.expert != PLAIN, site.units] += 1
    return {
        layer: " + ".join(
            f"{count} x {units}" if routed else str(units) for (routed, units), count in sorted(each.items())
        )
        for layer, each in sorted(counted.items())
    }


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


def preflight(checked: Preflight) -> RenderableType:
    """What will be published where, and what to know about it, before anything heavy."""
    state = f"{'exists' if checked.exists else 'new'}, {'private' if checked.private else 'public'}"
    facts = {"will go to": f"{checked.repo} ({state}), as {checked.user}"}
    if checked.base_on_hub:
        gated = ", gated or private" if checked.gated else ""
        facts["base"] = f"on this server{gated}; licence: {checked.license or 'not named on its card'}"
    if checked.bytes is not None:
        facts["size"] = f"about {checked.bytes:,} bytes, like the base; unchanged shards of a base there are copied"
    return Group(pairs(facts | _notes(checked.notes)), Text())


def pushed(found: Pushed, *, dry_run: bool = False) -> RenderableType:
    """Every operation with its bytes, the totals, and where it went."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for operation in found.operations:
        style = KINDS[operation.kind]
        table.add_row(
            Text(operation.kind, style), Text(f"{operation.bytes:,}", style), Text(clean(operation.path), style)
        )
    kinds = Counter(operation.kind for operation in found.operations)
    totals = [f"{kind} {found.bytes(kind):,} bytes in {_files(count)}" for kind, count in kinds.items()]
    state = "private" if found.private else "public"
    facts = {"in all": "; ".join(totals)}
    facts["would go to" if dry_run else "published at"] = f"{found.pull_request or found.url} ({state})"
    if dry_run:
        facts["dry run"] = "nothing was changed anywhere"
    if found.commit:
        facts["commit"] = f"{found.commit}; the files there were compared with the manifest"
    return Group(Text(), table, Text(), pairs(facts | _notes(found.notes)), Text())


def verification(found: Verification) -> RenderableType:
    """What was confirmed of a published edit."""
    facts = {
        "edit": f"{found.repo} at {found.commit}",
        "base": f"{found.base.model} at {found.base.revision}",
        "zeroed": f"{', '.join(found.units) or 'nothing'}: {found.zeroed:,} bytes, each seen to be zero",
        "edited": ", ".join(found.edited) or "no file",
        "unchanged": f"{_files(found.unchanged)}, the base's by hash",
        "read": f"{found.read:,} bytes",
    }
    line = Text.assemble((" ✓ ", "bold green"), ("Exactly the stated slices differ from the base.", "bold green"))
    return Group(Text(), line, Text(), pairs(facts), Text())


def pairs(facts: Mapping[str, Any]) -> RenderableType:
    """Names and values, aligned; values are wrapped, not cut."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(clean(str(name), limit=80)), Text(clean(str(value), limit=2000)))
    return table


@dataclass(frozen=True)
class Fitting:
    """Builds for the width at hand: the number of columns that are left to it."""

    build: Callable[[int], RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions):
        yield self.build(options.max_width)


def columns(*titles: str) -> Table:
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


def _notes(notes: tuple[str, ...]) -> dict[str, str]:
    return {"note" if len(notes) == 1 else f"note {place}": text for place, text in enumerate(notes, 1)}


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"
