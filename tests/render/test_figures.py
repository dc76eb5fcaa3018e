"""The figures are drawn from the evidence: same data same bytes, other data another picture.

If one fails: a figure shows other numbers than its report.
"""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from editkit.edit import Edit
from editkit.evidence.intervals import Interval
from editkit.evidence.localization import Effect, Localization
from editkit.evidence.provenance import LayerShape
from editkit.evidence.report import EvalReport
from editkit.render import figures, head_map, wording
from editkit.units import Head
from tests.made_evidence import evidence


def pixels(png: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return imread(io.BytesIO(png), format="png")


def map_of(edit: Edit, localization: Localization, shape: tuple[LayerShape, ...]) -> bytes:
    return head_map.png(edit, localization, replace(evidence().provenance, shape=shape))


def test_the_same_evidence_gives_the_same_bytes():
    found = evidence()
    assert figures.deltas_png(found.report) == figures.deltas_png(found.report)
    assert figures.deltas_svg(found.report) == figures.deltas_svg(found.report)
    four = found.edit, found.localization, found.provenance
    assert head_map.png(*four) == head_map.png(*four)


def test_the_pictures_are_large_enough_and_opaque():
    found = evidence()
    for png in (figures.deltas_png(found.report), head_map.png(found.edit, found.localization, found.provenance)):
        height, width, depth = pixels(png).shape
        assert width > 1000 and height > 300
        assert depth == 3 or float(pixels(png)[..., 3].min()) == 1.0
        assert len(png) < 200_000


def test_a_removed_head_and_its_effect_are_seen():
    shape = (LayerShape(0, 4), LayerShape(1, 4))
    none = Localization("css", 0, 1, (), (), True)
    strong = replace(none, order=(Effect(Head(1, 2), -0.5, -0.6, -0.4, 0.0, 1.0),))
    universal = replace(none, universal=(Head(0, 0),))
    base = evidence().edit.base
    pictures = [
        map_of(Edit(base, frozenset()), none, shape),
        map_of(Edit(base, frozenset()), strong, shape),
        map_of(Edit(base, frozenset({Head(1, 2)})), strong, shape),
        map_of(Edit(base, frozenset()), universal, shape),
    ]
    assert len(set(pictures)) == 4
    red = pixels(pictures[1]).reshape(-1, pixels(pictures[1]).shape[-1])[:, :3]
    accent = np.array([0xB5, 0x39, 0x1C]) / 255
    assert (np.abs(red - accent).max(axis=1) < 0.02).sum() > 500


@pytest.mark.parametrize(
    "shape",
    [
        (LayerShape(0, 1),),
        (LayerShape(3, 8, 2), LayerShape(7, 24, 8)),
        tuple(LayerShape(layer, 64, 8) for layer in range(40)),
        (),
    ],
    ids=["one head", "uneven layers", "large", "no shape"],
)
def test_any_shape_is_drawn(shape):
    edit, localization = Edit(evidence().edit.base, frozenset()), Localization("css", 0, 1, (), (), False)
    height, width, _ = pixels(map_of(edit, localization, shape)).shape
    assert 100 < height < 3000 and 200 < width < 3000


def test_without_a_shape_the_heads_of_the_evidence_are_drawn():
    found = evidence()
    layers = head_map.head_map(found.edit, found.localization, replace(found.provenance, shape=()))
    heads = {cell.head for layer in layers for cell in layer.cells}
    assert set(found.edit.heads) <= heads and set(found.localization.universal) <= heads


def test_a_cell_knows_its_role_certainty_and_group():
    found = evidence()
    layers = head_map.head_map(found.edit, found.localization, found.provenance)
    cells = {cell.head: cell for layer in layers for cell in layer.cells}
    assert len(cells) == 144
    assert (cells[Head(1, 5)].role, cells[Head(1, 5)].certain, cells[Head(1, 5)].group) == ("removed", True, 1)
    assert (cells[Head(0, 2)].role, math.isnan(cells[Head(0, 2)].effect)) == ("universal", True)
    assert not cells[Head(0, 0)].certain
    assert head_map.scale(layers) == pytest.approx(0.46)


def test_heads_that_were_only_tried_are_drawn_and_named_so():
    found = evidence("goal-missed")
    refused = replace(found.provenance, format="evidence")
    cells = [c for layer in head_map.head_map(found.edit, found.localization, refused) for c in layer.cells]
    assert {cell.head for cell in cells if cell.role == "tried"} == found.edit.heads
    assert not [cell for cell in cells if "removed" in cell.label]
    removed, tried = (head_map.png(found.edit, found.localization, p) for p in (found.provenance, refused))
    assert removed != tried


@pytest.mark.parametrize(
    ("value", "shown"),
    [(-0.13679, "−13.7"), (-0.0099, "−0.99"), (-0.00011, "−0.01"), (1e-6, "0.0"), (0.0, "0.0"), (math.nan, "–")],
)
def test_a_small_effect_is_not_shown_as_none(value, shown):
    assert wording.effect(value) == shown


@pytest.mark.parametrize(
    ("low", "high", "p", "certain"),
    [(-0.3, -0.1, 1.0, True), (-0.3, 0.1, 0.0, False), (0.1, 0.2, 1.0, True), (math.nan, math.nan, 0.01, True)]
    + [(math.nan, math.nan, 0.2, False), (math.nan, math.nan, math.nan, False)],
)
def test_certainty_is_the_interval_or_else_p(low, high, p, certain):
    assert head_map.is_certain(Effect(Head(0, 0), -0.2, low, high, p, 1.0)) is certain


@pytest.mark.parametrize("status", ["met", "too-much-damage"])
def test_the_figure_of_changes_shows_the_reports_numbers(status):
    report = evidence(status).report
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", figures.deltas_svg(report))
    for row in report.rows:
        assert f"{wording.points(row.delta.mean)}  [{wording.span(row.delta)}]" in texts
        assert f"{row.task}  (n={row.n})" in texts


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_report_without_some_rows_is_drawn(keep):
    report = evidence().report
    rows = {0: (), 1: report.rows[:1], 2: report.rows[1:]}[keep]
    assert figures.deltas_png(replace(report, rows=rows)).startswith(b"\x89PNG")


def test_unknown_numbers_are_drawn_as_unknown():
    report: EvalReport = evidence().report
    unknown = Interval(math.nan, math.nan, math.nan)
    rows = (report.rows[0], replace(report.rows[1], delta=unknown, after=unknown))
    assert f"{wording.UNKNOWN}  [{wording.UNKNOWN}]" in figures.deltas_svg(replace(report, rows=rows))


def test_the_page_figures_take_their_colours_from_the_page():
    found = evidence()
    dose, null = figures.dose_svg(found.exhibits.dose, 5, "removed"), figures.null_svg(found.report, "removed")
    for text in (figures.deltas_svg(found.report), dose, null):
        assert "var(--accent)" in text and "var(--soft)" in text
        assert not re.search(r"#[0-9a-f]{6}", text)
        assert 'role="img"' in text and "aria-label" in text


def test_the_dose_curve_marks_how_many_were_removed():
    dose = evidence().exhibits.dose
    assert "5 removed" in figures.dose_svg(dose, 5, "removed") and "3 tried" in figures.dose_svg(dose, 3, "tried")
    assert "goal: 14.9 %" in figures.dose_svg(dose, 5, "removed", 0.149)
    assert "goal" not in figures.dose_svg(dose, 5, "removed")
    assert figures.dose_svg(dose[:1], 0, "tried").count("<svg") == 1


def test_the_null_shows_how_far_the_removed_heads_are():
    assert "the removed heads: −97.3" in figures.null_svg(evidence().report, "removed")
    assert "the tried heads: −97.3" in figures.null_svg(evidence().report, "tried")
    rising = replace(evidence().report.random_heads, delta=0.1)  # type: ignore[type-var]
    assert "+10.0" in figures.null_svg(replace(evidence().report, random_heads=rising), "removed")
