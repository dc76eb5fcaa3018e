"""The one way in which figures are drawn: theme, settings, and the same bytes for the same data.

    png(lambda figure, theme: ...) -> PNG bytes

Drawn by matplotlib. Names are data: mathematics in labels is switched off, and hidden characters are shown.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.parse_math": False,
    "text.usetex": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "editkit",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Theme:
    """Colours by what they mean. The page's theme holds stand-ins that ``svg.py`` turns into CSS variables."""

    ink: str = "#1b2330"
    soft: str = "#5d6878"
    line: str = "#d5dae1"
    paper: str = "#ffffff"
    accent: str = "#b5391c"
    rise: str = "#1e66a8"
    good: str = "#2a6f97"
    warn: str = "#9a6700"
    bad: str = "#b5391c"
    band: str = "#f1c9bd"


LIGHT = Theme()


def drawn(draw: Callable[[Figure, Theme], None], theme: Theme, kind: str, **save: Any) -> bytes:
    """Run a drawing under the house settings and return the file's bytes. The same data give the same bytes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with rc_context(SETTINGS), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; that is no reason to print warnings.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(layout="constrained")
        draw(figure, theme)
        figure.savefig(buffer, format=kind, **save)
    return buffer.getvalue()


def png(draw: Callable[[Figure, Theme], None]) -> bytes:
    look: dict[str, Any] = {"dpi": 160, "facecolor": LIGHT.paper, "bbox_inches": "tight", "pad_inches": 0.12}
    return drawn(draw, LIGHT, "png", metadata={"Software": None}, **look)
