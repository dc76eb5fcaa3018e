"""The model card: the checkpoint's ``README.md``, made from the evidence and from nothing else.

    render(edit, localization, report, provenance) -> "---\\nbase_model: ...\\n---\\n# Swearing on request, removed ..."

Names, prompts and outputs are data. The template can show only ``Inert`` text: any other string is refused there, so
forgetting to escape one is an error and not a hole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.evidence.exhibits import NOTHING, Audit, Exhibits
from editkit.evidence.localization import Localization
from editkit.evidence.provenance import Provenance
from editkit.evidence.report import EvalReport, Row
from editkit.render import front_matter, headmap, origin, wording
from editkit.render.inert import Inert, code, prose
from editkit.units import Unit, show

CITATION = """@article{bair2026compressed,
  title  = {Compressed Sensing for Capability Localization in Large Language Models},
  author = {Bair, Anna and Xu, Yixuan Even and Sun, Mingjie and Kolter, J. Zico},
  journal = {arXiv preprint arXiv:2603.03335},
  year   = {2026}
}"""

SHOWN_UNITS = 40


def render(
    edit: Edit,
    localization: Localization,
    report: EvalReport,
    provenance: Provenance,
    *,
    exhibits: Exhibits = NOTHING,
) -> str:
    """The whole text of ``README.md``. Its figures are expected as editkit/deltas.png and editkit/heads.png."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("editkit.render"),
        finalize=_only_inert,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    values: dict[str, Any] = {
        "front_matter": Inert(front_matter.front_matter(report, provenance)),
        "citation": Inert(CITATION),
        **_summary(edit, localization, report, provenance),
        **_evidence(report),
        **_finding(edit, localization, report, provenance),
        **_limits(report, exhibits.audits, provenance),
        **origin.origin(edit, provenance),
    }
    return environment.get_template("card.md.jinja").render(values)


def _summary(edit: Edit, localization: Localization, report: EvalReport, provenance: Provenance) -> dict[str, Any]:
    base = origin.base_shown(provenance)
    subject, conclusion = prose(wording.subject(provenance)), wording.conclusion(localization, report)
    title = f"{subject}, removed from {base}" if conclusion.met else f"Attempt to remove: {subject}, from {base}"
    undo = {
        "checkpoint": "`editkit undo THIS_FOLDER -o base` gives the unedited model back, bit for bit",
        "lora": "load the base without this adapter: its weights were never changed",
        "evidence": "nothing to undo: no model was written",
    }[provenance.format]
    return {
        "title": Inert(title),
        "met": conclusion.met,
        "verdict": Inert(conclusion.line),
        "first_reason": prose(conclusion.reason),
        "fate": Inert(wording.fate(provenance)),
        "written": provenance.format != "evidence",
        "override": prose(provenance.override) if provenance.override else None,
        "headline": Inert(f"**{wording.headline(edit, report, provenance, met=conclusion.met, name=code)}**"),
        "heads_removed": Inert(wording.head_count(edit, provenance)),
        "units": _units(edit.units),
        "effect": _joined([_effect(row) for row in wording.targets(report)], "; ") or Inert("no target was measured"),
        "cost": _cost(report),
        "sure": _sure(report),
        "undo": Inert(undo),
        "deltas_text": Inert("Change of every task with its 95 % interval"),
    }


def _evidence(report: EvalReport) -> dict[str, Any]:
    criteria = report.criteria
    return {
        "held_out": all(row.split == "report" for row in report.rows),
        "rows": [
            {
                "task": code(row.task),
                "role": Inert(row.role),
                "split": code(row.split),
                "n": row.n,
                "before": Inert(wording.percent(row.before.mean)),
                "after": Inert(wording.percent(row.after.mean)),
                "delta": Inert(wording.points(row.delta.mean)),
                "span": Inert(wording.span(row.delta)),
                "p": Inert(wording.probability(row.p if row.p_holm is None else row.p_holm)),
                "chance": Inert(wording.percent(row.chance)),
                "collapse": Inert(wording.percent(row.collapse_after)),
            }
            for row in report.rows
        ],
        "control": _control(report),
        "criteria": Inert(
            f"the target keeps at most {wording.percent(criteria.goal)} % of its score above chance; no retained task "
            f"loses more than {wording.percent(criteria.damage_each)} points, nor all together more than "
            f"{wording.percent(criteria.damage_mean)} points on average."
        ),
        "reasons": [prose(reason) for reason in report.verdict.reasons],
    }


