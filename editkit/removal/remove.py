"""The whole product on one page: find the heads, choose how many, write, reopen, measure, document.

outcome = remove_capability(model, Run(capability(recipe.read("swear")), out=Path("no-swear"), seed=0, ...), work)
outcome.edit.units, outcome.report.verdict.met
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from editkit.checkpoints.base_card import base_model, shape
from editkit.checkpoints.source import identified, resolve
from editkit.checkpoints.staging import check_free
from editkit.edit import Edit
from editkit.errors import EditkitError, IntegrityError, NotLocalized, TooMuchDamage, UsageError
from editkit.evidence.exhibits import Exhibits, Unable
from editkit.evidence.localization import Localization
from editkit.evidence.outcome import Outcome
from editkit.evidence.power import ALPHA
from editkit.evidence.provenance import Provenance
from editkit.evidence.verdict import Verdict
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source
from editkit.models.memory import check_room, parked
from editkit.progress import Stages, silent
from editkit.removal import looks
from editkit.removal import recipe as recipes
from editkit.removal.able import able
from editkit.removal.agreement import Probe, plainly, probe, same_answers, same_model
from editkit.removal.capability import Capability
from editkit.removal.choose import Choice, choose
from editkit.removal.choose_set import choose_set
from editkit.removal.fresh import Fresh
from editkit.removal.locate import locate
from editkit.removal.random_sets import Draw, random_heads
from editkit.removal.recipe import Recipe
from editkit.removal.strong_sets import strong_heads
from editkit.removal.transcripts import examples, transcript_lines, transcripts
from editkit.removal.trial import Answers, Sheet, Trial, trial_of
from editkit.render import wording
from editkit.render.evidence_folder import is_evidence_only, make_way, write, write_evidence
from editkit.tasks.task import judged_by
from editkit.units import Unit
from editkit.workspace import Work
from editkit.writing import manifest
from editkit.writing.export import checkpoint
from editkit.writing.export.checkpoint import Written

STRONG = 2
"""Added to the run's seed to draw strong heads. The report's random sets take the seed as it is, the choice's add 1."""


@dataclass(frozen=True)
class Run:
    """One run's fixed choices.

    Args:
        command, date: for the card; nothing here reads a clock.
        fresh: the report examples that this run is kept to; None: the first of each task.
    """

    wanted: Capability
    out: Path
    seed: int = 0
    command: str = ""
    date: str = ""
    fresh: Fresh | None = None

    @property
    def recipe(self) -> Recipe:
        return self.wanted.recipe

    @property
    def count(self) -> int | None:
        """Exactly so many heads; None where as many are removed as the goal needs."""
        return self.recipe.heads if isinstance(self.recipe.heads, int) else None


@dataclass(frozen=True)
class Removal:
    """The units that were localized and chosen, and the trial that says what removing them does."""

    run: Run
    trial: Trial
    localization: Localization
    choice: Choice
    edit: Edit
    unable: tuple[Unable, ...] = ()


def remove_capability(model: LanguageModel, run: Run, work: Work, *, stages: Stages = silent) -> Outcome:
    """Find, remove, prove and document; ``run.out`` becomes a checkpoint only when the goal is met within the budget.

    Or when the recipe accepts the best that there is, and that is a certain reduction.

    Raises:
        NotLocalized, TooMuchDamage: no checkpoint; the evidence is in ``run.out``.
        IntegrityError: the written checkpoint does not behave as the model that was measured.
        EditkitError: for anything the user can mend.
    """
    there = len(model.architecture.heads)
    if run.count is not None and not 1 <= run.count <= there:
        raise UsageError(f"--heads {run.count}: expected 1 to {there}, the heads that this model has.")
    if not is_evidence_only(run.out):
        check_free(run.out)
    check_room(model.network)
    if all(judged_by(task) for task in run.wanted.targets):
        names = ", ".join(task.name for task in run.wanted.targets)
        warnings.warn(
            f"The verdict will hang on a model's judgement alone ({names}): where that model is wrong, so is the "
            "verdict. A target with a scorer that follows a rule, or a look at the answers, can tell.",
            stacklevel=2,
        )
    with opened(work.store) as store:
        ledger = Ledger(model, store, stages)
        wanted, unable = able(ledger, run.wanted)
        run = replace(run, wanted=wanted)
        localization = locate(ledger, wanted, seed=run.seed)
        if (run.recipe.choose == "set" or run.recipe.units != "heads") and run.count is None:
            choice = choose_set(ledger, wanted, localization, seed=run.seed)
        else:
            choice = choose(ledger, wanted, localization, count=run.count, seed=run.seed)
        edit = Edit(model.source.base, choice.units)
        trial = trial_of(wanted, seed=run.seed, only=run.fresh.ids if run.fresh else None)
        removal = Removal(run, trial, localization, choice, edit, unable)
        _keep(work, removal)
        trial, answers = trial.decided(ledger, choice.units, trial.asked(ledger, choice.units))
        removal = replace(removal, trial=trial)
        (work.folder / "transcripts.jsonl").write_text(transcript_lines(answers.before, answers.after), "utf-8")
        outcome = judged(ledger, removal, answers)
        if not accepted(outcome.report.verdict, run.recipe):
            outcome = replace(outcome, provenance=replace(outcome.provenance, format="evidence"))
            write_evidence(outcome)
            raise _refusal(outcome, run)
        return ship(ledger, removal, answers)


