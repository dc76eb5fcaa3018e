"""Evidence of others is of the kinds that it should be, or refused with its file named.

If one fails: a text stands where a number belongs, and a command ends in a traceback while it renders the card.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from editkit.errors import EditkitError
from editkit.evidence.attacks import Attacks
from editkit.evidence.exhibits import Exhibits, Transcript, Unable
from editkit.evidence.localization import Localization
from editkit.evidence.provenance import Provenance
from editkit.evidence.report import EvalReport
from tests.evidence.test_ladder import ALL, made
from tests.made_evidence import evidence

GOOD = evidence()
EXHIBITS = Exhibits(GOOD.exhibits.dose, (Transcript("a", "b", "c", "d"),), unable=(Unable("x", 0.1, 0.0, 20),))
FILES: dict[str, tuple[Callable[[str], Any], Any]] = {
    "report": (EvalReport.from_json, json.loads(GOOD.report.to_json())),
    "exhibits": (Exhibits.from_json, EXHIBITS.to_dict()),
    "localization": (Localization.from_json, json.loads(GOOD.localization.to_json())),
    "provenance": (Provenance.from_json, json.loads(GOOD.provenance.to_json())),
    "attacks": (Attacks.from_json, json.loads(made(*ALL).to_json())),
}


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_read_as_it_was_written(name: str) -> None:
    read, value = FILES[name]
    assert read(json.dumps(value)) is not None


@pytest.mark.parametrize(
    ("name", "place", "odd"),
    [
        ("report", ("rows", 0, "before", "mean"), "high"),
        ("report", ("rows", 0, "n"), 1.5),
        ("report", ("rows", 0, "p"), None),
        ("report", ("rows", 0, "role"), "hero"),
        ("report", ("rows", 0, "mine"), 1),
        ("report", ("criteria", "goal"), [0.1]),
        ("report", ("random_heads", "deltas"), "0.1"),
        ("report", ("verdict", "reasons"), 3),
        ("report", ("verdict", "status"), "fine"),
        ("exhibits", ("dose", 0, "heads"), "three"),
        ("exhibits", ("dose", 0, "retain"), {"a": "b"}),
        ("exhibits", ("transcripts", 0, "before"), 1),
        ("exhibits", ("unable", 0, "score"), "low"),
        ("localization", ("order",), 3),
        ("localization", ("order", 0, "unit"), "X1"),
        ("localization", ("order", 0, "effect"), "strong"),
        ("localization", ("universal",), "L1H2"),
        ("localization", ("diagnostics",), []),
        ("localization", ("found",), "yes"),
        ("provenance", ("base", "tags"), "a"),
        ("provenance", ("base",), "x"),
        ("provenance", ("seeds",), {"run": "0"}),
        ("provenance", ("shape", 0, "heads"), None),
        ("provenance", ("date",), 2026),
        ("attacks", ("rows", 0, "base"), "1"),
        ("attacks", ("rows", 0, "control", "lacks"), "no"),
        ("attacks", ("nats", 0, "arms"), {"base": [0, "1"]}),
        ("attacks", ("kept",), 1),
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, place: tuple[Any, ...], odd: object) -> None:
    read, value = FILES[name]
    changed = json.loads(json.dumps(value))
    holder = changed
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = odd
    with pytest.raises(EditkitError, match=name if name not in ("exhibits",) else "report.json") as caught:
        read(json.dumps(changed))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" + "0" * 400])
@pytest.mark.parametrize("name", ["report", "localization", "exhibits", "attacks"])
def test_a_number_that_is_none_is_refused(name: str, number: str) -> None:
    read, value = FILES[name]
    text = json.dumps(value)
    at = next(key for key in ('"mean": ', '"effect": ', '"share": ') if key in text)
    start = text.index(at) + len(at)
    end = min(text.index(sign, start) for sign in ",}" if sign in text[start:])
    with pytest.raises(EditkitError):
        read(text[:start] + number + text[end:])


@pytest.mark.parametrize("text", ["", "3", "[]", "{}", "[" * 100_000, '{"order": {}}', '{"rows": [[]]}'])
@pytest.mark.parametrize("name", [name for name in FILES if name != "exhibits"])
def test_what_is_another_file_is_refused(name: str, text: str) -> None:
    with pytest.raises(EditkitError):
        FILES[name][0](text)
