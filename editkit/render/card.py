"""The model card: the checkpoint's ``README.md``, made from the evidence and from nothing else.

    render(outcome) -> "---\\nbase_model: ...\\n---\\n# Swearing on request, removed ..."

Names, prompts and outputs are data. The template can show only ``Inert`` text: any other string is refused there, so
forgetting to escape one is an error and not a hole.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.evidence.exhibits import Exhibits, Transcript
from editkit.evidence.localization import Localization
from editkit.evidence.noise import churn
from editkit.evidence.outcome import Outcome
from editkit.evidence.provenance import BaseModel, Provenance
from editkit.evidence.report import EvalReport
from editkit.evidence.row import Row
from editkit.evidence.verdict import Standing
from editkit.render import attacks, frontier, wording
from editkit.render.front_matter import front_matter, hub_id
from editkit.render.head_map import head_map, ranks_heads
from editkit.render.inert import Inert, code, fence, prose, web_address
from editkit.units import Unit
from editkit.writing.serving import serving

CITATION = """@article{bair2026compressed,
  title  = {Compressed Sensing for Capability Localization in Large Language Models},
  author = {Bair, Anna and Xu, Yixuan Even and Sun, Mingjie and Kolter, J. Zico},
  journal = {arXiv preprint arXiv:2603.03335},
  year   = {2026}
}"""

SHOWN_UNITS, ANSWERS = 40, 3
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*", re.ASCII)


def render(outcome: Outcome) -> str:
    """The whole text of ``README.md``. Its figures are expected as editkit/deltas.png and editkit/heads.png."""
    edit, localization, report, provenance = outcome.edit, outcome.localization, outcome.report, outcome.provenance
    values: dict[str, Any] = {
        "front_matter": Inert(front_matter(edit, report, provenance)),
        "citation": Inert(CITATION),
        "rung": prose(attacks.rung(outcome)),
        "noun": Inert(edit.kind),
        **_summary(edit, localization, report, provenance),
        **_evidence(report),
        "answers": _answers(report, outcome.exhibits.transcripts),
        **_finding(outcome),
        **_limits(report, outcome.exhibits, provenance),
        **_origin(edit, provenance),
    }
    return _environment().get_template("card.md.jinja").render(values)


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def inert(shown: Callable[..., str]) -> Callable[..., Inert]:
        return lambda *values: Inert(shown(*values))

    environment = Environment(
        loader=PackageLoader("editkit.render"),
        finalize=_only_inert,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    numbers = (wording.percent, wording.points, wording.effect, wording.probability, wording.share, wording.span)
    environment.filters |= {"code": code, "prose": prose} | {shown.__name__: inert(shown) for shown in numbers}
    environment.filters["bounds"] = inert(lambda effect: wording.effect_span(effect.low, effect.high))
    return environment


def _summary(edit: Edit, localization: Localization, report: EvalReport, provenance: Provenance) -> dict[str, Any]:
    base = _base_shown(provenance)
    subject, conclusion = prose(wording.subject(provenance)), wording.conclusion(localization, report)
    written = provenance.format != "evidence"
    title = f"{subject}, removed from {base}" if conclusion.met else f"Attempt to remove: {subject}, from {base}"
    if written and report.verdict.status == "reduced":
        title = f"{subject}, reduced in {base}"
    undo = {
        "checkpoint": f"`editkit undo {wording.place(provenance)} -o base` gives the unedited model back, bit for bit",
        "lora": "load the base without this adapter: its weights were never changed",
        "evidence": "nothing to undo: no model was written",
    }[provenance.format]
    return {
        "title": Inert(title),
        "met": conclusion.met,
        "verdict": Inert(conclusion.line),
        "first_reason": prose(conclusion.reason),
        "fate": Inert(wording.fate(provenance)),
        "written": written,
        "override": prose(provenance.override) if provenance.override else None,
        "headline": Inert(f"**{wording.headline(edit, report, provenance, met=conclusion.met, name=code)}**"),
        "heads_removed": Inert(wording.head_count(edit, provenance)),
        "units": _units(edit.units),
        "effect": _joined([_effect(row) for row in wording.targets(report)], "; ") or Inert("no target was measured"),
        "transfer": _joined([_effect(row) for row in wording.transfers(report)], "; "),
        "cost": _cost(report),
        "sure": _sure(edit, report),
        "noise": _noise(report),
        "look": None if provenance.look is None else Inert(wording.look(provenance.look, fresh=bool(provenance.fresh))),
        "undo": Inert(undo),
        "deltas_text": Inert("Change of every task with its 95 % interval"),
    }


def _evidence(report: EvalReport) -> dict[str, Any]:
    criteria = report.criteria
    return {
        "held_out": all(row.split == "report" for row in report.rows),
        "reused": _tasks([row for row in report.rows if row.reused]),
        "rows": report.rows,
        "words": [
            prose(f"{'retain: ' if row.role == 'retain' else ''}{wording.standing(row, report)}") for row in report.rows
        ],
        "controls": _controls(report),
        "judged": [prose(text) for text in wording.judged(report)],
        "criteria": Inert(
            f"the target keeps at most {wording.percent(criteria.goal)} % of its score above chance; no retained task "
            f"loses more than {wording.percent(criteria.damage_each)} points, nor all together more than "
            f"{wording.percent(criteria.damage_mean)} points on average.{wording.looks(criteria)}"
        ),
        "reasons": report.verdict.reasons,
    }


def _answers(report: EvalReport, transcripts: Sequence[Transcript]) -> list[Transcript]:
    """A few of the target's answers, and one of some other tasks; of each prompt the last line."""
    roles = {row.task: row.role for row in report.rows}
    asked = [told for told in transcripts if roles.get(told.task) == "target"][:ANSWERS]
    others = [told for told in transcripts if roles.get(told.task) == "retain"][:ANSWERS]
    return [replace(told, prompt=(told.prompt.rstrip().splitlines() or [""])[-1]) for told in (*asked, *others)]