def accepted(verdict: Verdict, recipe: Recipe) -> bool:
    """Whether a checkpoint may be written."""
    return verdict.met or (recipe.accept == "best" and verdict.status == "reduced")


def judged(ledger: Ledger, removal: Removal, answers: Answers) -> Outcome:
    """Rows, nulls and verdict: computed, never typed."""
    run, before, after = removal.run, answers.before, answers.after
    units, found, pair = removal.choice.units, removal.localization, removal.trial.least_lost(before, after)
    draw = Draw(run.recipe.random_sets, run.recipe.random_examples, run.seed)
    null = random_heads(ledger, units, found.universal, *pair, draw)
    strong = strong_heads(ledger, units, found, *pair, replace(draw, seed=run.seed + STRONG))
    hidden = run.recipe.hide
    shown = transcripts(before, after, len(run.wanted.targets), hidden=hidden)
    choice = removal.choice
    exhibits = Exhibits(choice.dose, shown, (), choice.frontier, removal.unable, choice.hardening)
    report = removal.trial.report(answers, null, strong)
    number = looks.look(ledger, run.wanted, units)
    provenance = replace(_provenance(ledger.model, run), look=number, fresh=_is_fresh(ledger, run, units))
    return Outcome(
        run.out, removal.edit, removal.localization, report, exhibits, provenance, examples(answers, hidden=hidden)
    )


def _is_fresh(ledger: Ledger, run: Run, units: frozenset[Unit]) -> bool | None:
    """Whether no other edit was judged by the run's fresh examples; None where it asked for none.

    The same command may find another edit: with another version of a library, or on another device.
    """
    if run.fresh is None:
        return None
    first = looks.look(ledger, run.wanted, units, fresh=run.fresh.run) == 1
    if not first:
        warnings.warn(
            "--fresh: the same run made another edit before, which these examples judged, so they are not fresh, and "
            "the card does not say so. Another --seed gets other examples.",
            stacklevel=2,
        )
    return first


def ship(ledger: Ledger, removal: Removal, answers: Answers) -> Outcome:
    """Write the checkpoint beside, reopen it, measure it; it becomes ``out`` only if it behaves as measured.

    Raises:
        IntegrityError: it does not; the files and the evidence are kept beside ``out``.
    """
    run, model = removal.run, ledger.model
    measured = probe(model, removal.choice.units, answers.after)
    record = run.recipe.model_dump(mode="json")
    make_way(run.out)
    with checkpoint.stage(removal.edit, model.source, run.out, recipe=record, seeds={"run": run.seed}) as written:
        try:
            with parked(model.network):
                shipped = _reopened(ledger, removal, measured, written)
            same_answers(answers, shipped, tipped=measured.tipped)
        except IntegrityError as error:
            write(written.directory, judged(ledger, removal, answers))
            kept = written.directory.rename(_beside(run.out))
            raise IntegrityError(
                f"{error} Nothing is at {run.out}. The files and the evidence are kept in {kept}, without a manifest. "
                "Run again with --dtype float32; if it happens there too, please report it."
            ) from error
        known = replace(ledger, stages=silent)  # nothing is measured anew
        outcome = judged(known, removal, replace(answers, after=shipped))
        hashes = {row.file: written.weights[row.file] for row in written.edited}
        outcome = replace(outcome, provenance=replace(outcome.provenance, hashes=hashes))
        write(written.directory, outcome)
    return outcome


