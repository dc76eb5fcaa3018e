"""The whole product on one page: find the heads, choose how many, write, reopen, measure, document.

outcome = remove_capability(model, Run(capability(recipe.read("swear")), out=Path("no-swear"), seed=0, ...), work)
outcome.edit.units, outcome.report.verdict.met
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from editkit.checkpoints.base_card import base_model, shape
from editkit.checkpoints.files import digest_of
from editkit.checkpoints.source import resolve
from editkit.checkpoints.staging import check_free
from editkit.edit import Edit
from editkit.errors import EditkitError, NotLocalized, TooMuchDamage, UsageError
from editkit.evidence import report as evaluation
from editkit.evidence.exhibits import Exhibits
from editkit.evidence.localization import Localization
from editkit.evidence.outcome import Outcome
from editkit.evidence.provenance import Provenance
from editkit.measuring.store import Store, opened
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source
from editkit.models.memory import check_room, parked
from editkit.progress import Stages, silent
from editkit.removal import recipe as recipes
from editkit.removal.choose import Choice, choose
from editkit.removal.find_heads import Capability, localize
from editkit.removal.recipe import Recipe
from editkit.removal.trial import (
    Sheet,
    again,
    agree,
    answers,
    null,
    readings,
    rows,
    same_readings,
    transcript_lines,
    transcripts,
)
from editkit.render.evidence_folder import is_evidence_only, write, write_evidence
from editkit.tasks.task import Likelihood, examples_of
from editkit.units import Head
from editkit.workspace import Work
from editkit.writing import manifest
from editkit.writing.export import checkpoint


@dataclass(frozen=True)
class Run:
    """One run's fixed choices.

    Args:
        method: how heads are found; None leaves it to the recipe.
        heads: remove exactly so many; None leaves it to the recipe (usually as many as the goal needs).
        command, date: for the card; nothing here reads a clock.
    """

    wanted: Capability
    out: Path
    seed: int = 0
    method: str | None = None
    heads: int | None = None
    command: str = ""
    date: str = ""

    @property
    def recipe(self) -> Recipe:
        return self.wanted.recipe

    @property
    def count(self) -> int | None:
        if self.heads is not None:
            return self.heads
        return self.recipe.heads if isinstance(self.recipe.heads, int) else None


def remove_capability(model: LanguageModel, run: Run, work: Work, *, stages: Stages = silent) -> Outcome:
    """Find, remove, prove and document; ``run.out`` becomes a checkpoint only when the goal is met within the budget.

    Raises:
        NotLocalized, TooMuchDamage: no checkpoint; the evidence is in ``run.out``.
        IntegrityError: the written checkpoint does not behave as the model that was measured; nothing is written.
        EditkitError: for anything the user can mend.
    """
    there = len(model.architecture.heads)
    if run.count is not None and not 1 <= run.count <= there:
        raise UsageError(f"--heads {run.count}: expected 1 to {there}, the heads that this model has.")
    if not is_evidence_only(run.out):
        check_free(run.out)
    check_room(model.network)
    with opened(work.store) as store:
        trial = Trial(model, run, store, stages)
        found = localize(model, run.wanted, store, method=run.method, seed=run.seed, stages=stages)
        choice = choose(model, run.wanted, found, store, count=run.count, seed=run.seed, stages=stages)
        edit = Edit(model.source.base, choice.heads)
        _keep(work, edit, found)
        before, after = trial.answers(model, []), trial.answers(model, choice.heads)
        (work.folder / "transcripts.jsonl").write_text(transcript_lines(before, after), "utf-8")
        second = trial.again(before)
        outcome = trial.judged(found, choice, edit, before, after, second)
        if not (found.found and outcome.report.verdict.met):
            outcome = replace(outcome, provenance=replace(outcome.provenance, format="evidence"))
            write_evidence(outcome)
            raise _refusal(outcome, run.count)
        return trial.ship(found, choice, edit, before, after, second)


@dataclass(frozen=True)
class Trial:
    """The second half of a run: what the chosen heads do, on examples that nothing has looked at before."""

    model: LanguageModel
    run: Run
    store: Store
    stages: Stages

    def answers(self, model: LanguageModel, heads: Iterable[Head]) -> list[Sheet]:
        """All tasks' answers on ``report``, target first, with ``heads`` knocked out."""
        wanted, recipe = self.run.wanted, self.run.recipe
        tasks = [wanted.target, *wanted.retain]
        title = "as written" if model is not self.model else "edited" if heads else "unedited"
        total = sum(len(examples_of(task, "report", limit=recipe.examples.report)) for task in tasks)
        with self.stages(f"Answers, {title}", total) as advance:
            mask, limit = model.architecture.mask(heads), recipe.examples.report
            return answers(model, tasks, mask, self.store, split="report", limit=limit, advance=advance)

    def again(self, before: Sequence[Sheet]) -> list[Sheet]:
        """A/A: the unedited model's answers a second time."""
        with self.stages("Noise floor", sum(len(sheet.cells) for sheet in before)) as advance:
            return again(self.model, before, self.store, advance=advance)

    def judged(
        self,
        found: Localization,
        choice: Choice,
        edit: Edit,
        before: Sequence[Sheet],
        after: Sequence[Sheet],
        second: Sequence[Sheet],
    ) -> Outcome:
        """Rows, null and verdict: computed, never typed."""
        run, heads = self.run, choice.heads
        paired, noise = (
            rows(run.wanted, before, other, split="report", rng=np.random.default_rng(run.seed))
            for other in (after, second)
        )
        control = null(
            self.model,
            run.wanted,
            heads,
            [unit for unit in found.universal if isinstance(unit, Head)],
            before[0],
            after[0],
            self.store,
            seed=run.seed,
            stages=self.stages,
        )
        report = evaluation.report(paired, criteria=run.recipe.criteria, null=control, noise=noise)
        exhibits = Exhibits(choice.dose, tuple(transcripts(before, after)))
        return Outcome(run.out, edit, found, report, exhibits, self._provenance())

    def ship(
        self,
        found: Localization,
        choice: Choice,
        edit: Edit,
        before: Sequence[Sheet],
        hooked: Sequence[Sheet],
        second: Sequence[Sheet],
    ) -> Outcome:
        """Write the checkpoint beside, reopen it, measure it; it becomes ``out`` only if it behaves as measured.

        Raises:
            IntegrityError: it does not.
        """
        run, record = self.run, self.run.recipe.model_dump(mode="json")
        prompts = [example.prompt for example in before[0].examples[:4]]
        expected, repeated = (readings(self.model, choice.heads, prompts) for _ in range(2))
        with checkpoint.stage(edit, self.model.source, run.out, recipe=record, seeds={"run": run.seed}) as written:
            with parked(self.model.network):
                reopened, read = self._reopened(written.directory, prompts)
            agree(hooked, reopened, before, second)
            same_readings(prompts, expected, read, again=repeated, rounding=self.model.rounding)
            known = replace(self, stages=silent)  # nothing is measured anew
            outcome = known.judged(found, choice, edit, before, reopened, second)
            hashes = {row.file: digest_of(written.directory / row.file) for row in written.edited}
            outcome = replace(outcome, provenance=replace(outcome.provenance, hashes=hashes))
            write(written.directory, outcome)
        return outcome

    def _reopened(self, directory: Path, prompts: Sequence[str]) -> tuple[list[Sheet], list[Likelihood]]:
        """What the checkpoint answers where the model was, in batches like its own; it is gone again after."""
        shipped = load_source(
            resolve(directory),
            device=self.model.place,
            dtype=self.model.dtype,
            trust_remote_code=self.model.trusted,
            check=self.model.proved,
        )
        shipped.budget.tokens = min(shipped.budget.tokens, self.model.budget.tokens)
        return self.answers(shipped, []), readings(shipped, [], prompts)

    def _provenance(self) -> Provenance:
        run, model = self.run, self.model
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