def _controls(report: EvalReport) -> list[dict[str, Any]]:
    """The rows of random and of strong heads: the average, and the range of all sets."""
    rows = wording.targets(report)
    nulls = (("random", report.random_heads), ("strong", report.strong_heads))
    return [
        {
            "null": null,
            "word": Inert(word),
            "row": next((row for row in rows if row.task == null.task), rows[0]),
            "mean": math.fsum(null.deltas) / len(null.deltas),
            "span": Inert(f"all sets: {wording.between(min(null.deltas), max(null.deltas))}"),
        }
        for word, null in nulls
        if null is not None and rows and null.deltas
    ]


def _finding(outcome: Outcome) -> dict[str, Any]:
    localization, provenance = outcome.localization, outcome.provenance
    layers = len(head_map(outcome.edit, localization, provenance)) if ranks_heads(outcome) else 0
    removed = [effect for effect in localization.order if effect.unit in outcome.edit.units]
    listed = [effect for effect in removed if not math.isnan(effect.effect) or effect.given]
    slices = "columns of the down projections" if outcome.edit.kind == "neuron" else "slices of the output projections"
    difference = {
        "checkpoint": f"Their {slices} are zero in the weights; every other byte is the base's.",
        "lora": "The adapter subtracts exactly these slices and touches nothing else.",
        "evidence": "They were switched off for the measurement only: no model was written.",
    }[provenance.format]
    return {
        "heads_text": Inert(
            f"Head map, {layers} layers: the effect of every head, the {wording.fate(provenance)} and the universal "
            "ones marked"
        )
        if layers
        else None,
        "neurons_text": Inert(f"How many neurons of each layer were {wording.fate(provenance)}")
        if outcome.edit.neurons
        else None,
        "unlisted": len(outcome.edit.units) - len(listed),
        "effect_means": Inert(wording.effect_means(localization)),
        "removed": listed,
        "frontier": frontier.rows(outcome),
        "hardened": Inert(wording.hardened(outcome.exhibits.hardening, outcome.edit.kind))
        if outcome.exhibits.hardening
        else None,
        "frontier_text": Inert(
            "Share of the target that is left against the worst loss of a retained task, set by set"
        ),
        "method": localization.method,
        "seed": localization.seed,
        "evaluations": Inert(wording.count(localization.evaluations)),
        "universal": _units(localization.universal) if localization.universal else Inert("none were found"),
        "difference": Inert(difference),
    }