def _reopened(ledger: Ledger, removal: Removal, measured: Probe, written: Written) -> tuple[Sheet, ...]:
    """What the checkpoint answers where the model was, in batches like its own; it is gone again after."""
    model = ledger.model
    source = identified(resolve(written.directory, identify=False), written.weights)
    shipped = replace(load_source(source, model.placement, check=model.proved), padded=model.padded)
    shipped.budget.tokens = min(shipped.budget.tokens, model.budget.tokens)
    same_model(measured, plainly(shipped, measured.requests))
    return removal.trial.answers(replace(ledger, model=shipped), title="Answers, as written")


def _beside(out: Path) -> Path:
    """A free name next to ``out`` for files that are not what was measured."""
    names = (out.with_name(f"{out.name}.disagrees{number or ''}") for number in range(1000))
    return next(name for name in names if not name.exists())


def _provenance(model: LanguageModel, run: Run) -> Provenance:
    return Provenance(
        command=run.command,
        recipe=run.recipe.capability,
        recipe_text=recipes.dump(run.recipe),
        base=base_model(model.source, dtype=model.dtype),
        date=run.date,
        removes=run.recipe.summary.rstrip("."),
        seeds={"run": run.seed},
        versions=manifest.versions(),
        shape=shape(model.architecture),
    )


def _keep(work: Work, removal: Removal) -> None:
    """Edit and localization, on disk before anything heavy happens: ``editkit bake --edit`` can go on from here."""
    work.folder.mkdir(parents=True, exist_ok=True)
    (work.folder / "edit.json").write_text(removal.edit.to_json(), "utf-8")
    (work.folder / "localization.json").write_text(removal.localization.to_json(), "utf-8")


def _refusal(outcome: Outcome, run: Run) -> EditkitError:
    """Why there is no checkpoint, and what the user can do about it."""
    verdict, name, count = outcome.report.verdict, outcome.provenance.recipe, run.count
    found = outcome.localization.found
    evidence = f"The evidence is in {outcome.out}/editkit (open report.html); no checkpoint was written."
    error: EditkitError
    if verdict.status == "too-much-damage":
        error = TooMuchDamage(
            f"Removing {name!r} costs more than the recipe's damage budget allows. {verdict.reasons[0]}\n{evidence} "
            "A larger budget (damage in the recipe) or another set (--choose, --units) would write one."
        )
    elif found and outcome.exhibits.frontier:
        best = " --accept best writes what was tried, as a reduction." if verdict.status == "reduced" else ""
        error = TooMuchDamage(
            f"{name!r} cannot be removed to the goal within the damage budget. {verdict.reasons[0]}\n{evidence} The "
            f"frontier there shows what could be had at which damage; --goal and --damage set both.{best}"
        )
    elif found and count is not None:
        error = NotLocalized(
            f"{name!r} is not removed by exactly {count} {'head' if count == 1 else 'heads'}. {verdict.reasons[0]}\n"
            f"{evidence} Ask for more heads, or leave the number open: then as many are removed as the goal needs."
        )
    else:
        why = verdict.reasons[0] if found else _strongest(outcome.localization)
        error = NotLocalized(
            f"{name!r} did not localize: no small set of {wording.searched(outcome.localization)} carries it. {why}\n"
            f"{evidence} Another method or model, "
            "other units (--units), more examples (examples.locate in the recipe) or a higher max_heads may find more."
        )
    error.outcome = outcome
    return error


def _strongest(localization: Localization) -> str:
    """What the search saw at best, where nothing stood out."""
    if not localization.order:
        return "Nothing could be measured."
    best = localization.order[0]
    known = not (math.isnan(best.low) or math.isnan(best.high))
    span = f" (95 % interval {100 * best.low:.2f} to {100 * best.high:.2f})" if known else ""
    told = "noise, or too little to matter"
    if best.p < ALPHA:
        told = f"more than noise (p = {best.p:.3f}, corrected), but others do the same, or no few of them do it all"
    return f"The strongest, {best.unit}, changes the search score by {100 * best.effect:.2f} points{span}: {told}."
