"""remove-capability, plan, inspect, localize, universal."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editkit.cli.options import (
    BUNDLED,
    FILE,
    allow_code,
    as_json,
    dtype,
    load,
    method,
    placement,
    placing,
    remote_code,
    require_folder,
    revision,
    seed,
    session,
    sharing,
    tell_kept,
    which_model,
    work,
    workers,
    write,
)
from editkit.cli.streams import Visible, console, note, print_json, show
from editkit.errors import REDUCED, EditkitError, NotLocalized, TooMuchDamage, UsageError

if TYPE_CHECKING:
    from editkit.evidence.outcome import Outcome
    from editkit.planning.run_cost import Plan

which_units = click.option(
    "--units",
    type=click.Choice(["heads", "neurons", "both"]),
    help="What is searched, and may be removed. Default: heads.",
)


limit = click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="At most N examples of a task in each split: a quick look."
)


harden = click.option(
    "--harden", is_flag=True, default=None, help="Grow the set by rounds of attack and removal: neurons only."
)


@click.command("remove-capability")
@click.argument("name")
@which_model
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Default: MODEL-no-NAME.")
@method
@click.option("--heads", metavar="K|auto", help="Remove exactly K heads. Default: as many as the goal needs.")
@which_units
@click.option("--also", multiple=True, metavar="TASK", help="This task may be lost too: it is not retained.")
@click.option("--choose", type=click.Choice(["ranking", "set"]), help="The first heads found, or the best set of them.")
@click.option("--goal", type=click.FloatRange(0, 1), metavar="SHARE", help="What the target may keep: 0.15 is 15 %.")
@click.option(
    "--damage", metavar="EACH[,MEAN]", help="What each retained task may lose, and all on average: 0.02 is 2 points."
)
@limit
@click.option("--accept", type=click.Choice(["goal", "best"]), help="best: write a reduction too, if it is certain.")
@harden
@click.option(
    "--audits",
    type=click.Choice(["none", "quick", "full"]),
    help="Attacks on what was written (docs/audits.md). Default: quick, about as long as the removal.",
)
@seed
@placing
@sharing
@remote_code
@allow_code
@work
@click.option("--fresh", is_flag=True, help="Report on examples that no earlier run on the same store has looked at.")
@click.option("--push", metavar="REPO", help="Publish what is written to this Hub repository, private.")
@click.option("--dry-run", is_flag=True, help="Check what can be checked, say what a run will cost, change nothing.")
@as_json
def remove_capability(name: str, as_json: bool, dry_run: bool, **options: Any) -> None:
    """Find, remove, prove and document.

    NAME is a built-in recipe or the path of a recipe file.
    """
    changes = _changes({key: options.pop(key) for key in CHANGES})
    if options["model"] is None:
        note(BUNDLED)
    if dry_run:
        _try_dry(name, as_json, changes, **options)
        return
    from editkit import api
    from editkit.checkpoints.source import resolve
    from editkit.cli import hub_tables, tables
    from editkit.evidence.outcome import Outcome
    from editkit.hub import push_finished
    from editkit.writing.plan import left_behind

    push, model, revision = (options.pop(key) for key in ("push", "model", "revision"))
    if push is not None:
        _ask_hub(push, model, revision)
    kept = session(options, _as_typed())
    source = resolve(model, revision, stages=kept.stages)
    if behind := left_behind(source):
        note(behind)
    tell_kept(source, kept.work)

    def tell(outcome: Outcome, **more: Any) -> None:
        print_json(outcome.summary() | more) if as_json else show(tables.removal(outcome))

    options |= {"placement": placement(options), "session": kept}
    try:
        outcome = api.remove_capability(name, model=source, changes=changes, **options)
    except (NotLocalized, TooMuchDamage) as error:
        if isinstance(error.outcome, Outcome):
            tell(error.outcome)
        raise
    tell(outcome)
    if push is not None:
        pushed = push_finished(outcome.out, push)
        tell(outcome, pushed=asdict(pushed)) if as_json else show(hub_tables.pushed(pushed))
    if not outcome.report.verdict.met:
        note("Exit code 6: the capability is reduced, not removed.")
        click.get_current_context().exit(REDUCED)


@click.command()
@click.argument("name")
@which_model
@method
@which_units
@limit
@harden
@dtype
@click.option("--gpu", metavar="G", help="Whether it fits on a GPU, and how long it takes: h100, a100 or rtx4090.")
@workers
@as_json
def plan(
    name: str,
    model: str | None,
    revision: str | None,
    dtype: str,
    gpu: str | None,
    workers: int | None,
    as_json: bool,
    **changes: Any,
) -> None:
    """What a run will cost; nothing is loaded."""
    _show_plan(name, as_json, _changes(changes), gpu=gpu, workers=workers, model=model, revision=revision, dtype=dtype)


@click.command()
@click.argument("model", required=False)
@revision
@as_json
def inspect(model: str | None, revision: str | None, as_json: bool) -> None:
    """Layers, heads, widths, from metadata alone.

    Also what is out of reach and why, and what each export format can do. Exit code 1 if nothing can be asked of it.
    """
    from editkit.cli import tables
    from editkit.planning.inspection import inspect as look

    inspection = look(model, revision=revision)
    print_json(inspection.to_dict()) if as_json else show(tables.inspection(inspection))
    if inspection.refusal:
        raise EditkitError(f"{inspection.name}: {inspection.refusal}")


@click.command()
@click.argument("name")
@which_model
@method
@which_units
@seed
@placing
@sharing
@remote_code
@allow_code
@work
@click.option("-o", "--out", type=FILE, metavar="F", help="Write the JSON here.")
@click.option("--plot", type=FILE, metavar="F", help="Write a head map here.")
@as_json
def localize(name: str, out: Path | None, plot: Path | None, units: str | None, as_json: bool, **options: Any) -> None:
    """Rank the heads or neurons a capability depends on.

    With intervals and diagnostics. Exit code 3 if there are none.
    """
    from editkit.removal import recipe

    require_folder("--out", out)
    require_folder("--plot", plot)
    if plot is not None and units == "neurons":
        raise UsageError("--plot draws a map of heads, and neurons have none. Leave it out, or ask for --units both.")
    recipe.read(name)  # a name that is none is told before anything heavy is imported or loaded
    from editkit import api
    from editkit.cli import tables

    model = load(options)
    changes = {} if units is None else {"units": units}
    localization = api.localize(model, name, changes=changes, session=session(options), **options)
    if out is not None:
        write(out, localization.to_json().encode())
    if plot is not None:
        write(plot, api.head_map(model, localization))
    print_json(localization.to_json()) if as_json else show(tables.localization(localization))
    if not localization.found:
        raise NotLocalized(f"{name!r} did not localize: no knockout lowers it by more than chance explains.")


@click.command()
@which_model
@seed
@placing
@sharing
@remote_code
@work
@as_json
def universal(as_json: bool, **options: Any) -> None:
    """Heads whose knockout breaks unrelated tasks."""
    from editkit import api
    from editkit.cli import tables

    model = load(options)
    aside = api.universal(model, session=session(options), **options)
    heads = model.architecture.heads
    print_json(aside.to_dict(heads)) if as_json else show(tables.universal(aside, heads))


def _try_dry(
    name: str, as_json: bool, changes: dict[str, Any], *, out: Path | None, push: str | None, **options: Any
) -> None:
    """The plan, then what would be refused: the output directory, the room for it, the repository."""
    from editkit.checkpoints.staging import check_free, default_out
    from editkit.render.evidence_folder import is_evidence_only

    asked = {key: options[key] for key in ("model", "revision", "dtype")}
    cost = _show_plan(name, as_json, changes, **asked)
    target = out or default_out(cost.model, cost.recipe)
    if not is_evidence_only(target):
        check_free(target, needed=cost.disk)
    if push is not None:
        _ask_hub(push, options["model"], options["revision"])


def _ask_hub(repo: str, model: str | None, revision: str | None) -> None:
    """Whether an edit of the model may be pushed, and under which licence: before anything is downloaded."""
    from editkit.checkpoints.source import here, named
    from editkit.cli import hub_tables
    from editkit.hub import preflight

    checked = preflight(repo, base=named(model, revision), like=here(model))
    console(sys.stderr).print(Visible(hub_tables.preflight(checked)))


def _show_plan(
    name: str,
    as_json: bool,
    changes: dict[str, Any],
    *,
    gpu: str | None = None,
    workers: int | None = None,
    **asked: Any,
) -> Plan:
    from editkit.cli import shapes
    from editkit.planning.pool_cost import shared
    from editkit.planning.run_cost import plan as planned
    from editkit.planning.study_cost import on_gpu

    cost = planned(name, changes=changes, **asked)
    there = None if gpu is None else on_gpu(cost, gpu)
    several = None if workers is None else shared(cost, workers, alone=None if there is None else there.seconds)
    more = {name: each for name, each in {"gpu": there, "workers": several}.items() if each is not None}
    if as_json:
        print_json(cost.to_dict() | {name: each.to_dict() for name, each in more.items()})
    else:
        show(shapes.pairs(cost.facts() | {name: each.describe() for name, each in more.items()}))
    return cost


def _as_typed() -> str:
    """The command as it was typed, for the card. A token has no place in it and is cut."""
    return shlex.join(["editkit", *(re.sub(r"hf_[A-Za-z0-9]{8,}", "hf_...", word) for word in sys.argv[1:])])


CHANGES = ("method", "heads", "units", "also", "choose", "goal", "damage", "accept", "harden", "audits", "limit")
"""Options that stand for keys of the recipe."""


def _changes(options: dict[str, Any]) -> dict[str, Any]:
    """The keys of the recipe that the command line sets."""
    changes = {key: value for key, value in options.items() if value not in (None, ())}
    if "heads" in changes:
        changes["heads"] = _heads(changes["heads"])
    if "damage" in changes:
        changes["damage"] = _damage(changes["damage"])
    return changes


def _heads(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"--heads {text}: expected a number of heads, 1 or more, or auto.")
    return int(text)


def _damage(text: str) -> dict[str, float]:
    try:
        shares = [float(share) for share in text.split(",", 1)]
        return {"each": shares[0], "mean": shares[-1]}
    except ValueError:
        raise UsageError(f"--damage {text}: expected one share or two, such as 0.05 or 0.05,0.03.") from None