def _limits(report: EvalReport, exhibits: Exhibits, provenance: Provenance) -> dict[str, Any]:
    little = [row for row in wording.retained(report) if wording.says_little(row)]
    lines = [
        f"*Kept*, a loss below the budget is shown: {_shown(report, 'kept') or 'of none of the retained tasks'}.",
        f"*Not shown*, too few examples to say which: {_shown(report, 'not shown') or 'none'}.",
        f"**Lost**, a loss beyond the budget is shown: {_shown(report, 'lost') or 'none of the retained tasks'}.",
    ]
    if little:
        lines.append(f"Says little, no better than chance before the edit: {_tasks(little)}.")
    reported = {row.task for row in report.rows}
    for what, there in (
        ("Left out, as the unedited model cannot do it", False),
        ("Reported only, as it hardly does it", True),
    ):
        tasks = [task for task in exhibits.unable if (task.task in reported) == there]
        if tasks:
            named = [Inert(f"{code(task.task)} {wording.percent(task.score)} % of {task.n}") for task in tasks]
            lines.append(f"{what}: {_joined(named, ', ')}.")
    audits = exhibits.audits
    held = {True: "held", False: "**did not hold**", None: "no verdict"}
    use = (
        "The bundled model is a planted organism: it shows that the method works, not that real models are so tidy."
        if provenance.base.source == "bundled"
        else "The terms of the base and of its licence stay."
    )
    return {
        "standing": [Inert(line) for line in lines],
        "untested": [Inert(text) for text in wording.not_tested(audits)],
        "audits": [Inert(f"{code(audit.name)}: {held[audit.held]}. {prose(audit.summary)}") for audit in audits],
        "use": Inert(use),
    }


def _origin(edit: Edit, provenance: Provenance) -> dict[str, Any]:
    """The template's values for these sections."""
    base = provenance.base
    pairs = [f"{name} {version}" for name, version in sorted(provenance.versions.items())]
    seeds = [f"{name} {seed}" for name, seed in sorted(provenance.seeds.items())]
    return {
        **(_use(provenance) if provenance.format != "evidence" else {}),
        "command": fence(provenance.command, "sh"),
        "made": [
            Inert(f"Date: {code(provenance.date)}. Weights: {code(base.dtype or 'unknown')}{_dequantized(base)}."),
            Inert(f"Versions: {prose(', '.join(pairs) or 'not recorded')}"),
            Inert(f"Seeds: {prose(', '.join(seeds) or 'not recorded')}"),
            Inert(f"Edit: sha256 {code(edit.digest)}"),
        ],
        "recipe": fence(provenance.recipe_text, "yaml"),
        "hashes": fence("\n".join(f"{value}  {name}" for name, value in provenance.hashes.items()) or "not recorded"),
        "licence": _licence(provenance),
    }


def _use(provenance: Provenance) -> dict[str, Any]:
    """How a model that was written is loaded, served, checked and undone."""
    base, place, form = provenance.base, wording.place(provenance), provenance.format
    known = hub_id(base)
    load = {
        "checkpoint": "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f'model = AutoModelForCausalLM.from_pretrained("{place}")\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{place}")',
        "lora": "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n"
        f"base = AutoModelForCausalLM.from_pretrained({json.dumps(known or 'BASE')})\n"
        f'model = PeftModel.from_pretrained(base, "{place}")',
    }[form]
    version = provenance.versions.get("editkit", "")
    commands = [f"pip install editkit{f'=={version}' if _VERSION.fullmatch(version) else ''}"]
    if form == "checkpoint":
        commands += ["# the unedited model, bit for bit", f"editkit undo {place} -o base"]
    commands += ["# re-hash; exactly the named slices differ from the base and are zero"]
    commands += [f"editkit verify {place}{f' --base {shlex.quote(known)}' if known else ''}"]
    if form == "checkpoint" and provenance.repo:
        commands += ["# the same without a download of all; ten of the examples are asked again"]
        commands += [f"editkit pull-verify {place} --rerun 10"]
    serve = serving(
        form,
        place,
        base=known or ("BASE.gguf" if base.quantization else "BASE"),
        published=bool(provenance.repo),
        quantized=bool(base.quantization),
    )
    return {
        "place": None if provenance.repo else Inert(place),
        "load": fence(load, "python"),
        "serve": None if base.source == "bundled" else fence(serve, "sh"),
        "commands": fence("\n".join(commands), "sh"),
    }


