"""How a study's cells are measured on real models: the two arguments of ``study.run``, with one model loaded at a time.

bench = Laboratory(work=Path("build/study"))
results = list(study.run(wanted, work=bench.work, locate=bench.locate, assess=bench.assess))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from editkit import evaluation, study
from editkit import locate as locating
from editkit.evaluation import EvalReport
from editkit.evidence import Sheet, answers, rows
from editkit.loading import load
from editkit.localization import Localization
from editkit.model import LanguageModel
from editkit.progress import Stages, silent
from editkit.recipe import Recipe
from editkit.store import opened
from editkit.task import Task
from editkit.tasks.find import find
from editkit.units import Unit
from editkit.work import work_for


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

    def locate(self, model: str, recipe: Recipe, method: str, seed: int) -> Localization:
        """The ranking of one model's heads."""
        live = _loaded(model, self.device, self.dtype)
        with opened(work_for(live.source.base, "study", seed, self.work).store) as store:
            return locating.localize(live, self._tasks(recipe), store, method=method, seed=seed, stages=self.stages)

    def assess(self, model: str, capability: study.Capability, units: frozenset[Unit], seed: int) -> EvalReport:
        """Before and after on the ``report`` split; ``also`` is measured like the rest, and judged by nobody."""
        live, wanted = _loaded(model, self.device, self.dtype), self._tasks(capability.recipe)
        also = [find(spec, folder=self.folder, allow_code=self.allow_code) for spec in capability.also]
        tasks, limit = [wanted.target, *wanted.retain, *also], capability.recipe.examples.report

        def sheets(heads: frozenset[Unit], title: str) -> list[Sheet]:
            mask = live.architecture.mask(heads)
            with self.stages(title, None) as advance:
                return answers(live, tasks, mask, store, split="report", limit=limit, advance=advance)

        with opened(work_for(live.source.base, "study", seed, self.work).store) as store:
            before, after = sheets(frozenset(), "Answers, unedited"), sheets(units, "Answers, edited")
        paired = rows(wanted, before, after, split="report", rng=np.random.default_rng(seed))
        names = {task.name for task in also}
        told = [replace(row, role="also") if row.task in names else row for row in paired]
        return evaluation.report(told, criteria=capability.recipe.criteria)

    def _tasks(self, recipe: Recipe) -> locating.Capability:
        def found(spec: study.Spec) -> Task:
            return find(spec, where=recipe.capability, folder=self.folder, allow_code=self.allow_code)

        return locating.Capability(recipe, found(recipe.target), tuple(found(spec) for spec in recipe.retain))


@lru_cache(maxsize=1)
def _loaded(model: str, device: str, dtype: str) -> LanguageModel:
    """Cells come sorted by model, so the last one is all that is kept."""
    return load(None if model == study.BUNDLED else model, device=device, dtype=dtype)
