"""A study's results as Markdown tables, the paper's published figures beside ours.

| removed | gsm8k (n = 395) | mmlu (n = 400) | verdict |
|---|---|---|---|
| nothing | 78.1 [74.0, 81.8] (paper 78.5) | 68.2 [63.4, 72.6] (paper 68.0) | |
| nothing, measured again | 78.3 [74.2, 82.0] | 68.2 [63.4, 72.6] | |
| math, 5 heads | **31.0** [26.7, 35.7] (paper 30.1) | 66.9 [62.0, 71.3] (paper 66.4) | goal-missed |
| change that would show | 5.9 | 4.1 | |

(The numbers here only show the form.)

Scores are in percent, with 95 % intervals, on the ``report`` split; **bold** is the task that the heads were found on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from editkit.evidence.intervals import Interval
from editkit.evidence.row import Row
from editkit.render.inert import code, prose
from editkit.units import show

if TYPE_CHECKING:
    from editkit.removal.study import Result, Study


@dataclass(frozen=True)
class Published:
    """Published figures in percent: ``scores(model, capability, heads)``; capability None = the unedited model."""

    version: str = ""
    models: Mapping[str, Any] = field(default_factory=dict)

    def scores(self, model: str, capability: str | None, heads: int) -> Mapping[str, float]:
        known = self.models.get(model, {})
        if capability is None:
            return known.get("before", {})
        return known.get("capabilities", {}).get(capability, {}).get("heads", {}).get(heads, {})

    def universal(self, model: str) -> Sequence[str]:
        return self.models.get(model, {}).get("universal", [])


def published() -> Published:
    """The figures of the paper's first version, which come with editkit."""
    value = yaml.safe_load((files("editkit.recipes") / "paper" / "published.yaml").read_text("utf-8"))
    return Published(value["version"], value["models"])


def tables(study: Study, results: Sequence[Result], paper: Published) -> str:
    """The whole study as one Markdown page."""
    paragraphs = [f"# {study.study}", prose(study.summary)]
    for model, method, seed in dict.fromkeys((r.cell.model, r.cell.method, r.cell.seed) for r in results):
        group = [r for r in results if (r.cell.model, r.cell.method, r.cell.seed) == (model, method, seed)]
        paragraphs += [f"## {code(model)}, {method}, seed {seed}", _scores(group, paper), _heads(group, paper)]
    if len(study.methods) > 1:
        paragraphs += ["## Methods compared", _methods(study, results)]
    shown = any(paper.scores(r.cell.model, None, 0) for r in results)
    reused = dict.fromkeys(code(row.task) for r in results if r.report for row in r.report.rows if row.reused)
    used = f"; those of {', '.join(reused)} are new fillings of templates (clusters) already used" if reused else ""
    paragraphs.append(
        f"Scores in percent with 95 % intervals, on examples that no search looked at{used}. Bold: the task the heads "
        "were found on. *Measured again*: the noise of measuring alone. *Change that would show*: a smaller one, in "
        "points, would mostly have gone unseen with so many examples. Goal and damage are judged by each recipe's "
        "criteria, the goal also against random heads of the same layers."
        + (f" Paper: {paper.version}." if shown else "")
    )
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _scores(group: Sequence[Result], paper: Published) -> str:
    measured = [(result, {row.task: row for row in result.report.rows}) for result in group if result.report]
    tasks = list(dict.fromkeys(task for _, rows in measured for task in rows))
    if not tasks:
        return ""
    first = {task: next(rows[task] for _, rows in measured if task in rows) for task in tasks}
    model = group[0].cell.model
    known = paper.scores(model, None, 0)
    lines = [
        ["removed", *(_title(first[task]) for task in tasks), "verdict"],
        ["nothing", *(_score(first[task].before, known.get(task), False) for task in tasks), ""],
        *_again(group),
    ]
    for result, rows in measured:
        name, count = result.cell.capability.recipe.capability, result.cell.heads
        known = paper.scores(model, name, count)
        cells = (_after(rows.get(task), known.get(task)) for task in tasks)
        assert result.report is not None
        lines.append([_removed(result), *cells, result.report.verdict.status])
    lines.append(
        [
            "change that would show",
            *(_visible([rows[task] for _, rows in measured if task in rows]) for task in tasks),
            "",
        ]
    )
    return _table(lines)