def _keep(work: Work, edit: Edit, found: Localization) -> None:
    """What was found, on disk before anything heavy happens: ``editkit bake --edit`` can go on from here."""
    work.folder.mkdir(parents=True, exist_ok=True)
    (work.folder / "edit.json").write_text(edit.to_json(), "utf-8")
    (work.folder / "localization.json").write_text(found.to_json(), "utf-8")


def _refusal(outcome: Outcome, count: int | None) -> EditkitError:
    """Why there is no checkpoint, and what the user can do about it."""
    verdict, name = outcome.report.verdict, outcome.provenance.recipe
    evidence = f"The evidence is in {outcome.out}/editkit (open report.html); no checkpoint was written."
    error: EditkitError
    if outcome.localization.found and verdict.status == "goal-missed" and count is not None:
        error = NotLocalized(
            f"{name!r} is not removed by exactly {count} {'head' if count == 1 else 'heads'}. {verdict.reasons[0]}\n"
            f"{evidence} Ask for more heads, or leave the number open: then as many are removed as the goal needs."
        )
    elif not outcome.localization.found or verdict.status == "goal-missed":
        why = verdict.reasons[0] if outcome.localization.found else _strongest(outcome.localization)
        error = NotLocalized(
            f"{name!r} did not localize: no small set of heads carries it. {why}\n{evidence} Another method or model, "
            "more examples (examples.locate in the recipe) or a higher max_heads may find more."
        )
    else:
        error = TooMuchDamage(
            f"Removing {name!r} costs more than the recipe's damage budget allows. {verdict.reasons[0]}\n{evidence} "
            "A larger budget (damage in the recipe) or fewer heads (--heads) would write one."
        )
    error.outcome = outcome
    return error


def _strongest(found: Localization) -> str:
    """What the search saw at best, where nothing stood out."""
    if not found.order:
        return "No head could be measured."
    best = found.order[0]
    known = not (math.isnan(best.low) or math.isnan(best.high))
    span = f" (95 % interval {100 * best.low:.2f} to {100 * best.high:.2f})" if known else ""
    return (
        f"The strongest head, {best.unit}, changes the search score by {100 * best.effect:.2f} points{span}: noise, or "
        "too little to matter."
    )
