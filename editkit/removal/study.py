"""A study: a grid of models, capabilities, methods and head counts, measured cell by cell and resumed.

study: math-dose
summary: Accuracy by the number of heads removed (the paper's Figure 2).
models: [meta-llama/Llama-3.1-8B-Instruct]         # bundled = the organism
methods: [css]
heads: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
seeds: [0]
capabilities:
  - recipe: {capability: math, target: {lm_eval: gsm8k, name: gsm8k}, retain: [...]}     # or a recipe's name
    also: [{lm_eval: arithmetic, name: arithmetic-10}]    # measured, but neither target nor retained

How heads are found and how a removal is measured are arguments of ``run``. Each cell's result is a file of its own,
so a study goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from editkit.errors import EditkitError
from editkit.evidence.localization import Localization
from editkit.evidence.report import EvalReport
from editkit.evidence.typed import document, typed
from editkit.removal import recipe as recipes
from editkit.removal.complaints import nearest, validated
from editkit.removal.recipe import Method, Recipe, Spec
from editkit.tasks import strict_yaml
from editkit.units import Unit, parse, show

BUNDLED = "bundled"
"""The model name that stands for the organism."""
MOST_CELLS = 100_000
"""Of one study: short lists multiply to more than any machine measures."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Capability(_Strict):
    """One capability to remove."""

    recipe: Recipe
    """A built-in recipe's name, or a recipe's own keys."""
    also: tuple[Spec, ...] = ()
    """More tasks to measure, which the verdict does not count."""

    @property
    def tasks(self) -> tuple[Spec, ...]:
        """Everything that a cell's report asks."""
        recipe = self.recipe
        return (*recipe.target, *recipe.retain, *recipe.transfer, *recipe.also, *self.also)

    @field_validator("recipe", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return recipes.read(value)
            except EditkitError as error:
                raise ValueError(str(error)) from error
        return value


class Study(_Strict):
    """The grid: every combination is one cell."""

    study: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    """What the study is called, in the cache and above its tables."""
    summary: str = ""
    """One sentence for people: what is asked."""
    models: tuple[str, ...] = Field(min_length=1)
    """Hub ids, directories or GGUF files; `bundled` is the organism."""
    capabilities: tuple[Capability, ...] = Field(min_length=1)
    """What is removed, one at a time."""
    methods: tuple[Method, ...] = Field(min_length=1)
    """How heads are found: see docs/localization.md."""
    heads: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = Field(min_length=1)
    """How many of the heads found are removed, one number after the other."""
    seeds: tuple[int, ...] = (0,)
    """One search for each."""

    @model_validator(mode="after")
    def _countable(self) -> Study:
        count = math.prod(map(len, (self.models, self.capabilities, self.methods, self.heads, self.seeds)))
        if count > MOST_CELLS:
            raise ValueError(f"the grid has {count:,} cells, and at most {MOST_CELLS:,} are run: shorten a list")
        return self


@dataclass(frozen=True)
class Cell:
    """One model without its ``heads`` strongest heads for one capability, as one method and seed order them.

    Args:
        basis: what else its figures depend on and the study does not say: the files it is measured from, and how.
    """

    model: str
    capability: Capability
    method: str
    heads: int
    seed: int
    basis: str = ""

    @property
    def search(self) -> str:
        """The name of the ranking, which cells that differ only in ``heads`` share.

        Readable, and different for every recipe that differs in anything.
        """
        whole = (self.model, self.method, self.seed, self.capability.model_dump(mode="json"), self.basis)
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:10]
        name = re.sub(r"[^A-Za-z0-9.]+", "-", self.model.rsplit("/", 1)[-1]).strip("-.") or "model"
        return f"{name}-{self.capability.recipe.capability}-{self.method}-{self.seed}-{digest}"

    @property
    def key(self) -> str:
        """The name of the result's file."""
        return f"{self.search}-{self.heads}"


@dataclass(frozen=True)
class Result:
    """One cell's answer. ``error`` holds a reason instead where it could not be measured."""

    cell: Cell
    units: frozenset[Unit] = frozenset()
    universal: tuple[Unit, ...] = ()
    found: bool = False
    evaluations: float = 0.0
    report: EvalReport | None = None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: a cell's file; of one that could not be measured, its place in the grid and the reason."""
        cell = self.cell
        where = {"model": cell.model, "capability": cell.capability.recipe.capability, "method": cell.method}
        where |= {"heads": cell.heads, "seed": cell.seed}
        if self.report is None:
            return where | {"error": self.error}
        return where | {
            "units": show(self.units),
            "universal": show(self.universal),
            "found": self.found,
            "evaluations": self.evaluations,
            "report": json.loads(self.report.to_json()),
        }