def _visible(rows: Sequence[Row]) -> str:
    """The smallest change that would have shown, where the task was to be kept; a large loss makes any row unsteady."""
    known = [(row.role, row.detectable) for row in rows if row.detectable is not None]
    kept = [change for role, change in known if role == "retain"]
    return f"{100 * max(kept):.1f}" if kept else f"{100 * min(change for _, change in known):.1f}" if known else ""


def _title(row: Row) -> str:
    chance = f", chance {100 * row.chance:.0f}" if row.chance else ""
    return f"{prose(row.task)} (n = {row.n}{chance})"


def _again(results: Sequence[Result]) -> list[list[str]]:
    """The A/A row: the unedited model's second measurement."""
    noise = {row.task: row for result in results if result.report for row in result.report.noise}
    tasks = dict.fromkeys(row.task for result in results if result.report for row in result.report.rows)
    if not noise:
        return []
    shown = (_score(noise[task].after, None, False) if task in noise else "" for task in tasks)
    return [["nothing, measured again", *shown, ""]]


def _after(row: Row | None, known: float | None) -> str:
    if row is None:
        return ""
    collapse = f", {row.collapse_after:.0%} collapsed" if row.collapse_after >= 0.005 else ""
    return _score(row.after, known, row.role == "target") + collapse


def _score(score: Interval, known: float | None, target: bool) -> str:
    mean = f"**{100 * score.mean:.1f}**" if target else f"{100 * score.mean:.1f}"
    beside = "" if known is None else f" (paper {known:.1f})"
    return f"{mean} [{100 * score.low:.1f}, {100 * score.high:.1f}]{beside}"


def _heads(group: Sequence[Result], paper: Published) -> str:
    lines = []
    for result in group:
        if result.error:
            lines.append(f"- {_removed(result)}: not measured. {prose(result.error)}")
            continue
        doubt = "" if result.found else "; **does not localize**"
        lines.append(
            f"- {_removed(result)}: {', '.join(show(result.units))} ({result.evaluations:.0f} evaluations{doubt})"
        )
    universal = sorted(
        {unit for result in group for unit in result.universal}, key=lambda unit: (unit.layer, unit.index)
    )
    known = paper.universal(group[0].cell.model)
    if universal or known:
        beside = f" (paper: {', '.join(known)})" if known else ""
        lines.append(f"- Universal heads, left alone: {', '.join(show(universal)) or 'none found'}{beside}")
    return "\n".join(lines)


def _methods(study: Study, results: Sequence[Result]) -> str:
    """Per capability and method: what the removal did, what it cost, and how far the heads are those of the first."""
    lines = [["model", "removed", "method", "target kept", "worst retained change", "evaluations", "heads shared"]]
    firsts: dict[tuple[Any, ...], frozenset] = {}
    for result in results:
        cell = result.cell
        if result.report is None:
            continue
        shared = firsts.setdefault((cell.model, cell.capability.recipe.capability, cell.heads, cell.seed), result.units)
        target = next(row for row in result.report.rows if row.role == "target")
        retained = [row.delta.mean for row in result.report.rows if row.role == "retain"]
        lines.append(
            [
                code(cell.model),
                _removed(result),
                cell.method,
                f"{_kept(target):.0%}",
                f"{100 * min(retained):+.1f}" if retained else "",
                f"{result.evaluations:.0f}",
                f"{len(shared & result.units)} of {len(result.units)}",
            ]
        )
    return _table(lines) + f"\n\nShared: with the heads that {study.methods[0]} found."


def _kept(row: Row) -> float:
    before, after = row.before.mean - row.chance, (row.after.mean if row.kept is None else row.kept) - row.chance
    return max(0.0, after) / before if before > 0 else 1.0


def _removed(result: Result) -> str:
    heads = "1 head" if result.cell.heads == 1 else f"{result.cell.heads} heads"
    return f"{result.cell.capability.recipe.capability}, {heads}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([rows[0], "|" + "---|" * len(lines[0]), *rows[1:]])
