"""Numbers and verdicts in words: the one wording that the card, the page and the terminal share.

Scores are shown in percent with one decimal, changes in points: ``percent(0.9933) == "99.3"``,
``points(-0.9733) == "−97.3"``, ``probability(0.0196) == "0.020"``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from editkit.edit import Edit
from editkit.evidence import verdict
from editkit.evidence.exhibits import Audit
from editkit.evidence.hardening import Hardening
from editkit.evidence.intervals import Interval
from editkit.evidence.localization import Localization
from editkit.evidence.power import ALPHA
from editkit.evidence.provenance import Provenance
from editkit.evidence.report import EvalReport
from editkit.evidence.row import Row
from editkit.evidence.verdict import Criteria
from editkit.render.inert import clean
from editkit.units import Unit, kind, show

UNKNOWN = "–"

NOTABLE = 0.05
"""From this share on collapse is named beside the score; below it is in the table."""

EFFECTS = {
    "likelihood": "An effect is the change, in points, of the probability that the model gives its own correct answers "
    "when this {unit} alone is switched off.",
    "answers": "An effect is the change of the task's score, in points, when this {unit} alone is switched off, on the "
    "examples of the search.",
}
"""By what the search looked at. A likelihood is no score: a small change of it can turn many answers, or none."""

Fate = Literal["removed", "tried"]

NOT_TESTED = {
    "relearn": "Relearning: whether a little fine-tuning brings the capability back. Only a few slices of the "
    "weights are zeroed and the rest of the network is intact, so expect that it can.",
    "quantize": "Quantization: whether the removal holds in 8 or 4 bits.",
    "prompts": "Jailbreak, prefilled, few-shot and rephrased prompts made to bring the capability back.",
    "sampling": "Sampling: all answers were greedy; a higher temperature was not tried.",
    "languages": "Other languages than that of the prompts.",
    "skills": "Every skill that has no row in the table above.",
}
"""What a report says nothing about unless an audit of that name was run."""
ANSWERED = {"relearn": {"relearning"}, "quantize": {"rounding"}, "prompts": {"prefill", "few-shot", "paraphrases"}}
"""The audits of ``editkit audit`` that answer the same question."""


def effect_means(localization: Localization) -> str:
    """What an effect of this search is, in two sentences."""
    kinds = kind(effect.unit for effect in localization.order)
    said = EFFECTS.get(str(localization.diagnostics.get("scores")), EFFECTS["likelihood"]).format(unit=kinds)
    if kinds == "head":
        return f"{said} The search ranks heads by it."
    return f"{said} Neurons are in order of contrast: how much the target's answers depend on one, and no other task's."


def percent(value: float | None) -> str:
    return UNKNOWN if value is None or math.isnan(value) else f"{_plain(value * 100):.1f}".replace("-", "−")


def points(value: float | None) -> str:
    if value is None or math.isnan(value):
        return UNKNOWN
    shown = _plain(value * 100)
    return f"{shown:+.1f}".replace("-", "−") if shown else "0.0"


def effect(value: float) -> str:
    """The change one head makes, in points; those below one with two decimals: ``−13.7``, ``−0.04``."""
    if math.isnan(value) or abs(value) >= 0.01:
        return points(value)
    shown = round(value * 100, 2) + 0.0
    return f"{shown:+.2f}".replace("-", "−") if shown else "0.0"


def effect_span(low: float, high: float) -> str:
    return UNKNOWN if math.isnan(low) or math.isnan(high) else f"{effect(low)} to {effect(high)}"


def probability(value: float | None) -> str:
    if value is None or math.isnan(value):
        return UNKNOWN
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def count(value: float) -> str:
    """A count with thousands apart; evaluations may be fractions."""
    return UNKNOWN if math.isnan(value) else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def span(interval: Interval) -> str:
    """The bounds of a change: ``−99.3 to −94.7``."""
    return between(interval.low, interval.high)


def between(low: float, high: float) -> str:
    return UNKNOWN if math.isnan(low) or math.isnan(high) else f"{points(low)} to {points(high)}"


def share(value: float) -> str:
    """A fraction with two decimals: selectivity, stability."""
    return UNKNOWN if math.isnan(value) else f"{value:.2f}"


def units(named: Iterable[Unit], most: int) -> str:
    """The names of the first ``most`` units, and how many more there are."""
    names = show(named)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def collapse_note(row: Row) -> str:
    """The share of answers that collapsed, in words; empty where it is small. Broken answers are no removal."""
    if row.collapse_after < NOTABLE:
        return ""
    return f"{100 * row.collapse_after:.1f} % of the answers collapsed and count as not removed"


def subject(provenance: Provenance) -> str:
    """The removed capability for a heading: "Swearing on request" or the recipe's name."""
    return clean(provenance.removes or provenance.recipe, limit=80)


def base_name(provenance: Provenance) -> str:
    """The base for a reader: a Hub id as it is, of a local folder only the last part, which names no one's disk."""
    model = provenance.base.model
    if provenance.base.source == "local":
        model = model.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or "a local model"
    return clean(model, limit=120)