def _dequantized(base: BaseModel) -> str:
    return f", dequantized from a GGUF file of {code(base.quantization)}" if base.quantization else ""


def _licence(provenance: Provenance) -> list[Inert]:
    base = provenance.base
    revision = f", revision {code(base.revision)}" if base.revision else ", revision not recorded"
    lines = [Inert(f"Base: {_base_shown(provenance)}{revision}.")]
    if base.license or base.license_name:
        link = web_address(base.license_link)
        terms = f" ([terms]({link}))" if link and "(" not in link and ")" not in link else ""
        name = code(base.license_name or base.license or "")
        lines.append(Inert(f"Licence, carried over from the base: {name}{terms}."))
    else:
        lines.append(Inert("The base names no licence. Find out its terms before you share this model."))
    return lines + [Inert(f"Notice of the base: {prose(notice)}") for notice in base.notices]


def _base_shown(provenance: Provenance) -> Inert:
    """The base in a sentence."""
    if provenance.base.source == "bundled":
        return Inert("the small model that is bundled with editkit")
    return code(wording.base_name(provenance))


def _effect(row: Row) -> Inert:
    note = wording.collapse_note(row)
    return Inert(
        f"{code(row.task)} {wording.percent(row.before.mean)} % → {wording.percent(row.after.mean)} %: "
        f"{wording.points(row.delta.mean)} points, 95 % interval {wording.span(row.delta)}, "
        f"{wording.examples(row)}, chance {wording.percent(row.chance)} %{f'; {note}' if note else ''}"
    )


def _cost(report: EvalReport) -> Inert:
    worst, rows = wording.worst(report), wording.retained(report)
    if worst is None:
        return Inert("not measured: there was no task to retain")
    mean = math.fsum(row.delta.mean for row in rows) / len(rows)
    return Inert(
        f"worst of {len(rows)} retained tasks {code(worst.task)}: {wording.points(worst.delta.mean)} points, 95 % "
        f"interval {wording.span(worst.delta)}; mean {wording.points(mean)} points; not "
        f"shown to be kept: {_shown(report, 'not shown') or 'none'}; lost: {_shown(report, 'lost') or 'none'}"
    )


def _sure(edit: Edit, report: EvalReport) -> Inert:
    rows = wording.targets(report)
    corrected = [f"p = {wording.probability(row.p if row.p_holm is None else row.p_holm)}" for row in rows]
    first = f"That it changed at all: {', '.join(corrected)} (paired, Holm). ".replace("= <", "< ") if rows else ""
    known = [row for row in rows if row.left_at_most is not None]
    first += "".join(
        f"Of {code(row.task)} at most {wording.percent(row.left_at_most)} % is left, with 95 % confidence. "
        for row in known
    )
    random = wording.null_line(report) or f"Random {edit.kind}s were not measured."
    strong = wording.strong_line(report)
    return Inert(f"{first}{random}{f' {strong}' if strong else ''}")


def _noise(report: EvalReport) -> Inert | None:
    """How many answers flip when nothing is changed."""
    flipped = churn(report.noise)
    if flipped is None:
        return None
    share, task = flipped
    if share == 0:
        return Inert("asked twice, the unedited model gave no answer another score")
    return Inert(
        f"asked twice, the unedited model scored up to {wording.percent(share)} % of its answers otherwise "
        f"({code(task)}); each interval is wider by what that changed"
    )


def _shown(report: EvalReport, standing: Standing) -> Inert:
    """The retained tasks of which this is shown."""
    return _tasks([row for row in wording.retained(report) if wording.standing(row, report) == standing])


def _tasks(rows: Sequence[Row]) -> Inert:
    return _joined([code(row.task) for row in rows], ", ")


def _units(units: Iterable[Unit]) -> Inert:
    return Inert(wording.units(units, SHOWN_UNITS))


def _joined(parts: Sequence[Inert], separator: str) -> Inert:
    return Inert(separator.join(parts))


def _only_inert(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Inert):
        raise EditkitError(f"The card's template was given text that was not made inert: {value[:60]!r}.")
    return value
