"""Before and after, paired, with intervals: the evidence behind every claim (``report.json``).

{"rows": [{"task": "swear", "role": "target", "split": "report", "n": 150, "chance": 0.0,
           "before": {"mean": 0.99, "low": 0.97, "high": 1.0}, "after": {"mean": 0.02, ...},
           "delta": {"mean": -0.97, ...}, "p": 1e-30, "collapse": {"before": 0.0, "after": 0.0}}, ...],
 "random_heads": {...}, "strong_heads": {...}, "criteria": {...}, "verdict": {"met": true, "reasons": [...]}}

``p`` is the row's own; ``p_holm`` is corrected over the rows of the report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

from editkit.errors import EditkitError
from editkit.evidence import paired_tests
from editkit.evidence.noise import widened
from editkit.evidence.power import ALPHA, detectable
from editkit.evidence.row import Row, from_json, to_json
from editkit.evidence.strong_heads import StrongHeads
from editkit.evidence.typed import document, typed
from editkit.evidence.verdict import Criteria, RandomHeads, Verdict, judge


@dataclass(frozen=True)
class EvalReport:
    """``noise`` holds the A/A rows, the unedited model measured twice: what changes when nothing was changed.

    ``strong_heads`` is no part of the verdict; None where it was not measured, as in edits of neurons.
    """

    rows: tuple[Row, ...]
    random_heads: RandomHeads | None
    criteria: Criteria
    verdict: Verdict
    noise: tuple[Row, ...] = ()
    strong_heads: StrongHeads | None = None

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{row.task} {100 * row.before.mean:.1f} -> {100 * row.after.mean:.1f} %"
            for row in self.rows
            if row.role == "target"
        )
        return f"<EvalReport of {len(self.rows)} tasks: {f'{rows}; ' if rows else ''}{self.verdict.status}>"

    def _repr_html_(self) -> str:
        """For notebooks: a row per task, scores in percent, each change with its 95 % bounds and a bar."""
        lines = [
            f"<tr><td>{escape(row.task)}</td><td>{row.role}</td><td>{row.n}</td><td>{100 * row.before.mean:.1f}</td>"
            f"<td>{100 * row.after.mean:.1f}</td><td>{100 * row.delta.mean:+.1f} [{100 * row.delta.low:+.1f}, "
            f'{100 * row.delta.high:+.1f}]</td><td><div style="background:#c33;height:.7em;width:'
            f'{max(0.0, -80 * row.delta.mean):.0f}px"></div></td></tr>'
            for row in self.rows
        ]
        titles = "".join(f"<th>{title}</th>" for title in ("task", "role", "n", "before", "after", "change", "lost"))
        reason = escape(self.verdict.reasons[0]) if self.verdict.reasons else ""
        return f"<p><b>{self.verdict.status}</b> {reason}</p><table><tr>{titles}</tr>{''.join(lines)}</table>"

    def to_json(self) -> str:
        value = {
            "rows": [to_json(row) for row in self.rows],
            "random_heads": None if self.random_heads is None else asdict(self.random_heads),
            # Not named where it was not measured: a report from before there was one keeps its bytes.
            **({} if self.strong_heads is None else {"strong_heads": asdict(self.strong_heads)}),
            "criteria": asdict(self.criteria),
            "verdict": asdict(self.verdict),
            "noise": [to_json(row) for row in self.noise],
        }
        return json.dumps(value, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str = "report.json") -> EvalReport:
        """Read a report.

        Raises:
            EditkitError: naming ``where`` and what is missing.
        """
        try:
            value: Any = document(text)
            null, strong = value["random_heads"], value.get("strong_heads")
            return cls(
                tuple(from_json(row) for row in value["rows"]),
                None if null is None else typed(RandomHeads, null),
                typed(Criteria, value["criteria"]),
                typed(Verdict, value["verdict"]),
                tuple(from_json(row) for row in value.get("noise", [])),
                None if strong is None else typed(StrongHeads, strong),
            )
        except (ValueError, RecursionError) as error:
            raise EditkitError(f"{where} is not JSON: {error}.") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise EditkitError(
                f"{where} is not an evaluation report: {error!r}. Run `editkit evaluate` again."
            ) from error


def report(
    rows: Sequence[Row],
    *,
    criteria: Criteria = Criteria(),
    null: RandomHeads | None = None,
    noise: Sequence[Row] = (),
    strong: StrongHeads | None = None,
) -> EvalReport:
    """Widen the rows by the noise, correct them for multiplicity, judge them, and keep the evidence together."""
    again = {row.task: row for row in noise}
    rows = [widened(row, again.get(row.task), criteria.damage_each) for row in rows]
    corrected = paired_tests.holm([row.p for row in rows])
    level = ALPHA / max(1, len(rows))
    together = tuple(
        replace(row, p_holm=float(p), detectable=None if row.flips is None else detectable(row.flips, level))
        for row, p in zip(rows, corrected, strict=True)
    )
    return EvalReport(together, null, criteria, judge(together, criteria, null, noise), tuple(noise), strong)
