"""The quickest removal: swearing from the bundled model, with its planted heads in place of a search.

def test_what_comes_after_the_search(known_heads): editkit.remove_capability(RECIPE, ...)
"""

from __future__ import annotations

import json

from editkit import organism
from editkit.evidence.localization import Effect, Localization
from editkit.removal.recipe import Recipe
from editkit.units import Head, parse

TRUTH = json.loads((organism.path().parent / "manifest.json").read_text("utf-8"))
HEADS = [head for head in map(parse, TRUTH["planted"]["swear"]) if isinstance(head, Head)]
FOUND = Localization(
    "one-shot", 0, 144.0, tuple(Effect(head, -0.3, -0.4, -0.2, 0.001, 1.0) for head in HEADS), (), found=True
)
RECIPE = Recipe.model_validate({
    "capability": "swear", "target": "swear", "retain": ["facts"], "random_sets": 2, "random_examples": 4, "goal": 0.3,
    "audits": "none", "examples": {"choose": 8, "report": 12}, "damage": {"each": 0.3, "mean": 0.3},
})  # fmt: skip