def _finding(edit: Edit, localization: Localization, report: EvalReport, provenance: Provenance) -> dict[str, Any]:
    removed = [effect for effect in localization.order if effect.unit in edit.units]
    difference = {
        "checkpoint": "Their slices of the output projections are zero in the weights; every other byte is the base's.",
        "lora": "The adapter subtracts exactly these slices and touches nothing else.",
        "evidence": "They were switched off for the measurement only: no model was written.",
    }[provenance.format]
    return {
        "heads_text": Inert(
            f"Head map, {len(headmap.head_map(edit, localization, provenance))} layers: the effect of every head, "
            f"the {wording.fate(provenance)} and the universal ones marked"
        ),
        "effect_means": Inert(wording.effect_means(localization)),
        "removed": [
            {
                "unit": Inert(f"{effect.unit}{' (added to the others)' if effect.given else ''}"),
                "effect": Inert(wording.effect(effect.effect)),
                "span": Inert(wording.effect_span(effect.low, effect.high)),
                "p": Inert(wording.probability(effect.p)),
                "selectivity": Inert(wording.share(effect.selectivity)),
            }
            for effect in removed
        ],
        "method": code(localization.method),
        "seed": localization.seed,
        "evaluations": Inert(wording.count(localization.evaluations)),
        "universal": _units(localization.universal) if localization.universal else Inert("none were found"),
        "difference": Inert(difference),
    }


def _limits(report: EvalReport, audits: Sequence[Audit], provenance: Provenance) -> dict[str, Any]:
    groups = wording.standing(report)
    little = [row for row in wording.retained(report) if wording.says_little(row)]
    lines = [
        _group("Within the damage budget", groups.holds, "none of the retained tasks can be called unharmed"),
        _group("Not certain, the interval reaches past the budget", groups.uncertain, "none"),
        _group("**Degraded**, past the budget or surely lower", groups.degraded, "none of the retained tasks"),
    ]
    if little:
        lines.append(_group("Says little, no better than chance before the edit", little, ""))
    held = {True: "held", False: "**did not hold**", None: "no verdict"}
    use = (
        "The bundled model is a planted organism: it shows that the method works, not that real models are so tidy."
        if provenance.base.source == "bundled"
        else "The terms of the base and of its licence stay."
    )
    return {
        "standing": lines,
        "untested": [Inert(text) for text in wording.not_tested(audits)],
        "audits": [Inert(f"{code(audit.name)}: {held[audit.held]}. {prose(audit.summary)}") for audit in audits],
        "use": Inert(use),
    }


def _control(report: EvalReport) -> dict[str, Any] | None:
    """The random-heads row of the table: the average, and the range of all sets."""
    null, rows = report.random_heads, wording.targets(report)
    if null is None or not rows or not null.deltas:
        return None
    return {
        "sets": null.sets,
        "task": code(rows[0].task),
        "split": code(rows[0].split),
        "n": null.examples or rows[0].n,
        "before": Inert("" if null.examples else wording.percent(rows[0].before.mean)),
        "delta": Inert(wording.points(math.fsum(null.deltas) / len(null.deltas))),
        "span": Inert(f"all sets: {wording.between(min(null.deltas), max(null.deltas))}"),
        "chance": Inert(wording.percent(rows[0].chance)),
    }


def _effect(row: Row) -> Inert:
    return Inert(
        f"{code(row.task)} {wording.percent(row.before.mean)} % → {wording.percent(row.after.mean)} %: "
        f"{wording.points(row.delta.mean)} points, 95 % interval {wording.span(row.delta)}, "
        f"{row.n} {wording.examples(row)}, chance {wording.percent(row.chance)} %{_collapse(row)}"
    )


def _cost(report: EvalReport) -> Inert:
    worst, rows = wording.worst(report), wording.retained(report)
    if worst is None:
        return Inert("not measured: there was no task to retain")
    mean = math.fsum(row.delta.mean for row in rows) / len(rows)
    degraded = _joined([code(row.task) for row in wording.standing(report).degraded], ", ") or "none"
    return Inert(
        f"worst of {len(rows)} retained tasks {code(worst.task)}: {wording.points(worst.delta.mean)} points, 95 % "
        f"interval {wording.span(worst.delta)}; mean {wording.points(mean)} points; degraded: {degraded}"
    )


def _sure(report: EvalReport) -> Inert:
    rows = wording.targets(report)
    corrected = [f"p = {wording.probability(row.p if row.p_holm is None else row.p_holm)}" for row in rows]
    first = f"{', '.join(corrected)} (paired, Holm). ".replace("= <", "< ") if rows else ""
    return Inert(first + (wording.null_line(report) or "Random heads were not measured."))


def _group(label: str, rows: Sequence[Row], none: str) -> Inert:
    return Inert(f"{label}: {_joined([code(row.task) for row in rows], ', ') or none}.")


def _collapse(row: Row) -> str:
    note = wording.collapse_note(row)
    return f"; {note}" if note else ""


def _units(units: Sequence[Unit] | frozenset[Unit]) -> Inert:
    names = show(units)
    more = f" and {len(names) - SHOWN_UNITS} more" if len(names) > SHOWN_UNITS else ""
    return Inert((", ".join(names[:SHOWN_UNITS]) or "none") + more)


def _joined(parts: Sequence[Inert], separator: str) -> Inert:
    return Inert(separator.join(parts))


def _only_inert(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Inert):
        raise EditkitError(f"The card's template was given text that was not made inert: {value[:60]!r}.")
    return value
