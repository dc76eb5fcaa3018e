"""Batches hold every request once, like with like, within the budget, and a beginning apart only where it pays.

If one fails: a request is dropped or asked twice, or a batch outgrows the memory.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.models.batches import LEAST_SAVED, SHORTEST, Batch, batches, distinct, shared_length
from editkit.models.encoding import Encoded
from editkit.tasks.task import Generate, Loglikelihood, Request

Case = tuple[list[Request], list[Encoded], list[Knockout], np.ndarray]


@st.composite
def cases(draw) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, beginning = draw(st.integers(1, 40)), draw(st.sampled_from([0, 5, 40, 120]))
    requests: list[Request] = [
        Loglikelihood("x", "y") if rng.random() < 0.7 else Generate("x", int(rng.choice([4, 9]))) for _ in range(count)
    ]
    rows = [
        (
            [7] * beginning + rng.integers(8, 12, rng.integers(1, 30)).tolist(),
            rng.integers(8, 12, rng.integers(1, 6)).tolist() if isinstance(request, Loglikelihood) else [],
        )
        for request in requests
    ]
    first = rng.integers(0, draw(st.integers(1, 6)), count)
    return requests, rows, [Knockout.of(np.array([place])) for place in first], first


def _cut(case: Case, budget: int, *, prefixes: bool = True, padded: bool = True) -> list[Batch]:
    requests, rows, out, layers = case
    return list(batches(requests, rows, out, layers, prefixes=prefixes, padded=padded, budget=lambda: budget))


@given(cases(), st.sampled_from([1, 50, 300, 10**6]), st.booleans())
def test_every_request_once_like_with_like_within_the_budget(case: Case, budget: int, prefixes: bool) -> None:
    requests, rows, out, layers = case
    cut = _cut(case, budget, prefixes=prefixes)
    assert sorted(place for batch in cut for place in batch.rows) == list(range(len(requests)))
    for batch in cut:
        kinds = {
            ("text", request.max_new_tokens) if isinstance(request, Generate) else ("likelihood", int(layers[place]))
            for place, request in ((place, requests[place]) for place in batch.rows)
        }
        assert len(kinds) == 1
        [(kind, number)] = kinds
        assert len({tuple(rows[place][0][: batch.prefix]) for place in batch.rows}) == 1
        width = max(len(rows[place][0]) + len(rows[place][1]) for place in batch.rows)
        width += number if kind == "text" else -batch.prefix
        tokens = len(batch.rows) * width + batch.prefix * len({out[place] for place in batch.rows})
        assert tokens <= budget or len(batch.rows) == 1


@given(cases())
def test_a_beginning_runs_apart_only_where_it_is_long_and_saves_enough(case: Case) -> None:
    _, rows, out, _ = case
    for batch in _cut(case, 10**6):
        contexts = [rows[place][0] for place in batch.rows]
        common, whole = shared_length(contexts), sum(len(a) + len(b) for a, b in (rows[p] for p in batch.rows))
        saved = (len(batch.rows) - len({out[place] for place in batch.rows})) * common
        assert batch.prefix == (common if common >= SHORTEST and saved >= LEAST_SAVED * whole else 0)
    assert all(batch.prefix == 0 for batch in _cut(case, 10**6, prefixes=False))


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=6))
def test_the_shared_length_is_the_longest_beginning_that_leaves_every_row_a_token(contexts: list[list[int]]) -> None:
    found = shared_length(contexts)
    assert len({tuple(row[:found]) for row in contexts}) == 1
    assert all(len(row) > found for row in contexts)
    longer = {tuple(row[: found + 1]) for row in contexts}
    assert len(longer) > 1 or any(len(row) <= found + 1 for row in contexts)


@given(cases())
def test_without_padding_only_rows_of_one_length_run_together(case: Case) -> None:
    requests, rows, _, _ = case
    cut = _cut(case, 10**6, padded=False)
    assert sorted(place for batch in cut for place in batch.rows) == list(range(len(requests)))
    for batch in cut:
        assert len({len(rows[place][0] + rows[place][1][:-1]) for place in batch.rows}) == 1


def test_a_budget_that_shrinks_is_heeded_at_once() -> None:
    case: Case = ([Loglikelihood("x", "y")] * 8, [([3], [4])] * 8, [NOTHING] * 8, np.zeros(8, int))
    left = [8]
    stream = batches(*case, prefixes=False, padded=True, budget=lambda: left[0])
    sizes = [len(next(stream).rows)]
    left[0] = 4
    assert sizes + [len(batch.rows) for batch in stream] == [4, 2, 2]


def test_equal_knockouts_have_equal_numbers() -> None:
    out = [Knockout.of(np.array([0])), NOTHING, Knockout.of(np.array([0]))]
    assert distinct(out, [2, 1, 0]) == {2: 0, 1: 1, 0: 0}
    assert distinct(None, [5, 4]) == {5: 0, 4: 0}
