"""Everything that one removal found out, as one value.

outcome.report.verdict.met, show(outcome.edit.units), outcome.out
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.edit import Edit
from editkit.evidence.attacks import Attacks
from editkit.evidence.examples import Asked
from editkit.evidence.exhibits import Exhibits
from editkit.evidence.localization import Localization
from editkit.evidence.provenance import Provenance
from editkit.evidence.report import EvalReport
from editkit.units import show


@dataclass(frozen=True)
class Outcome:
    """The evidence of one removal.

    Args:
        out: where it lies.
        examples: what the rows are made of; empty where a release made it that kept none.
        attacks: what was found by attacking it; None: it was not audited.
    """

    out: Path
    edit: Edit
    localization: Localization
    report: EvalReport
    exhibits: Exhibits
    provenance: Provenance
    examples: tuple[Asked, ...] = ()
    attacks: Attacks | None = None

    def __repr__(self) -> str:
        units = show(self.edit.units)
        shown = ", ".join(units[:8]) + (f" and {len(units) - 8} more" if len(units) > 8 else "")
        return f"<Outcome in {self.out}: {self.edit.base.model} without {shown}; {self.report!r}>"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def summary(self) -> dict[str, Any]:
        """One JSON document: what was removed, the verdict, the rows, where the files are."""
        return {
            "out": str(self.out),
            "base": {"model": self.edit.base.model, "revision": self.edit.base.revision},
            "units": show(self.edit.units),
            "card": str(self.out / "README.md"),
            "page": str(self.out / "editkit" / "report.html"),
            **({"attacks": self.attacks.to_dict()} if self.attacks else {}),
        } | json.loads(self.report.to_json())
