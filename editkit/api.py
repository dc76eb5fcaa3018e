"""The public verbs: names and paths in, values out. The command line and notebooks call the same functions.

found = localize(load(), "swear", seed=0)
result = remove_capability("swear", out="no-swear")
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from editkit.checkpoints.source import Source, resolve
from editkit.checkpoints.staging import default_out
from editkit.edit import Edit
from editkit.evidence.localization import Localization
from editkit.evidence.outcome import Outcome
from editkit.evidence.report import EvalReport
from editkit.localizers.universal import Universals
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load, load_source
from editkit.progress import Stages, silent
from editkit.removal import recipe as recipes
from editkit.removal.comparison import Standings
from editkit.removal.find_heads import Capability, capability, control_measures, universal_heads
from editkit.removal.find_heads import localize as locate
from editkit.removal.recipe import Recipe
from editkit.removal.remove import Run
from editkit.removal.remove import remove_capability as remove
from editkit.tasks.builtin import TASKS
from editkit.tasks.find import find
from editkit.tasks.task import Task
from editkit.units import Unit, units
from editkit.workspace import work_for

if TYPE_CHECKING:
    from editkit.hub import Preflight, Pushed


def localize(
    model: LanguageModel,
    name: str | Path | Recipe,
    *,
    method: str | None = None,
    seed: int = 0,
    work: Path | None = None,
    allow_code: bool = False,
    stages: Stages = silent,
) -> Localization:
    """Rank the heads that a capability hangs on.

    Args:
        name: a built-in recipe, the path of a recipe file, or a recipe.
        method: ``auto``, ``halving``, ``css``, ``csb``, ``greedy`` or ``one-shot``; the recipe's own if None.
        work: where measurements are kept; the user's cache if None. What is there is not measured again.
        allow_code: let Python scorers run here, and code that the model writes run in a sandbox.

    Raises:
        EditkitError: an unknown recipe, or a model that does not show the capability.
    """
    wanted = _capability(name, allow_code)
    with opened(work_for(model.source.base, wanted.recipe.capability, seed, work).store) as store:
        return locate(model, wanted, store, method=method, seed=seed, stages=stages)


@contextmanager
def knocked_out(model: LanguageModel, heads: Iterable[Unit | str]) -> Iterator[None]:
    """Knock ``heads`` (or their names) out while the block runs; all that the model says meanwhile is without them."""
    from editkit.models.knockout import knocked_out as hooked

    with hooked(model.network, model.architecture, units(heads)):
        yield


def evaluate(
    model: LanguageModel | str | Path | None = None,
    *,
    base: LanguageModel | Source | str | Path | None,
    tasks: Sequence[str] = (),
    limit: int = 200,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    work: Path | None = None,
    allow_code: bool = False,
    stages: Stages = silent,
) -> EvalReport:
    """Compare a model with its base: the same examples of the ``report`` split, paired, with intervals.

    Args:
        tasks: a task's name, or several; all built-in ones if empty. Where ``model`` is an output of editkit, the task
            that its recipe removed is the target of the verdict.
        limit: examples per task.
    """
    from editkit.removal.comparison import compared

    edited, unedited = (_later(name, device, dtype, trust_remote_code) for name in (model, base))
    found = _tasks(tasks, allow_code)
    return compared(edited, unedited, tasks=found, limit=limit, seed=seed, work=work, stages=stages)


def remove_capability(
    name: str | Path | Recipe,
    *,
    model: LanguageModel | Source | str | Path | None = None,
    out: str | Path | None = None,
    revision: str | None = None,
    method: str | None = None,
    heads: int | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    allow_code: bool = False,
    work: Path | None = None,
    push: str | None = None,
    told: Callable[[Preflight | Outcome | Pushed], None] = lambda news: None,
    command: str | None = None,
    stages: Stages = silent,
) -> Outcome:
    """Find the heads, prove the removal on fresh examples, write the checkpoint and its evidence to ``out``.

    Args:
        name: a built-in recipe, the path of a recipe file, or a recipe.
        model: a loaded model, a Hub id, a local directory; None for the bundled organism.
        out: the new checkpoint; ``MODEL-no-NAME`` here if None. It must not exist.
        heads: remove exactly so many heads; None: as many as the goal needs.
        push: publish to this Hub repository when the goal is met. Asked for permission before anything heavy.
        told: hears of the outcome as soon as it is written; with ``push`` also, at the start, what the Hub says, and at
            the end what was sent.

    Raises:
        NotLocalized, TooMuchDamage: no checkpoint; ``out`` holds the evidence.
        IntegrityError: the written checkpoint does not behave as the measured model.
    """
    from editkit.hub import preflight, push_finished

    wanted = _capability(name, allow_code)
    recipe = wanted.recipe
    if push is not None:
        preflight(push, base=None)  # nothing is downloaded for somebody who may not publish
    source = (
        model.source
        if isinstance(model, LanguageModel)
        else resolve(model, revision)
        if not isinstance(model, Source)
        else model
    )
    target = Path(out) if out is not None else default_out(source.base.model, recipe.capability)
    if push is not None:
        told(preflight(push, base=source.base, like=source.directory))
    live = model if isinstance(model, LanguageModel) else _model(source, device, dtype, trust_remote_code)
    run = Run(wanted, target, seed, method, heads, command or _as_command(recipe, source, target, seed), _today())
    outcome = remove(live, run, work_for(source.base, recipe.capability, seed, work), stages=stages)
    told(outcome)
    if push is not None:
        told(push_finished(target, push))
    return outcome


def standings(
    model: LanguageModel | str | None = None,
    *,
    tasks: Sequence[str] = (),
    limit: int = 200,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    work: Path | None = None,
    allow_code: bool = False,
    stages: Stages = silent,
) -> Standings:
    """What one model can do: each task's score with its interval, on the ``report`` split."""
    from editkit.removal.comparison import standings as measured

    live = _model(model, device, dtype, trust_remote_code)
    return measured(live, tasks=_tasks(tasks, allow_code), limit=limit, seed=seed, work=work, stages=stages)


