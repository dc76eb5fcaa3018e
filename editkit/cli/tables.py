"""What searches and removals print, as tables for the terminal.

    show(removal(outcome))     results go to stdout (streams.py)

Names, prompts and answers are data: they are cleaned and shown as ``Text``, never read as markup. Colours follow
``NO_COLOR``; tables drop columns in narrow terminals and are not cut when piped.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from editkit.cli.score_tables import evaluation
from editkit.cli.shapes import Fitting, columns, pairs
from editkit.evidence.ladder import standing
from editkit.evidence.localization import Effect, Localization
from editkit.render import wording
from editkit.render.diagnostics import joint
from editkit.render.head_map import is_certain
from editkit.render.inert import clean
from editkit.units import PLAIN, Head, kind

if TYPE_CHECKING:
    from editkit.checkpoints.architecture import Architecture
    from editkit.evidence.outcome import Outcome
    from editkit.localizers.universal import Universals
    from editkit.planning.inspection import Inspection

RANKED = 20
NAMED = 24
"""Units of a set whose names are shown."""


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
    facts = {str(fate): f"{wording.head_count(edit, provenance)}: {wording.units(edit.units, NAMED)}"}
    if outcome.localization.universal:
        facts["set aside"] = f"universal: {wording.units(outcome.localization.universal, NAMED)}"
    if control := wording.null_line(report):
        facts["control"] = control
    if strong := wording.strong_line(report):
        facts["strong"] = strong
    if reused := [row.task for row in report.rows if row.reused]:
        facts["examples"] = f"new fillings of templates already used: {clean(', '.join(reused), limit=400)}"
    if judged := wording.judged(report):
        facts["judged"] = " ".join(judged)
    if outcome.attacks:
        rung = clean(standing(outcome.attacks).sentence, limit=400)
        facts["audits"] = f"{rung}. All rows: editkit audit {shlex.quote(str(outcome.out))}"
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
            caption="left of the target in %, change of retained tasks in points; asked: by real answers",
        )
        for row in rows(outcome):
            known = (row.left, row.worst, row.mean), row.tried or (math.nan,) * 3
            cells = [
                cell
                for left, *lost in known
                for cell in (wording.percent(left), *(wording.points(-loss) for loss in lost))
            ]
            kept = cells if wide else [*cells[:2], *cells[3:5]]
            table.add_row(*(Text(cell, "bold" if row.chosen else "") for cell in (row.units, *kept)))
        return table

    hardening = outcome.exhibits.hardening
    lines = [Text(wording.hardened(hardening, outcome.edit.kind))] if hardening else []
    return Group(Text("What could be had at which damage", "bold"), Fitting(build), *lines)


def localization(ranking: Localization, *, limit: int = RANKED) -> RenderableType:
    """Ranked units with a bar of the effect; what is not certain is dim."""
    kinds = kind(effect.unit for effect in ranking.order)
    if ranking.found:
        heading = Text("Heads in order of effect" if kinds == "head" else "Neurons in order of contrast", "bold")
    else:
        heading = Text(f"Not localized: no {kinds}s stand out; the order below may be noise.", "bold yellow")

    def build(width: int) -> Table:
        further = ((60, "#p (corrected)"), (72, "#selectivity"), (84, "#stability"), (104, ""))
        titles = ["#", kinds, "#effect", "#95 % interval", *(title for least, title in further if width >= least)]
        table = columns(*titles)
        strongest = max((abs(effect.effect) for effect in ranking.order if effect.effect == effect.effect), default=1.0)
        for rank, effect in enumerate(ranking.order[:limit], start=1):
            cells = [str(rank), f"{effect.unit}{'*' if effect.given else ''}", wording.effect(effect.effect)]
            cells += [wording.effect_span(effect.low, effect.high), wording.probability(effect.p)]
            cells += [wording.share(effect.selectivity), wording.share(effect.stability), _bar(effect, strongest)]
            style = "" if is_certain(effect) else "dim"
            table.add_row(*(Text(cell, style) for cell in cells[: len(titles)]))
        return table

    facts = {
        "method": f"{clean(ranking.method)}, seed {ranking.seed}, {wording.count(ranking.evaluations)} passes",
    }
    if kinds != "neuron":
        facts["set aside"] = f"universal: {_universals(ranking)}" if ranking.universal else "no universal heads found"
    if ranking.formats:
        facts["format"] = (
            f"{wording.units(ranking.formats, NAMED)}: letters fail without, the same questions as text do not"
        )
    facts |= joint(ranking.diagnostics)
    if any(effect.given for effect in ranking.order[:limit]):
        facts["*"] = "shows only with others knocked out as well: the change it adds to theirs"
    more = len(ranking.order) - limit
    if more > 0:
        facts["not shown"] = f"{more} more {kinds}s; --json has them all"
    return Group(Text(), heading, Text(), Fitting(build), Text(), pairs(facts), Text())


def _universals(localization: Localization) -> str:
    """Each with the way in which the model fails without it."""
    told = localization.diagnostics.get("universal")
    heads = told.get("heads", {}) if isinstance(told, Mapping) else {}
    ways = {unit: heads.get(str(unit), {}).get("fails_by") for unit in localization.universal}
    return ", ".join(f"{unit} ({clean(way, limit=40)})" if way else str(unit) for unit, way in ways.items())


def universal(universals: Universals, heads: Sequence[Head]) -> RenderableType:
    """Universal heads with what each breaks. ``heads`` names the columns: ``architecture.heads``."""
    if not len(universals.columns):
        reason = universals.diagnostics.get("untested")
        return Text(f"No universal heads were found.{f' {clean(str(reason), limit=300)}' if reason else ''}")

    def build(width: int) -> Table:
        shown = universals.tasks if width >= 34 + sum(len(task) + 3 for task in universals.tasks) else ()
        caption = "change of each task's score without the head" if shown else ""
        table = columns("head", "#p", "fails by", *(f"#{clean(task, limit=20)}" for task in shown), caption=caption)
        for column, p, mode, drops in zip(
            universals.columns, universals.p, universals.modes, universals.drops, strict=True
        ):
            cells = [str(heads[int(column)]), wording.probability(float(p)), clean(mode or wording.UNKNOWN)]
            table.add_row(
                *map(Text, cells), *(f"{-float(drop):+.2f}".replace("-", "−") for drop in drops[: len(shown)])
            )
        return table

    facts = {"cost": f"{wording.count(universals.evaluations)} passes"}
    if len(universals.format_heads):
        named = wording.units([heads[int(column)] for column in universals.format_heads], NAMED)
        facts["format heads"] = f"{named}: letters fail without, the same questions as text do not"
    return Group(Text(), Fitting(build), Text(), pairs(facts), Text())


def inspection(model: Inspection) -> RenderableType:
    """A model from its metadata: layers with equal shapes share a line; what is out of reach, with its reason."""
    architecture = model.architecture
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
    facts = {"model": model.name, "type": architecture.model_type, "reachable": total}
    if neurons:
        facts["without heads"] = ", ".join(f"layer {layer}: {count} neurons" for layer, count in neurons.items())
    for word, groups in (("out of reach", architecture.unreachable), ("neurons", architecture.unreachable_neurons)):
        reasons = [f"layers {', '.join(map(str, group.layers))}: {group.reason}" for group in groups]
        facts |= {word: "; ".join(reasons)} if reasons else {}
    facts |= model.facts()
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


def _bar(effect: Effect, strongest: float) -> str:
    if effect.effect != effect.effect or strongest <= 0:
        return ""
    return "█" * max(0, round(abs(effect.effect) / strongest * 16))