def fate(provenance: Provenance) -> Fate:
    """What became of the edit's heads: where no model was written, nothing was removed."""
    return "tried" if provenance.format == "evidence" else "removed"


def place(provenance: Provenance) -> str:
    """What commands call an output: its name on the Hub, or a word for the folder that it lies in."""
    repo = provenance.repo or ""
    return repo if re.fullmatch(r"[\w.\-]+/[\w.\-]+", repo, re.ASCII) else "THIS_FOLDER"


def headline(
    edit: Edit,
    report: EvalReport,
    provenance: Provenance,
    *,
    met: bool,
    name: Callable[[str], str] = lambda text: clean(text, limit=80),
) -> str:
    """The result in one sentence. ``name`` makes a task's name safe for where the sentence goes."""
    verb = "Zeroing" if met or (report.verdict.status == "reduced" and fate(provenance) == "removed") else ATTEMPT
    asked, formats = targets(report), transfers(report)
    changes = [
        f"took the score on {name(row.task)}{', on one prompt format,' if len(asked) == 1 else ''} from "
        f"{percent(row.before.mean)} % to {percent(row.after.mean)} % "
        f"({examples(row)}{f'; {note}' if (note := collapse_note(row)) else ''})"
        for row in asked
    ] or ["was not measured on the capability itself"]

    def listed(rows: Sequence[Row]) -> str:
        return ", ".join(f"{name(row.task)} {percent(row.before.mean)} to {percent(row.after.mean)} %" for row in rows)

    further = f" In formats that the search never saw: {listed(formats)}." if formats else ""
    given_up = [row for row in report.rows if row.role == "also"]
    further += f" Not retained: {listed(given_up)}." if given_up else ""
    lost, count = worst(report), len(retained(report))
    cost = "; no other task was measured."
    if lost is not None:
        tasks = "the one retained task" if count == 1 else f"{count} retained tasks"
        cost = f"; the worst change among {tasks} is {points(lost.delta.mean)} points ({name(lost.task)})."
        if lost.delta.mean >= 0:
            cost = f"; {'' if count == 1 else 'none of '}{tasks} {'did not score' if count == 1 else 'scored'} lower."
    return f"{verb} {head_count(edit, provenance)} {' and '.join(changes)}{cost}{further}"


ATTEMPT = "The attempt, zeroing"
JUDGED_ALONE = (
    "The target was scored by a model alone, and no rule checked it: where that model is wrong, so is this verdict. "
    "Read the answers before you believe it."
)


def examples(row: Row) -> str:
    """``120 held-out examples in 66 clusters``, or ``185 new examples of 20 clusters already used``."""
    if row.split == "report" and row.reused:
        return f"{row.n} new examples of {row.clusters} clusters already used"
    kind = "held-out examples" if row.split == "report" else "examples"
    return f"{row.n} {kind}" if row.clusters in (None, row.n) else f"{row.n} {kind} in {row.clusters} clusters"


def head_count(edit: Edit, provenance: Provenance) -> str:
    """``5 of 144 attention heads``, ``30 of 46,080 neurons``, or both."""
    kinds = (
        ("attention head", len(edit.heads), sum(layer.heads for layer in provenance.shape)),
        ("neuron", len(edit.neurons), sum(layer.neurons for layer in provenance.shape)),
    )
    said = [
        f"{count:,} of {total:,} {word}s" if total else f"{count:,} {word}{'' if count == 1 else 's'}"
        for word, count, total in kinds
        if count
    ]
    return " and ".join(said) or "no attention head"


def targets(report: EvalReport) -> tuple[Row, ...]:
    return tuple(row for row in report.rows if row.role == "target")


def transfers(report: EvalReport) -> tuple[Row, ...]:
    """The target in formats that neither the search nor the choice saw."""
    return tuple(row for row in report.rows if row.role == "transfer")


def retained(report: EvalReport) -> tuple[Row, ...]:
    return tuple(row for row in report.rows if row.role == "retain")


def worst(report: EvalReport) -> Row | None:
    """The retained task that lost most; of several, the one that may have lost most."""
    return min(retained(report), key=lambda row: (row.delta.mean, row.delta.low), default=None)


def standing(row: Row, report: EvalReport) -> str:
    """``target``, ``transfer`` or ``also``; of a retained task ``kept``, ``not shown`` or ``lost``."""
    return verdict.standing(row, report.criteria) if row.role == "retain" else row.role


def says_little(row: Row) -> bool:
    """The unedited model was no better than chance, so keeping the score proves nothing."""
    return row.role == "retain" and row.before.low <= row.chance


@dataclass(frozen=True)
class Conclusion:
    """The verdict in words; where the goal was missed and nothing stood out in the search, that is why."""

    met: bool
    line: str
    reason: str


