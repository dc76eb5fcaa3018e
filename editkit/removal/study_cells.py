"""How a study's cells are measured on real models: the two arguments of ``study.run``, with one model loaded at a time.

bench = Laboratory(work=Path("build/study"))
results = list(study.run(wanted, work=bench.work, locate=bench.locate, assess=bench.assess))
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from editkit.checkpoints import gguf, source
from editkit.checkpoints.files import stamp
from editkit.evidence.localization import Localization
from editkit.evidence.report import EvalReport
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source
from editkit.models.memory import free
from editkit.models.placement import Placement
from editkit.progress import Stages, silent
from editkit.removal import study
from editkit.removal.capability import Capability, capability
from editkit.removal.find_heads import localize
from editkit.removal.random_sets import Draw, random_heads
from editkit.removal.recipe import Recipe
from editkit.removal.trial import trial_of
from editkit.tasks.find import files, find
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
    placement: Placement = Placement()
    allow_code: bool = False
    stages: Stages = silent
    loaded: dict[str, LanguageModel] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The last model: cells come sorted by model, and the next one needs its memory."""

    def locate(self, cell: study.Cell) -> Localization:
        """The ranking of one model's heads."""
        with self._ledger(cell) as ledger:
            return localize(ledger, self._wanted(cell.capability.recipe), method=cell.method, seed=cell.seed)

    def assess(self, cell: study.Cell, ranking: Localization) -> EvalReport:
        """Before and after on the ``report`` split, with both controls: random heads, and the unedited model twice.

        ``also`` is measured like the rest, and judged by nobody.
        """
        wanted, recipe = self._wanted(cell.capability.recipe), cell.capability.recipe
        also = [find(spec, folder=self.folder, allow_code=self.allow_code) for spec in cell.capability.also]
        trial = trial_of(replace(wanted, also=(*wanted.also, *also)), seed=cell.seed)
        heads = ranking.top(cell.heads)
        draw = Draw(recipe.random_sets, recipe.random_examples, cell.seed)
        with self._ledger(cell) as ledger:
            answers = trial.asked(ledger, heads)
            pair = trial.least_lost(answers.before, answers.after)
            null = random_heads(ledger, heads, ranking.universal, *pair, draw)
        return trial.report(answers, null)

    def basis(self, cell: study.Cell) -> str:
        """Digest of the precision, and of sizes and times of the files on this machine that the cell is measured from.

        A model on the Hub is its name: what was measured of it stays measured. The store below knows contents, so a
        file that was only touched costs little.
        """
        name = _name(cell.model)
        file = gguf.file_of(name)
        folder = source.here(name)
        model = [file] if file else sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []
        paths = [*model, *(path for spec in cell.capability.tasks for path in files(spec, self.folder))]
        stamps = [(path.name, stamp(path)) for path in paths]
        return hashlib.sha256(repr((self.placement.dtype, stamps)).encode()).hexdigest()

    @contextmanager
    def _ledger(self, cell: study.Cell) -> Iterator[Ledger]:
        live = self._live(cell.model)
        with opened(work_for(live.source.base, "study", cell.seed, self.work).store) as store:
            yield Ledger(live, store, self.stages)

    def _live(self, model: str) -> LanguageModel:
        if model not in self.loaded:
            self.loaded.clear()
            free()
            self.loaded[model] = load_source(source.resolve(_name(model), stages=self.stages), self.placement)
        return self.loaded[model]

    def _wanted(self, recipe: Recipe) -> Capability:
        return capability(recipe, folder=self.folder, allow_code=self.allow_code)


def _name(model: str) -> str | None:
    return None if model == study.BUNDLED else model
