"""Does the evidence beside a model say what its examples say? Every number is computed again, and every text rendered.

    check(Path("no-swear"))   ->   Checked(examples=1800, rows=9, note="9 rows, ... follow from 1,800 examples")

Of ``report.json``: rows, intervals, p, noise and verdict, by the functions that made them. Of ``README.md`` and
``report.html``: each line, from the evidence. What no file here can show is whether the model really answered so:
``editkit pull-verify REPO --rerun N`` asks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import editkit
from editkit.errors import EditkitError, IntegrityError
from editkit.evidence import examples
from editkit.evidence.examples import answered
from editkit.evidence.outcome import Outcome
from editkit.evidence.recomputed import differences, recomputed
from editkit.evidence.verdict import Criteria, level
from editkit.printable import printable
from editkit.render import evidence_folder
from editkit.writing import manifest

REPORT = "editkit/report.json"
MISSING = f"Rows not recomputable: {examples.NAME} is missing. Older releases wrote none; else it was taken away."
_TAKEN = (
    "The strong and random sets' own scores, the search's effects, dose curve, frontier and hardening were taken as "
    "they are."
)


@dataclass(frozen=True)
class Checked:
    """How much was computed again; ``note`` says it in words; empty where nothing was measured."""

    examples: int
    rows: int
    note: str


def check(out: Path) -> Checked:
    """Compute the evidence in ``out`` again.

    Raises:
        IntegrityError: naming every number and line that is not what the examples give.
    """
    if not (out / REPORT).is_file():
        return Checked(0, 0, "")
    if not (out / examples.NAME).is_file():
        return Checked(0, 0, MISSING)
    try:
        with evidence_folder.doubted(out):
            outcome = evidence_folder.read(out)
            made_by = outcome.provenance.versions.get("editkit")
            same = made_by == editkit.__version__
            lines = [*_report(out, outcome, same=same), *_demanded(out, outcome), *_transcripts(outcome)]
            lines = lines or (list(_texts(out, outcome)) if same else [])
    except IntegrityError:
        raise
    except EditkitError as error:
        raise IntegrityError(f"{printable(str(out))}: the evidence cannot be read: {printable(str(error))}") from error
    if lines:
        shown = "\n".join(f"  {line}" for line in lines[:50])
        count = "1 place" if len(lines) == 1 else f"{len(lines)} places"
        again = "" if lines[0].startswith((REPORT, manifest.NAME)) else "\n`editkit card OUT` renders both texts again."
        raise IntegrityError(
            f"{printable(str(out))}: the evidence does not say what its examples say ({count}):\n{shown}{again}"
        )
    asked, rows = len(outcome.examples), len(outcome.report.rows)
    counted = f"{rows} rows, noise and verdict follow from {asked:,} examples; card and page say no other. {_TAKEN}"
    if not same:
        counted = f"Scores and counts of {rows} rows follow from {asked:,} examples; intervals, p, verdict and texts "
        counted += f"are those of editkit {printable(str(made_by))}, which can compute them again."
    return Checked(asked, rows, counted)


def _report(out: Path, outcome: Outcome, *, same: bool) -> Iterator[str]:
    """The report is the one that the examples give, and says nothing twice."""
    again = recomputed(outcome.report, outcome.examples, seed=outcome.provenance.seeds["run"])
    for line in differences(outcome.report, again, same_formulas=same):
        yield f"{REPORT}: {line}"
    if same and (out / REPORT).read_text("utf-8") != evidence_folder.report_text(outcome):
        yield f"{REPORT}: is not in the form that editkit writes"


def _demanded(out: Path, outcome: Outcome) -> Iterator[str]:
    """The criteria and the number of tasks are those of the recipe in the manifest."""
    recipe: Any = manifest.read(out).recipe
    if recipe is None:
        yield f"{manifest.NAME}: holds no recipe"
        return
    damage, first = recipe["damage"], recipe.get("examples", {}).get("first")  # older releases name none
    demanded = Criteria(recipe["goal"], damage["each"], damage["mean"], level(first))
    if outcome.report.criteria != demanded:
        yield f"{REPORT}: criteria: the recipe says {demanded}, found {outcome.report.criteria}"
    targets = 1 if isinstance(recipe["target"], str | dict) else len(recipe["target"])
    expected = {"target": targets, **{role: len(recipe[role]) for role in ("retain", "transfer", "also")}}
    reported = {row.task for row in outcome.report.rows} & {task.task for task in outcome.exhibits.unable}
    expected["target"] -= len(reported)
    expected["transfer"] += len(reported)
    expected["retain"] -= len(outcome.exhibits.unable) - len(reported)
    for role, count in expected.items():
        rows = sum(row.role == role for row in outcome.report.rows)
        if rows != count:
            yield f"{REPORT}: rows: the recipe has {count} tasks of the role {role}, found {rows}"


def _transcripts(outcome: Outcome) -> Iterator[str]:
    """Answers that are shown are those of the examples."""
    known = {(each.task, each.prompt, each.answers) for each in outcome.examples}
    hidden = {each.task for each in outcome.examples if each.hidden}
    for shown in outcome.exhibits.transcripts:
        first, second = (answered(text, hidden=shown.task in hidden) for text in (shown.before, shown.after))
        if (shown.task, examples.sha256(shown.prompt), (first, second)) not in known:
            yield f"{REPORT}: transcripts: no example of {printable(shown.task)} was answered so: {shown.prompt!r:.80}"


def _texts(out: Path, outcome: Outcome) -> Iterator[str]:
    """Card and page are what is rendered from the evidence. Figures are compared by the text in them."""
    for name, expected in zip(("README.md", "editkit/report.html"), evidence_folder.texts(outcome), strict=True):
        written = _plain((out / name).read_text("utf-8")).splitlines()
        for number, (one, other) in enumerate(zip_longest(_plain(expected).splitlines(), written, fillvalue=""), 1):
            if one != other:
                start = max(0, next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0) - 40)
                right, wrong = (printable(line[start : start + 120]) for line in (one, other))
                yield f"{name}, line {number}: expected {right!r}, found {wrong!r}"
                break


def _plain(text: str) -> str:
    """The text with figures as the words and numbers in them: their layout follows the plotting library's version."""
    figure = re.compile(r"<svg [^>]*class=\"figure\".*?</svg>", flags=re.DOTALL)
    return figure.sub(lambda match: " ".join(re.sub(r"<[^>]*>", " ", match[0]).split()), text)