def conclusion(localization: Localization, report: EvalReport) -> Conclusion:
    if not localization.found and report.verdict.status == "goal-missed":
        return Conclusion(
            False,
            "Not localized",
            f"The search found no small set of {searched(localization)} that carries the capability.",
        )
    line = {
        "met": "Criteria met: removed",
        "reduced": "Reduced, not removed: the goal is not shown",
        "goal-missed": "Criteria not met: the capability is not shown to be removed to the goal",
        "too-much-damage": "Criteria not met: refused, the damage to other tasks is over the budget",
    }[report.verdict.status]
    return Conclusion(report.verdict.met, line, report.verdict.reasons[0] if report.verdict.reasons else "")


def not_tested(audits: Sequence[Audit]) -> tuple[str, ...]:
    done = {audit.name for audit in audits}
    return tuple(
        text for name, text in NOT_TESTED.items() if name not in done and not ANSWERED.get(name, {name}) <= done
    )


def judged(report: EvalReport) -> tuple[str, ...]:
    """The models that scored answers, and which tasks; first what it means, where every target hangs on one."""
    by: dict[str, list[str]] = {}
    for row in report.rows:
        if row.judged_by:
            by.setdefault(row.judged_by, []).append(clean(row.task, limit=80))
    asked = targets(report)
    alone = (JUDGED_ALONE,) if asked and all(row.judged_by for row in asked) else ()
    return (
        *alone,
        *(f"Scored by a model: {', '.join(tasks)}. It is {clean(model, limit=400)}." for model, tasks in by.items()),
    )


def null_line(report: EvalReport) -> str | None:
    """What the same number of random heads does to the target, in one sentence."""
    null = report.random_heads
    if null is None:
        return None
    reached = sum(delta <= null.delta for delta in null.deltas)
    sets = f"All {null.sets} other sets of as many" if null.every else f"{null.sets} sets of as many random"
    asked = "" if null.examples is None else f", the change by the chosen set on the same {null.examples:,} examples"
    average = math.fsum(null.deltas) / len(null.deltas) if null.deltas else math.nan
    return (
        f"{sets} {null.kind}s in the same layers change the target by "
        f"{points(average)} points on average; {reached or 'none'} of them reached {points(null.delta)}"
        f"{asked} (p = {probability(null.p)}; least possible: {probability(1 / (1 + null.sets))})."
    ).replace("p = <", "p < ")


def looks(criteria: Criteria) -> str:
    """How the retained tasks were asked, where it was in two batches."""
    if criteria.level == ALPHA:
        return ""
    return (
        f" Retained tasks that had lost more than {criteria.open:.0%} of their budget after a first batch of examples, "
        "but not surely more than all of it, were asked the rest; to be kept then asks for a p of at most "
        f"{criteria.level:.2g} each time."
    )


def strong_line(report: EvalReport) -> str | None:
    """What as many heads do that are strong by themselves, and what that means."""
    strong = report.strong_heads
    if strong is None:
        return None
    average = math.fsum(strong.deltas) / len(strong.deltas) if strong.deltas else math.nan
    means = "heads that are strong alone can do the same" if strong.reached else "heads that are strong alone do less"
    return (
        f"{strong.sets} {'set' if strong.sets == 1 else 'sets'} of as many strong heads, drawn from {strong.pool} by "
        f"their own effect alone, whatever their layers, change the target by {points(average)} points on average; "
        f"{strong.reached or 'none'} of them reached {points(strong.delta)}, the change by the chosen set on the same "
        f"{strong.examples:,} examples: {means}. This is reported, and no part of the verdict."
    )


def look(number: int, *, fresh: bool = False) -> str:
    """How many edits these examples have judged, and what that means.

    Args:
        fresh: whether the run was kept to examples that no earlier one had looked at.
    """
    if fresh:
        text = "the first at fresh examples: no earlier run of this store had looked at them"
        others = "another edit of this base was" if number == 2 else f"{number - 1} other edits of this base were"
        return text if number == 1 else f"{text}; {others} judged by the same tasks before; who looks often, chooses"
    if number == 1:
        return "the first: no other edit of this base was judged by these examples, as far as its measurements go back"
    others = "1 other edit of this base was" if number == 2 else f"{number - 1} other edits of this base were"
    return f"number {number}: {others} judged by these examples before; who looks often, chooses"


def hardened(hardening: Hardening, noun: str) -> str:
    """What the same fine-tuning brought back, set by set."""
    each = "; ".join(f"{percent(one.after)} % with {one.units} {noun}s out" for one in hardening.rounds)
    return (
        f"Hardened by rounds of attack and removal: after {hardening.steps} steps of fine-tuning on "
        f"{hardening.lessons} right answers (rate {hardening.rate:g}), the model scored on {hardening.held} examples "
        f"of other clusters {each}; without edit and training, {percent(hardening.base)} %."
    )


def searched(localization: Localization) -> str:
    """``heads``, ``neurons`` or, where both were searched, ``units``."""
    return f"{kind(effect.unit for effect in localization.order)}s"


def _plain(value: float) -> float:
    """Rounded to one decimal, without the negative zero."""
    return round(value, 1) + 0.0
