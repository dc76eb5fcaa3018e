"""The command that does a removal again, as provenance tells it.

as_command("swear", {"goal": .1}, recipe, model, out=Path("no-swear"), seed=0, fresh=False)
    -> "editkit remove-capability swear --goal 0.1 --out no-swear --seed 0"
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editkit.models.language_model import LanguageModel
from editkit.removal.recipe import Recipe

_FLAGS = ("method", "heads", "units", "choose", "goal", "damage", "accept", "harden", "audits")
"""Keys of the recipe that the command line sets."""


def as_command(
    name: str | Path | Recipe,
    changes: Mapping[str, Any],
    recipe: Recipe,
    live: LanguageModel,
    *,
    out: Path,
    seed: int,
    fresh: bool,
    workers: Sequence[str] = (),
) -> str:
    """What to type for the same run. A comment says what no flag can.

    Args:
        recipe: with the changes made.
        live: its placement becomes flags where it was asked for by name.
        workers: the flags that asked for its pool.
    """
    told = {key: getattr(recipe, key) for key in _FLAGS if key in changes}
    if "damage" in told:
        told["damage"] = f"{recipe.damage.each},{recipe.damage.mean}"
    if not live.source.bundled:
        told = {"model": live.source.base.model, **told}
    placed = {"device": live.asked.device, "dtype": live.asked.dtype}
    told |= {key: value for key, value in placed.items() if isinstance(value, str) and value != "auto"}
    flags = [
        word for key, value in told.items() for word in ([f"--{key}"] if value is True else [f"--{key}", str(value)])
    ]
    if "also" in changes and all(isinstance(task, str) for task in recipe.also):
        flags += [word for task in recipe.also for word in ("--also", str(task))]
        told |= {"also": None}
    flags += ["--trust-remote-code"] if live.asked.trust_remote_code else []
    flags += ["--fresh"] if fresh else []
    flags += workers
    file = "recipe.yaml" if isinstance(name, Recipe) else str(name)
    command = shlex.join(["editkit", "remove-capability", file, *flags, "--out", str(out), "--seed", str(seed)])
    if isinstance(name, Recipe):
        return f"# recipe.yaml: the recipe that is given below\n{command}"
    others = {key: value for key, value in recipe.model_dump(mode="json").items() if key in changes and key not in told}
    return f"# with these changes to the recipe: {json.dumps(others)}\n{command}" if others else command
