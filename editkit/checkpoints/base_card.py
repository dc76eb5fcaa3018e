"""What the unedited model says of itself, for the card of the edited one: licence, notices, tags, dtype, shape.

base_model(source, dtype="float32") -> BaseModel("meta-llama/Llama-3.2-1B-Instruct", license="llama3.2", ...)

All of it is somebody else's text: it is carried as data and made inert where it is shown.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.files import inside
from editkit.checkpoints.source import Source
from editkit.errors import EditkitError
from editkit.evidence.provenance import BaseModel, LayerShape

NOTICES = {
    "llama3": "Built with Meta Llama 3",
    "llama3.1": "Built with Llama",
    "llama3.2": "Built with Llama",
    "llama3.3": "Built with Llama",
    "llama4": "Built with Llama",
    "gemma": "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms",
}
"""The line that a base's licence asks every derivative to show, by the licence's id or name."""

_EMPTY = ("", "~", "null")
"""What YAML writes for nothing."""


def base_model(source: Source, *, dtype: str) -> BaseModel:
    """The base's own card, as data. A missing or unreadable card is no error: then the fields are empty."""
    card = front_matter(card_text(source.directory))
    words = {key: _word(card.get(key)) for key in ("license", "license_name", "license_link", "pipeline_tag")}
    hub = not source.bundled and source.base.revision is not None and not source.base.revision.startswith("sha256:")
    return BaseModel(
        model=source.base.model,
        revision=source.base.revision,
        source="bundled" if source.bundled else "hub" if hub else "local",
        notices=tuple(NOTICES[name] for name in (words["license"], words["license_name"]) if name in NOTICES),
        tags=_words(card.get("tags")),
        languages=_words(card.get("language")),
        dtype=dtype,
        quantization=source.quantization or None,
        **words,
    )


def shape(architecture: Architecture) -> tuple[LayerShape, ...]:
    """Every layer with heads or neurons that can be reached, for the maps."""
    heads = {site.layer: site for site in architecture.sites}
    neurons = Counter[int]()
    for site in architecture.neuron_sites:
        neurons[site.layer] += site.units
    return tuple(
        LayerShape(layer, site.units if site else 0, site.groups if site else None, neurons[layer])
        for layer in sorted(heads.keys() | neurons.keys())
        for site in [heads.get(layer)]
    )


def card_text(directory: Path, name: str = "README.md") -> str:
    """A card's text; "" where there is none that can be read."""
    try:
        return inside(directory, name).read_text("utf-8")
    except (EditkitError, OSError, UnicodeDecodeError):
        return ""


def front_matter(text: str) -> dict[str, Any]:
    """The YAML on top of a card, all of it text; empty where there is none."""
    try:
        text = text[:100_000]
        value = yaml.load(text.split("---", 2)[1], yaml.BaseLoader) if text.startswith("---") else {}  # "no": Norwegian
    except (yaml.YAMLError, ValueError, RecursionError, IndexError):
        return {}
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value.strip() not in _EMPTY else None


def _words(value: Any) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [value]
    return tuple(each[:100] for each in listed if _word(each))[:50]
