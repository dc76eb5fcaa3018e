"""Why there is no checkpoint: the exit code is the verdict's, and what was certain is not called noise.

If one fails: a script that goes by exit codes believes another thing than the report says.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from editkit.removal import remove
from tests.made_evidence import evidence


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.parametrize("status", ["too-much-damage", "goal-missed", "reduced"])
def test_the_exit_code_is_that_of_the_verdict(status: str, found: bool) -> None:
    """One rule decides: what the search thought of its heads only words a goal that was missed."""
    some = evidence("goal-missed")
    report = replace(some.report, verdict=replace(some.report.verdict, met=False, status=status))
    outcome = replace(some, report=report, localization=replace(some.localization, found=found))
    error = remove._refusal(outcome, SimpleNamespace(count=None))  # pyright: ignore[reportArgumentType]
    frontier = found and bool(some.exhibits.frontier)
    assert error.exit_code == (4 if status == "too-much-damage" or frontier else 3)
    assert ("did not localize" in str(error)) == (error.exit_code == 3)
    assert not remove.accepted(report.verdict, SimpleNamespace(accept="goal"))  # pyright: ignore[reportArgumentType]


def test_a_certain_effect_is_not_called_noise() -> None:
    """Else a model whose heads stand in for each other is told that nothing was seen in it."""
    some = evidence().localization
    strong, weak = (replace(some, order=(replace(some.order[0], p=p),)) for p in (0.001, 0.6))
    assert "more than noise (p = 0.001" in remove._strongest(strong) and "others do the same" in remove._strongest(
        strong
    )
    assert "noise, or too little to matter" in remove._strongest(weak)
