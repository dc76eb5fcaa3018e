"""What workers are said to bring is no more than they can.

If one fails: a user rents sixty-four GPUs for what eight would do as soon.
"""

from __future__ import annotations

import pytest

from editkit.planning.pool_cost import shared
from editkit.planning.run_cost import Plan


def _plan(tokens: int) -> Plan:
    return Plan("swear", "m", "auto", 1, 1, 1.0, tokens, 0, 0, 0, 0, seconds=1000.0)


@pytest.mark.parametrize("tokens", [10, 10**5, 10**7, 10**9])
def test_more_workers_are_never_slower_and_never_quicker_than_their_number(tokens: int) -> None:
    seconds = {count: shared(_plan(tokens), count).seconds for count in (1, 2, 8, 64)}
    assert list(seconds.values()) == sorted(seconds.values(), reverse=True)
    assert all(1000.0 / count <= each <= 1000.0 / 0.9 for count, each in seconds.items())


def test_a_small_run_has_no_work_for_many() -> None:
    few, many = shared(_plan(10**5), 64), shared(_plan(10**9), 64)
    assert few.busy < 8 and "work for" in few.describe()
    assert many.busy > 60 and "work for" not in many.describe()
    assert few.copies == 65
