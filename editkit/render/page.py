"""The report page: one self-contained file that loads nothing from anywhere and reads well without scripts.

    render(outcome) -> "<!doctype html>\\n<html lang=..."

Everything shown is data and goes through two gates in one place: hidden characters are made visible, then Jinja
escapes. The page's own policy allows no request and no script but the one whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from editkit.evidence.exhibits import Exhibits, Transcript
from editkit.evidence.localization import Effect, Localization
from editkit.evidence.outcome import Outcome
from editkit.evidence.report import EvalReport
from editkit.render import attacks, figures, frontier, layer_counts, wording
from editkit.render.diagnostics import facts
from editkit.render.head_map import MapLayer, head_map, ranks_heads, scale
from editkit.render.inert import clean, web_address
from editkit.render.word_diff import differing
from editkit.units import show

LONGEST = 20_000
"""Characters of one text that are shown."""

SHOWN_UNITS = 12
STRONGEST = 60
"""Rows in the table of heads; all of them are in the map and in localization.json."""

NAMES = {"target": "to be removed", "transfer": "not searched", "also": "also measured"}
"""By standing; those of retained tasks are their own names."""
CLASSES = {"kept": "holds", "not shown": "uncertain", "lost": "degraded"}
"""By standing; those of other tasks are their own classes."""


def render(outcome: Outcome) -> str:
    """The whole text of ``report.html``."""
    from markupsafe import Markup

    localization, report, provenance = outcome.localization, outcome.report, outcome.provenance
    style, script = _asset("report.css"), _asset("arrows.js.jinja")
    layers = head_map(outcome.edit, localization, provenance) if ranks_heads(outcome) else ()
    values: dict[str, Any] = {
        **vars(outcome),
        "noun": outcome.edit.kind,
        "style": Markup(style),
        "script": Markup(script),
        "script_hash": Markup("sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()),
        "subject": wording.subject(provenance),
        "base_name": wording.base_name(provenance),
        "licence_link": web_address(provenance.base.license_link),
        "units": wording.units(outcome.edit.units, SHOWN_UNITS),
        "universal": ", ".join(show(localization.universal)),
        "facts": facts(localization.diagnostics),
        "fate": wording.fate(provenance),
        "effect_means": wording.effect_means(localization),
        "rung": attacks.rung(outcome),
        "place": wording.place(provenance),
        "untested": wording.not_tested(outcome.exhibits.audits),
        "pairs": _pairs(report, outcome.exhibits.transcripts),
        **_results(outcome),
        **_map(layers, localization),
        **_figures(outcome),
    }
    return _template().render(values)


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("editkit.render"), autoescape=True, finalize=_visible, undefined=StrictUndefined
    )
    environment.filters |= {
        "percent": wording.percent,
        "points": wording.points,
        "probability": wording.probability,
        "share": wording.share,
        "count": wording.count,
        "collapse_note": wording.collapse_note,
        "span": wording.span,
        "effect": wording.effect,
        "bounds": lambda effect: wording.effect_span(effect.low, effect.high),
        "unknown": math.isnan,
        # Square root: a small but certain effect must not look like none.
        "shade": lambda effect, strongest: f"{math.sqrt(min(1.0, abs(effect) / strongest)):.3f}",
    }
    return environment.get_template("report.html.jinja")


def _results(outcome: Outcome) -> dict[str, Any]:
    report = outcome.report
    conclusion = wording.conclusion(outcome.localization, report)
    null = report.random_heads
    standings = [(row, wording.standing(row, report)) for row in report.rows]
    return {
        "conclusion": conclusion,
        "reduced": report.verdict.status == "reduced" and wording.fate(outcome.provenance) == "removed",
        "headline": wording.headline(outcome.edit, report, outcome.provenance, met=conclusion.met),
        "targets": wording.targets(report),
        "retained": wording.retained(report),
        "worst": wording.worst(report),
        "rows": [(row, CLASSES.get(word, word), NAMES.get(word, word)) for row, word in standings],
        "held_out": all(row.split == "report" for row in report.rows),
        "reused": ", ".join(clean(row.task, limit=80) for row in report.rows if row.reused),
        "reached": sum(delta <= null.delta for delta in null.deltas) or "none" if null else "",
        "null_line": wording.null_line(report),
        "strong_line": wording.strong_line(report),
        "judged": wording.judged(report),
        "looks": wording.looks(report.criteria),
    }


def _map(layers: tuple[MapLayer, ...], localization: Localization) -> dict[str, Any]:
    widest = max((len(layer.cells) for layer in layers), default=0)
    strongest: Sequence[Effect] = localization.order[:STRONGEST]
    return {
        "layers": layers,
        "widest": widest,
        "label_step": 1 if widest <= 40 else 4,
        "total": sum(len(layer.cells) for layer in layers),
        "largest": scale(layers),
        "strongest": strongest,
        "group_spans": _group_spans(layers),
    }


def _group_spans(layers: tuple[MapLayer, ...]) -> list[tuple[int, int]]:
    """(KV group, number of its heads) in order, if every layer is grouped alike and sharing takes place at all."""
    groupings = {tuple(cell.group for cell in layer.cells) for layer in layers}
    if len(groupings) != 1:
        return []
    groups = groupings.pop()
    names = sorted({group for group in groups if group is not None})
    return [] if None in groups or len(names) == len(groups) else [(name, groups.count(name)) for name in names]


def _figures(outcome: Outcome) -> dict[str, Any]:
    from markupsafe import Markup

    report, dose, fate = outcome.report, outcome.exhibits.dose, wording.fate(outcome.provenance)
    look, fresh = outcome.provenance.look, bool(outcome.provenance.fresh)
    chosen, goal = len(outcome.edit.units), _goal(report, outcome.exhibits)
    hardening = outcome.exhibits.hardening
    return {
        "deltas_figure": Markup(figures.deltas_svg(report)) if report.rows else "",
        "neurons_figure": Markup(layer_counts.svg(outcome)) if outcome.edit.neurons else "",
        "look": None if look is None else wording.look(look, fresh=fresh),
        "frontier_figure": Markup(frontier.svg(outcome)) if outcome.exhibits.frontier else "",
        "frontier": frontier.rows(outcome),
        "hardened": wording.hardened(hardening, outcome.edit.kind) if hardening else None,
        "dose_figure": Markup(figures.dose_svg(dose, chosen, fate, goal)) if dose else "",
        "dose_tasks": sorted({task for point in dose for task in point.retain}),
        "null_figure": Markup(figures.null_svg(report, fate)) if report.random_heads else "",
        "strong_figure": Markup(figures.strong_svg(report, fate)) if report.strong_heads else "",
    }


def _goal(report: EvalReport, exhibits: Exhibits) -> float:
    """The score that the target was to fall to on the examples of the dose curve."""
    rows = wording.targets(report)
    whole = next((point.target.mean for point in exhibits.dose if point.heads == 0), math.nan)
    return rows[0].chance + report.criteria.goal * (whole - rows[0].chance) if len(rows) == 1 else math.nan


def _pairs(report: EvalReport, transcripts: Sequence[Transcript]) -> list[dict[str, Any]]:
    """Transcripts by task, in the order of the report. Answers to the removed capability are covered at first."""
    retained = {row.task for row in wording.retained(report)}
    order = [row.task for row in report.rows]
    order += sorted({transcript.task for transcript in transcripts} - set(order))
    return [
        {"task": task, "covered": task not in retained, "pairs": [_pair(transcript) for transcript in chosen]}
        for task in order
        if (chosen := [transcript for transcript in transcripts if transcript.task == task])
    ]


def _pair(transcript: Transcript) -> dict[str, Any]:
    before, after = differing(transcript.before[:LONGEST], transcript.after[:LONGEST])
    return {
        "prompt": transcript.prompt,
        "before": before,
        "after": after,
        "same": transcript.before == transcript.after,
    }


def _visible(value: Any) -> Any:
    """Every value that the template shows passes here, then through Jinja's escaping."""
    from markupsafe import Markup

    if isinstance(value, str) and not isinstance(value, Markup):
        return clean(value, lines=True, limit=LONGEST)
    return value


def _asset(name: str) -> str:
    return (resources.files("editkit.render") / "templates" / name).read_text(encoding="utf-8")
