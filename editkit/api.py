"""The public verbs: names and paths in, values out. The command line and notebooks call the same functions.

found = localize(load(), "swear", seed=0)
result = remove_capability("swear", out="no-swear")
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from editkit.checkpoints.source import Source, is_bundled, resolve
from editkit.checkpoints.staging import default_out
from editkit.cluster.workers import Workers, flags_of
from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.evidence.attacks import Attacks
from editkit.evidence.localization import Localization
from editkit.evidence.outcome import Outcome
from editkit.evidence.report import EvalReport
from editkit.evidence.results import of_outcome
from editkit.evidence.verdict import Criteria
from editkit.localizers.universal import Universals
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source
from editkit.models.placement import Placement
from editkit.progress import Stages, silent
from editkit.removal import comparison, find_heads
from editkit.removal import recipe as recipes
from editkit.removal.capability import Capability, capability
from editkit.removal.command import as_command
from editkit.removal.comparison import Later, Standings
from editkit.removal.fresh import fresh_examples
from editkit.removal.locate import locate
from editkit.removal.recipe import Recipe
from editkit.removal.remove import Run
from editkit.removal.remove import remove_capability as remove
from editkit.removal.rerun import Rerun
from editkit.removal.rerun import rerun as again
from editkit.removal.trial import Trial
from editkit.removal.tryout import Named, Tryout, tasks_of
from editkit.removal.tryout import tryout as first_look
from editkit.render import evidence_folder
from editkit.render.export import Export, default_directory
from editkit.render.figures import Png
from editkit.tasks.builtin import TASKS, usual
from editkit.units import Unit, units
from editkit.workspace import Session, work_for

LOADING = "Loading the model"
"""The title of this stage."""
Model = LanguageModel | Source | str | Path | None
"""A loaded model, a Hub id, a local directory; None for the bundled organism."""


def load(
    model: str | Path | None = None,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    check: bool = True,
    workers: int | Workers | None = None,
) -> LanguageModel:
    """Load a model once, find its heads, and let each head site prove itself.

    Args:
        model: a Hub id or a local directory; None loads the bundled organism.
        device, dtype, trust_remote_code: see ``Placement``.
        check: run the causal self-check: a zero mask changes nothing, every site something.
        workers: let so many copies of it answer, here or on a Ray cluster (docs/cluster.md).

    Raises:
        EditkitError: unknown model, missing weights, unsupported architecture, or a failed self-check.
        UsageError: ``workers`` without Ray.
    """
    asked = Workers(workers) if isinstance(workers, int) else workers
    placement = Placement(device, dtype, trust_remote_code, None if asked is None else asked.opener())
    return load_source(resolve(model, revision), placement, check=check)


def localize(
    model: LanguageModel,
    name: str | Path | Recipe,
    *,
    method: str | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    seed: int = 0,
    session: Session = Session(),
) -> Localization:
    """Rank the heads or neurons that a capability depends on.

    Args:
        name: a built-in recipe, the path of a recipe file, or a recipe.
        method: ``auto``, ``halving``, ``css``, ``csb``, ``greedy`` or ``one-shot``; the recipe's own if None.
        changes: keys of the recipe with other values, such as ``{"units": "neurons"}``.

    Raises:
        EditkitError: an unknown recipe, or a model that does not show the capability.
    """
    wanted = _capability(name, session, changes)
    with opened(work_for(model.source.base, wanted.recipe.capability, seed, session.work).store) as store:
        return locate(Ledger(model, store, session.stages), wanted, method=method, seed=seed)


@contextmanager
def knocked_out(model: LanguageModel, heads: Iterable[Unit | str]) -> Iterator[None]:
    """Knock ``heads`` (or their names) out while the block runs; all that the model says meanwhile is without them."""
    from editkit.models.knockout import knocked_out as hooked

    with hooked(model.network, model.architecture, units(heads)):
        yield


def evaluate(
    model: Model = None,
    *,
    base: Model,
    tasks: Sequence[str] = (),
    limit: int = 200,
    seed: int = 0,
    placement: Placement = Placement(),
    session: Session = Session(),
    export: Export | None = None,
) -> EvalReport:
    """Compare a model with its base: the same examples of the ``report`` split, paired, with intervals.

    Args:
        tasks: the name of a task, or of a recipe for all that it asks, or several; if empty, the built-in ones that
            suit the base (``usual``). Where ``model`` is an output of editkit, the task that its recipe removed is the
            target of the verdict.
        limit: examples per task.
        export: where answers and scores of both go, for other evaluation programs.
    """
    if export is not None:
        export.check()
    model, base = (_found(each, session.stages) for each in (model, base))
    trial = _hiding(_trial(tasks, base, limit, seed, session), model, export)
    edited, unedited = (_later(each, placement, session.stages) for each in (model, base))
    found = comparison.comparison(edited, unedited, trial, session.work, stages=session.stages)
    if export is not None:
        export.write(found.results(_today()))
    return found.report


def remove_capability(
    name: str | Path | Recipe,
    *,
    model: Model = None,
    out: str | Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    seed: int = 0,
    fresh: bool = False,
    placement: Placement = Placement(),
    session: Session = Session(),
) -> Outcome:
    """Find the heads, prove the removal on fresh examples, write the checkpoint and its evidence to ``out``, attack it.

    Args:
        name: a built-in recipe, the path of a recipe file, or a recipe.
        out: the new checkpoint; ``MODEL-no-NAME`` here if None. It must not exist.
        changes: keys of the recipe with other values, such as ``{"heads": 3, "goal": 0.5, "accept": "best"}``.
        fresh: report on examples alone that no earlier run on the same store has looked at; refused at once where a
            task has too few left.

    Raises:
        NotLocalized, TooMuchDamage: no checkpoint; ``out`` holds the evidence.
        IntegrityError: the written checkpoint does not behave as the measured model.
    """
    wanted = _capability(name, session, changes)
    source = model.source if isinstance(model, LanguageModel) else _resolved(model, session.stages)
    target = Path(out) if out is not None else default_out(source.base.model, wanted.recipe.capability)
    work = work_for(source.base, wanted.recipe.capability, seed, session.work)
    own = None
    if fresh:
        dtype = model.asked.dtype if isinstance(model, LanguageModel) else placement.dtype
        with opened(work.store) as store:
            own = fresh_examples(store, source.base, wanted, seed=seed, dtype=str(dtype))
    live = model if isinstance(model, LanguageModel) else _loaded(source, placement, session.stages)
    command = session.command or as_command(
        name, changes, wanted.recipe, live, out=target, seed=seed, fresh=fresh, workers=flags_of(live.asked.pool)
    )
    run = Run(wanted, target, seed, command, _today(), own)
    outcome = remove(live, run, work, stages=session.stages)
    if wanted.recipe.audits == "none":
        return outcome
    with opened(work.store) as store:
        return replace(outcome, attacks=_audited(Ledger(live, store, session.stages), wanted, outcome, seed))


def _audited(ledger: Ledger, wanted: Capability, outcome: Outcome, seed: int) -> Attacks | None:
    """All audits, recorded; a warning where they cannot be made: the checkpoint stands."""
    from editkit.audits import chosen
    from editkit.audits.output import record
    from editkit.audits.run import audited
    from editkit.audits.subject import BUDGETS, subject_of

    try:
        budget = BUDGETS[wanted.recipe.audits]
        subject = subject_of(ledger, outcome.edit.units, wanted, budget, seed=seed)
        return record(outcome.out, audited(subject, chosen(budget.name), outcome.edit))
    except EditkitError as error:
        warnings.warn(f"Not audited: {error}", stacklevel=3)
        return None


def standings(
    model: Model = None,
    *,
    tasks: Sequence[str] = (),
    limit: int = 200,
    seed: int = 0,
    placement: Placement = Placement(),
    session: Session = Session(),
    export: Export | None = None,
) -> Standings:
    """What one model can do: each task's score with its interval, on the ``report`` split.

    Args:
        export: where answers and scores go, for other evaluation programs.
    """
    if export is not None:
        export.check()
    model = _found(model, session.stages)
    trial = _hiding(_trial(tasks, model, limit, seed, session), model, export)
    live = _later(model, placement, session.stages)()
    work = work_for(live.source.base, "evaluate", seed, session.work)
    results = comparison.measured(live, trial, work, _today(), stages=session.stages)
    if export is not None:
        export.write([results])
    return Standings.of(results)


def export(out: str | Path, *, to: str, directory: str | Path | None = None) -> Path:
    """Write the answers and scores behind an output, the base's and the edited model's, for other evaluation programs.

    Args:
        out: what a removal wrote, with a checkpoint or with evidence alone.
        to: ``inspect`` for logs of Inspect, ``lm-eval`` for the files of lm-evaluation-harness.
        directory: a new folder; ``OUT-inspect`` or ``OUT-lm-eval`` here if None.

    Returns:
        The folder.

    Raises:
        UsageError: an unknown form, or one whose library is not installed.
        EditkitError: ``out`` holds no examples, or the folder is there already.
    """
    wanted = Export(to, Path(directory) if directory is not None else default_directory(out, to))
    wanted.check()
    with evidence_folder.doubted(Path(out)):
        wanted.write(of_outcome(evidence_folder.read(Path(out))))
    return wanted.directory


def tryout(
    name: str,
    *,
    model: Model = None,
    count: int = 10,
    retained: bool = False,
    placement: Placement = Placement(),
    session: Session = Session(),
) -> tuple[Tryout, ...]:
    """A first look: ``count`` prompts of each target of a recipe, or of one task, with answers and scores.

    Args:
        name: a recipe or a task, built in or a file.
        retained: the other tasks of a recipe too.
    """
    named = tasks_of(name, allow_code=session.allow_code)
    live = _later(model, placement, session.stages)()
    tasks = named.all if retained else named.shown
    return tuple(first_look(live, task, count=count, stages=session.stages) for task in tasks)


def universal(model: LanguageModel, *, seed: int = 0, session: Session = Session()) -> Universals:
    """The heads whose knockout breaks unrelated tasks, by the built-in tasks that the model can do."""
    tasks = usual(bundled=model.source.bundled)
    with opened(work_for(model.source.base, "universal", seed, session.work).store) as store:
        ledger = Ledger(model, store, session.stages)
        with ledger.stage("Baseline answers") as told:
            controls = find_heads.control_measures(told, tasks, 20)
        return find_heads.universal_heads(ledger, controls, tasks, formats=True, seed=seed)


def head_map(model: LanguageModel, localization: Localization) -> Png:
    """A PNG: layers x heads, coloured by effect; bytes, which a notebook shows as a picture."""
    from editkit.checkpoints.base_card import base_model, shape
    from editkit.evidence.provenance import Provenance
    from editkit.render import head_map as maps

    origin = Provenance("", "", "", base_model(model.source, dtype=model.dtype), "", shape=shape(model.architecture))
    return maps.png(Edit(model.source.base, frozenset()), localization, origin)


def compare(
    model: Model,
    *,
    base: Model,
    prompt: str,
    max_new_tokens: int = 64,
    placement: Placement = Placement(),
    stages: Stages = silent,
) -> tuple[str, str]:
    """Both answers to one prompt: (the base's, the model's)."""
    edited, unedited = (_later(each, placement, stages) for each in (model, base))
    return comparison.answers_to(edited, unedited, prompt, max_new_tokens=max_new_tokens)


def rerun(
    out: Source | str | Path,
    number: int,
    *,
    revision: str | None = None,
    seed: int | None = None,
    placement: Placement = Placement(),
    session: Session = Session(),
) -> Rerun:
    """Ask some of the examples that travel with an output again of its own weights.

    Args:
        out: a folder, or an output on the Hub.
        seed: which examples; None: nobody knows before, a publisher least of all.
        placement: ``dtype="auto"`` takes the numbers that the output was measured in.

    Raises:
        IntegrityError: the weights do not answer as published.
    """
    source = out if isinstance(out, Source) else resolve(out, revision, stages=session.stages)
    outcome = evidence_folder.read(source.directory)
    wanted = _capability(recipes.parse(outcome.provenance.recipe_text, where="the recipe of the output"), session)
    if placement.dtype == "auto":
        placement = replace(placement, dtype=outcome.provenance.base.dtype or "auto")
    rng = np.random.default_rng(seed)
    live = load_source(source, placement)
    return again(live, wanted, outcome, number=number, rng=rng, stages=session.stages)


def _resolved(model: Source | str | Path | None, stages: Stages) -> Source:
    return model if isinstance(model, Source) else resolve(model, stages=stages)


def _loaded(source: Source, placement: Placement, stages: Stages) -> LanguageModel:
    with stages(LOADING, None):
        return load_source(source, placement)


def _found(model: Model, stages: Stages) -> LanguageModel | Source:
    """A name that leads nowhere is told before anything is loaded."""
    return model if isinstance(model, LanguageModel) else _resolved(model, stages)


def _hiding(trial: Trial, model: LanguageModel | Source, export: Export | None) -> Trial:
    """The trial; where it is exported, what the model's own recipe hides is hidden."""
    if export is None:
        return trial
    directory = (model.source if isinstance(model, LanguageModel) else model).directory
    return replace(trial, hidden=trial.hidden | comparison.hidden_in(directory))


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _later(model: Model, placement: Placement, stages: Stages) -> Later:
    """The model, loaded when it is called for; a name that leads nowhere is told now."""
    found = _found(model, stages)
    return lambda: found if isinstance(found, LanguageModel) else _loaded(found, placement, stages)