def universal(model: LanguageModel, *, seed: int = 0, work: Path | None = None, stages: Stages = silent) -> Universals:
    """The heads whose knockout breaks unrelated tasks, by all built-in tasks that the model can do."""
    tasks = tuple(TASKS.values())
    with opened(work_for(model.source.base, "universal", seed, work).store) as store:
        with stages("Baseline answers", None) as advance:
            controls = control_measures(model, tasks, store, 20, advance=advance)
        return universal_heads(controls, tasks, formats=True, seed=seed, stages=stages)


def head_map(model: LanguageModel, found: Localization) -> bytes:
    """A PNG: layers x heads, coloured by effect."""
    from editkit.checkpoints.base_card import base_model, shape
    from editkit.evidence.provenance import Provenance
    from editkit.render import head_map as maps

    origin = Provenance("", "", "", base_model(model.source, dtype=model.dtype), "", shape=shape(model.architecture))
    return maps.png(Edit(model.source.base, frozenset()), found, origin)


def compare(
    model: str,
    *,
    base: str,
    prompt: str,
    max_new_tokens: int = 64,
    device: str = "auto",
    trust_remote_code: bool = False,
) -> tuple[str, str]:
    """Both answers to one prompt: (the base's, the model's)."""
    from editkit.removal.comparison import answers_to

    edited, unedited = (_later(name, device, "auto", trust_remote_code) for name in (model, base))
    return answers_to(edited, unedited, prompt, max_new_tokens=max_new_tokens)


def _model(
    model: LanguageModel | Source | str | Path | None, device: str, dtype: str, trust_remote_code: bool
) -> LanguageModel:
    if isinstance(model, LanguageModel):
        return model
    if isinstance(model, Source):
        return load_source(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    return load(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)


def _later(
    model: LanguageModel | Source | str | Path | None, device: str, dtype: str, trust_remote_code: bool
) -> Callable[[], LanguageModel]:
    """The model, loaded when it is called for; a name that leads nowhere is told now."""
    found = model if isinstance(model, LanguageModel | Source) else resolve(model)
    return lambda: _model(found, device, dtype, trust_remote_code)


def _tasks(names: Sequence[str], allow_code: bool) -> list[Task]:
    wanted = dict.fromkeys([names] if isinstance(names, str) else names)
    return [find(name, where="--task", allow_code=allow_code) for name in wanted] or list(TASKS.values())


def _capability(name: str | Path | Recipe, allow_code: bool) -> Capability:
    """Files that a recipe names lie beside it."""
    if isinstance(name, Recipe):
        return capability(name, allow_code=allow_code)
    return capability(recipes.read(str(name)), folder=Path(name).parent, allow_code=allow_code)


def _as_command(recipe: Recipe, source: Source, out: Path, seed: int) -> str:
    import shlex

    model = [] if source.bundled else ["--model", source.base.model]
    return shlex.join(
        ["editkit", "remove-capability", recipe.capability, *model, "--out", str(out), "--seed", str(seed)]
    )


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
