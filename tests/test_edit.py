"""An edit reads back as it was written; anything else is refused with its place and field.

If one fails: a file of a few hundred bytes that should bring an edit to others brings another one.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editkit.edit import Base, Edit
from editkit.errors import EditkitError
from editkit.units import PLAIN, Head, Neuron, parse, parse_all, show

HEADS = st.frozensets(st.builds(Head, st.integers(0, 200), st.integers(0, 999)), max_size=12)
EXPERTS = st.just(PLAIN) | st.integers(0, 300)
NEURONS = st.frozensets(
    st.builds(Neuron, st.integers(0, 200), st.integers(0, 99_999), EXPERTS), min_size=1, max_size=12
)
UNITS = HEADS | NEURONS | st.builds(frozenset.union, HEADS, NEURONS)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(UNITS, NAMES, st.none() | NAMES)
def test_an_edit_reads_back_equal_and_its_digest_names_it(units, model, revision) -> None:
    edit = Edit(Base(model, revision), units)
    again = Edit.from_json(edit.to_json())
    assert again == edit
    assert again.digest == edit.digest
    assert Edit(Base(model + "x", revision), units).digest != edit.digest


@given(UNITS)
def test_units_read_back_from_their_names(units) -> None:
    assert frozenset(parse(name) for name in show(units)) == units
    assert parse_all(", ".join(show(units))) == units
    named = [parse(name) for name in show(units)]
    heads = [unit for unit in named if isinstance(unit, Head)]
    neurons = [unit for unit in named if isinstance(unit, Neuron)]
    assert named == [*sorted(heads), *sorted(neurons, key=lambda unit: (unit.layer, unit.expert, unit.index))]


GOOD = json.loads(Edit(Base("a/b", None), frozenset([Head(1, 2)])).to_json())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 1"),
        ({"base": None}, "base"),
        ({"base": {"model": 3}}, "base"),
        ({"base": {"model": "\ud800"}}, "base"),
        ({"base": {"model": "a", "revision": 3}}, "revision"),
        ({"units": "L1H2"}, "units"),
        ({"units": [1]}, "units"),
        ({"units": [1] * 10_000}, "units"),
        ({"units": ["x" * 10_000]}, "names no head"),
        ({"units": ["L1X2"]}, "L1X2"),
        ({"units": ["L1H2", "L1N2"]}, "of kind 'unit'"),
        ({"kind": "neuron"}, "kind"),
    ],
)
def test_what_is_no_edit_is_refused(change, words: str) -> None:
    with pytest.raises(EditkitError, match=words) as caught:
        Edit.from_json(json.dumps(GOOD | change))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["", "[", "[]", "3", "[" * 100_000])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(EditkitError, match="mine.json"):
        Edit.from_json(text, where="mine.json")


@pytest.mark.parametrize(
    "text", ["", "L1", "H2", "L-1H2", "L1H2x", "l1h2", "L1H2 L3", "L999999H1", "L1E2H3", "L1E2", "L1NE2"]
)
def test_a_wrong_name_of_a_unit_is_refused(text: str) -> None:
    with pytest.raises(EditkitError, match="L16H21"):
        parse(text)


def test_a_person_may_type_small_letters() -> None:
    """Else `--heads l1h3` is refused for its case."""
    assert parse_all("l1h3, L2H17 l3e7n120") == parse_all("L1H3,L2H17,L3E7N120")
