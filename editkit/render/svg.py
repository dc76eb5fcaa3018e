"""The figures as inline SVG for the page: real text, colours from the page's CSS, so light and dark both work.

dose(exhibits.dose, 5) -> '<svg class="figure" role="img" aria-label="..." viewBox="0 0 604 252">...</svg>'
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from editkit.evidence.exhibits import Dose
from editkit.evidence.report import EvalReport
from editkit.render import plots, wording
from editkit.render.drawing import Theme, drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"

# Colours that stand for the page's variables: matplotlib draws with them, ``_restyle`` puts the variables back.
STAND_INS = {field.name: f"#0{place:x}0b0c" for place, field in enumerate(fields(Theme))}
VARIABLES = {colour: f"var(--{name})" for name, colour in STAND_INS.items()}


def deltas(report: EvalReport) -> str:
    label = "Change of every task with its 95 % interval; the same numbers are in the table."
    return _inline("deltas", label, lambda figure, theme: plots.draw_deltas(figure, theme, report))


def dose(points: tuple[Dose, ...], chosen: int, fate: wording.Fate, goal: float = math.nan) -> str:
    label = f"Scores against the number of heads switched off; {chosen} were {fate}. The table below has the numbers."
    marked = f"{chosen} {fate}"
    return _inline("dose", label, lambda figure, theme: plots.draw_dose(figure, theme, points, marked, chosen, goal))


def null(report: EvalReport, fate: wording.Fate) -> str:
    label, ours = wording.null_line(report) or "", f"the {fate} heads"
    return _inline("null", label, lambda figure, theme: plots.draw_null(figure, theme, report, ours))


def _inline(name: str, label: str, draw: Callable[[Figure, Theme], None]) -> str:
    quiet = {key: None for key in ("Creator", "Date", "Format", "Type")}
    text = drawn(draw, Theme(**STAND_INS), "svg", transparent=True, metadata=quiet).decode()
    root = ElementTree.fromstring(text)
    for parent in root.iter():
        for child in [c for c in parent if c.tag == f"{{{SVG}}}metadata" or not c.tag.startswith(f"{{{SVG}}}")]:
            parent.remove(child)
    for element in root.iter():
        _restyle(element, name)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib.update({"class": "figure", "role": "img", "aria-label": label})
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _restyle(element: ElementTree.Element, name: str) -> None:
    """Variables for colours, and ids that are unique on a page with several figures."""
    if target := element.attrib.pop(XLINK, None):
        element.set("href", target.replace("#", f"#{name}-", 1))
    for key, value in list(element.attrib.items()):
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key in ("style", "clip-path", "fill", "stroke"):
            value = re.sub(r"#0[0-9a-f]0b0c", lambda match: VARIABLES.get(match[0], match[0]), value)
            value = re.sub(r"url\(#", f"url(#{name}-", value)
            # The page's own font; the size stays.
            element.set(key, re.sub(r"font: ([\d.]+px) [^;]+", r"font-size: \1", value))