Locate = Callable[[Cell], Localization]
"""The ranking of the cell's model; the number of heads does not matter."""
Assess = Callable[[Cell, Localization], EvalReport]
"""Before and after of the target, the retained tasks and ``also``, without the cell's number of heads."""


def named(name: str) -> Path:
    """The file of a built-in study by its name, or of one's own by its path.

    Raises:
        EditkitError: there is no such study; the message names the nearest and lists what is built in.
    """
    built_in = names()
    if name in built_in:
        return built_in[name]
    if Path(name).suffix in {".yaml", ".yml"} or "/" in name:
        return Path(name)
    raise EditkitError(
        f"There is no study {name!r}{nearest(name, built_in)}. Built in: {', '.join(built_in)}. Or give the path of a "
        "study file ending in .yaml (docs/reference.md has its keys)."
    )


def names() -> dict[str, Path]:
    """The built-in studies and their files: the paper's experiments."""
    folder = Path(str(files("editkit.recipes") / "paper"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml")) if "\nstudy: " in path.read_text("utf-8")}


def read(path: Path) -> Study:
    """Read a study file.

    Raises:
        EditkitError: naming the file, the key and what is wrong with it.
    """
    try:
        value = strict_yaml.load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise EditkitError(f"The study {path} cannot be read: {' '.join(str(error).split())}.") from error
    if not isinstance(value, dict):
        raise EditkitError(f"{path}: expected a table with study, models, capabilities, methods and heads.")
    return validated(value, Study, str(path))


def cells(study: Study) -> list[Cell]:
    """The grid, in the order of the file, the number of heads last."""
    grid = product(study.models, study.capabilities, study.methods, study.seeds, study.heads)
    return [Cell(model, capability, method, heads, seed) for model, capability, method, seed, heads in grid]


def run(
    study: Study,
    *,
    work: Path,
    locate: Locate,
    assess: Assess,
    basis: Callable[[Cell], str] = lambda cell: "",
    announce: Callable[[Cell, int, int], None] = lambda cell, number, total: None,
) -> Iterator[Result]:
    """Measure every cell that ``work`` does not hold yet; yield all results in order.

    A cell that raises an EditkitError (the model does not show the capability, say) yields its reason, and is tried
    again next time. Any other error stops the study; what was measured stays.

    Args:
        basis: ``Cell.basis``; a cell whose basis has changed is measured again.
        announce: called before each cell with its number and the number of cells.
    """
    grid = [replace(cell, basis=basis(cell)) for cell in cells(study)]
    for number, cell in enumerate(grid, 1):
        announce(cell, number, len(grid))
        path = work / "cells" / f"{cell.key}.json"
        if path.is_file():
            yield _read(path, cell)
            continue
        try:
            ranking = _ranking(cell, work, locate)
            report = assess(cell, ranking)
        except EditkitError as error:
            yield Result(cell, error=str(error))
            continue
        units = ranking.top(cell.heads)
        result = Result(cell, units, ranking.universal, ranking.found, ranking.evaluations, report)
        _save(path, json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n")
        yield result


def _ranking(cell: Cell, work: Path, locate: Locate) -> Localization:
    path = work / "rankings" / f"{cell.search}.json"
    if path.is_file():
        return Localization.from_json(path.read_bytes().decode("utf-8", "replace"), where=str(path))
    ranking = locate(cell)
    _save(path, ranking.to_json())
    return ranking


def _read(path: Path, cell: Cell) -> Result:
    try:
        value = document(path.read_text("utf-8"))
        return Result(
            cell,
            frozenset(map(parse, typed(list[str], value["units"]))),
            tuple(map(parse, typed(list[str], value["universal"]))),
            typed(bool, value["found"]),
            typed(float, value["evaluations"]),
            EvalReport.from_json(json.dumps(value["report"]), where=str(path)),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EditkitError(
            f"{path} is not a cell of a study: {error!r:.200}. Delete it, and it is measured again."
        ) from error


def _save(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, "utf-8")
    partial.replace(path)
