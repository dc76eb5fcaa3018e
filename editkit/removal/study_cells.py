"""How a study's cells are measured on real models: the two arguments of ``study.run``, with one model loaded at a time.

bench = Laboratory(work=Path("build/study"))
results = list(study.run(wanted, work=bench.work, locate=bench.locate, assess=bench.assess))
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from editkit.checkpoints import source
from editkit.checkpoints.files import stamp
from editkit.evidence import report as evaluation
from editkit.evidence.localization import Localization
from editkit.evidence.report import EvalReport, Row
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load
from editkit.models.memory import free
from editkit.progress import Stages, silent
from editkit.removal import find_heads as locating
from editkit.removal import study
from editkit.removal.recipe import Recipe
from editkit.removal.trial import Sheet, again, answers, null, rows
from editkit.tasks.find import files, find
from editkit.tasks.task import Task
from editkit.units import Head
from editkit.workspace import work_for


@dataclass(frozen=True)
class Laboratory:
    """Where and how cells are measured.

    Args:
        work: the folder of the study; all its models share one measurement store there.
        folder: where the study file lies, for the files its tasks name.
        allow_code: whether code that the model writes may run in a sandbox.
    """

    work: Path
    folder: Path = Path(".")
    device: str = "auto"
    dtype: str = "auto"
    allow_code: bool = False
    stages: Stages = silent
    loaded: dict[str, LanguageModel] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The last model: cells come sorted by model, and the next one needs its memory."""

    def locate(self, cell: study.Cell) -> Localization:
        """The ranking of one model's heads."""
        live, wanted = self._live(cell.model), self._wanted(cell.capability.recipe)
        with opened(self._store(live, cell)) as store:
            return locating.localize(live, wanted, store, method=cell.method, seed=cell.seed, stages=self.stages)

    def assess(self, cell: study.Cell, ranking: Localization) -> EvalReport:
        """Before and after on the ``report`` split, with both controls: random heads, and the unedited model twice.

        ``also`` is measured like the rest, and judged by nobody.
        """
        live, wanted = self._live(cell.model), self._wanted(cell.capability.recipe)
        also = [find(spec, folder=self.folder, allow_code=self.allow_code) for spec in cell.capability.also]
        tasks, recipe = [wanted.target, *wanted.retain, *also], wanted.recipe
        heads = frozenset(unit for unit in ranking.top(cell.heads) if isinstance(unit, Head))
        universal = [unit for unit in ranking.universal if isinstance(unit, Head)]

        def sheets(heads: frozenset[Head], title: str) -> list[Sheet]:
            mask, limit = live.architecture.mask(heads), recipe.examples.report
            with self.stages(title, None) as advance:
                return answers(live, tasks, mask, store, split="report", limit=limit, advance=advance)

        def paired(first: list[Sheet], second: list[Sheet]) -> list[Row]:
            rng, names = np.random.default_rng(cell.seed), {task.name for task in also}
            told = rows(wanted, first, second, split="report", rng=rng)
            return [replace(row, role="also") if row.task in names else row for row in told]

        with opened(self._store(live, cell)) as store:
            before, after = sheets(frozenset(), "Answers, unedited"), sheets(heads, "Answers, edited")
            with self.stages("Noise floor", None) as advance:
                second = again(live, before, store, advance=advance)
            chance = null(
                live, wanted, heads, universal, before[0], after[0], store, seed=cell.seed, stages=self.stages
            )
        return evaluation.report(
            paired(before, after), criteria=recipe.criteria, null=chance, noise=paired(before, second)
        )

    def basis(self, cell: study.Cell) -> str:
        """Digest of the precision, and of sizes and times of the files on this machine that the cell is measured from.

        A model on the Hub is its name: what was measured of it stays measured. The store below knows contents, so a
        file that was only touched costs little.
        """
        model = source.here(_name(cell.model))
        recipe = cell.capability.recipe
        specs = (recipe.target, *recipe.retain, *cell.capability.also)
        paths = [*_below(model), *(path for spec in specs for path in files(spec, self.folder))]
        stamps = [(path.name, stamp(path)) for path in paths]
        return hashlib.sha256(repr((self.dtype, stamps)).encode()).hexdigest()

    def _live(self, model: str) -> LanguageModel:
        if model not in self.loaded:
            self.loaded.clear()
            free()
            self.loaded[model] = load(_name(model), device=self.device, dtype=self.dtype)
        return self.loaded[model]

    def _store(self, live: LanguageModel, cell: study.Cell) -> Path:
        return work_for(live.source.base, "study", cell.seed, self.work).store

    def _wanted(self, recipe: Recipe) -> locating.Capability:
        def found(spec: study.Spec) -> Task:
            return find(spec, where=recipe.capability, folder=self.folder, allow_code=self.allow_code)

        return locating.Capability(recipe, found(recipe.target), tuple(found(spec) for spec in recipe.retain))


def _name(model: str) -> str | None:
    return None if model == study.BUNDLED else model


def _below(model: Path | None) -> list[Path]:
    return [] if model is None else sorted(path for path in model.rglob("*") if path.is_file())
