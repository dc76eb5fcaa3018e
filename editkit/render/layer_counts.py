"""Where the neurons of an edit are: how many of each layer, as a figure.

svg(outcome) -> '<svg class="figure" role="img" aria-label="Neurons removed, layer by layer: L22 9, L29 7, ...'
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from editkit.evidence.outcome import Outcome
from editkit.render import figures, wording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def counts(outcome: Outcome) -> dict[int, int]:
    """Layer -> neurons of the edit, every layer that has neurons or is named."""
    removed = Counter(unit.layer for unit in outcome.edit.neurons)
    layers = {shape.layer for shape in outcome.provenance.shape if shape.neurons} | removed.keys()
    return {layer: removed[layer] for layer in sorted(layers)}


def png(outcome: Outcome) -> bytes:
    return figures.png(lambda figure, theme: _draw(figure, theme, outcome))


def svg(outcome: Outcome) -> str:
    listed = ", ".join(f"L{layer} {count}" for layer, count in counts(outcome).items() if count)
    label = f"Neurons {wording.fate(outcome.provenance)}, layer by layer: {listed}."
    return figures.svg("neurons", label, lambda figure, theme: _draw(figure, theme, outcome))


def _draw(figure: Figure, theme: figures.Theme, outcome: Outcome) -> None:
    from matplotlib.ticker import MaxNLocator

    figure.set_size_inches(8.4, 2.4)
    axis, of_layer = figure.subplots(), counts(outcome)
    axis.bar(list(of_layer), list(of_layer.values()), width=0.82, color=theme.accent)
    axis.set_xlim(min(of_layer) - 0.7, max(of_layer) + 0.7)
    axis.xaxis.set_major_locator(MaxNLocator(20, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_xlabel("layer", color=theme.soft)
    axis.set_ylabel(f"neurons {wording.fate(outcome.provenance)}", color=theme.soft)
    figures.calm(axis, theme, grid="y")
