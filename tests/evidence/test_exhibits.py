"""What a report shows besides its rows survives its file. If one fails: card and page lose the frontier when they are
rendered again."""

from __future__ import annotations

import json

import pytest

from editkit.errors import EditkitError
from editkit.evidence.exhibits import Exhibits, Unable
from editkit.evidence.frontier import FrontierPoint
from editkit.units import Head

POINTS = (
    FrontierPoint((), {"capitals": 1.0, "capitals-chat": 1.0}, {"plurals": 0.0}),
    FrontierPoint(
        (Head(3, 2), Head(23, 4)),
        {"capitals": 0.2, "capitals-chat": 0.9},
        {"plurals": 0.02, "copying": -0.04},
        {"capitals": (0.6, 0.2), "plurals": (0.9, 0.85)},
    ),
)


def test_the_frontier_survives_its_file() -> None:
    shown = Exhibits(frontier=POINTS, unable=(Unable("translation", 0.18, 0.0, 20),))
    assert Exhibits.from_json(json.dumps(shown.to_dict())) == shown


def test_what_is_left_is_judged_by_the_format_that_keeps_most() -> None:
    assert POINTS[1].left == 0.9 and POINTS[1].worst == 0.02 and POINTS[1].mean == pytest.approx(-0.01)


@pytest.mark.parametrize(
    "point",
    [{}, 3, {"units": ["X1"], "kept": {"a": 1}, "lost": {"b": 0}, "answers": {}}]
    + [{"units": [], "kept": kept, "lost": {"b": 0}, "answers": {}} for kept in ({}, None, {"a": "x"})],
)
def test_a_frontier_of_another_form_is_refused_with_the_file_named(point: object) -> None:
    with pytest.raises(EditkitError, match=r"report\.json: .*not in the known form"):
        Exhibits.from_json(json.dumps({"frontier": [point]}))