def _trial(names: Sequence[str], model: Model, limit: int, seed: int, session: Session) -> Trial:
    """Of the tasks that are named; where none is, of those that suit ``model``."""
    wanted = [_named(name, session) for name in dict.fromkeys([names] if isinstance(names, str) else names)]
    tasks = {task.name: task for named in wanted for task in named.all}.values()
    hidden = frozenset(name for named in wanted for name in named.hide)
    return Trial(tuple(tasks) or usual(bundled=_is_bundled(model)), Criteria(), limit=limit, seed=seed, hidden=hidden)


def _named(name: str, session: Session) -> Named:
    """A task, or all that a recipe asks."""
    return Named((TASKS[name],)) if name in TASKS else tasks_of(name, where="--task", allow_code=session.allow_code)


def _is_bundled(model: Model) -> bool:
    source = model.source if isinstance(model, LanguageModel) else model
    return source.bundled if isinstance(source, Source) else is_bundled(source)


def _capability(
    name: str | Path | Recipe, session: Session, changes: Mapping[str, Any] = MappingProxyType({})
) -> Capability:
    """Files that a recipe names lie beside it."""
    recipe = name if isinstance(name, Recipe) else recipes.read(str(name))
    folder = Path(".") if isinstance(name, Recipe) else Path(name).parent
    return capability(recipes.changed(recipe, changes), folder=folder, allow_code=session.allow_code)
