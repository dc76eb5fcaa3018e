"""try, evaluate, compare: what a model can do, alone or beside its base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from editkit.cli.options import (
    BUNDLED,
    EXPORTS,
    FOLDER,
    allow_code,
    as_json,
    device,
    placement,
    placing,
    remote_code,
    seed,
    session,
    sharing,
    which_model,
    work,
)
from editkit.cli.streams import note, print_json, show
from editkit.errors import UsageError


@click.command()
@click.argument("model", required=False)
@click.option("--base", metavar="MODEL", help="Compare with this model on the same examples.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="T",
    help="Repeat for more. Default: the built-in ones that suit the model.",
)
@click.option("--limit", default=200, show_default=True, metavar="N", type=click.IntRange(1), help="Examples per task.")
@click.option("--export", "to", type=click.Choice(EXPORTS), help="Also write answers and scores for that program.")
@click.option("-o", "--out", type=FOLDER, metavar="DIR", help="Where. Default: MODEL-inspect or MODEL-lm-eval here.")
@seed
@placing
@sharing
@remote_code
@allow_code
@work
@as_json
def evaluate(
    model: str | None, base: str | None, to: str | None, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Scores with intervals, alone or against a base.

    With --base: paired differences on the same examples, and a verdict.
    """
    from editkit import api
    from editkit.cli import score_tables

    if out is not None and to is None:
        raise UsageError(f"--out {out}: nothing is written there without --export inspect or --export lm-eval.")
    options |= {"placement": placement(options), "session": session(options)}
    if to is not None:
        from editkit.render.export import Export, default_directory

        options["export"] = Export(to, out or default_directory(model or "organism", to))
    if base is None:
        standings = api.standings(model, **options)
        print_json(standings.to_json()) if as_json else show(score_tables.standings(standings))
    else:
        report = api.evaluate(model, base=base, **options)
        print_json(report.to_json()) if as_json else show(score_tables.compared(report))
    if to is not None:
        note(f"Answers and scores for {to}: {options['export'].directory}")


@click.command("try")
@click.argument("name", metavar="RECIPE|TASK")
@which_model
@click.option("--count", default=10, show_default=True, metavar="N", type=click.IntRange(1), help="Prompts per task.")
@click.option("--retained", is_flag=True, help="Ask the tasks that a recipe retains too.")
@placing
@remote_code
@allow_code
@as_json
def try_out(
    name: str, model: str | None, revision: str | None, count: int, retained: bool, as_json: bool, **options: Any
) -> None:
    """Ten prompts with answers and scores, in seconds.

    Shows whether a model can do what a recipe or a task asks, and whether its scorer sees it.
    """
    from editkit.removal.tryout import tasks_of

    named = tasks_of(name, allow_code=options["allow_code"])  # a mistake in it is told before a model is loaded
    from editkit import api
    from editkit.checkpoints.source import resolve
    from editkit.cli import score_tables

    if model is None:
        note(BUNDLED)
    kept = session({"work": None, "allow_code": options.pop("allow_code")})
    source = resolve(model, revision, stages=kept.stages)
    looks = api.tryout(name, model=source, count=count, retained=retained, placement=placement(options), session=kept)
    if as_json:
        print_json({"tasks": [look.to_dict() for look in looks]})
    else:
        show(score_tables.tryout(looks, name if named.is_recipe else None))


@click.command()
@click.argument("model")
@click.option("--base", metavar="MODEL", required=True)
@click.option("--prompt", metavar="TEXT", required=True)
@click.option("--max-new-tokens", default=64, show_default=True, metavar="N", type=click.IntRange(min=1))
@device
@remote_code
@as_json
def compare(prompt: str, as_json: bool, **options: Any) -> None:
    """Both answers to one prompt, side by side."""
    from editkit import api
    from editkit.cli import score_tables
    from editkit.cli.stages import on_stderr

    before, after = api.compare(prompt=prompt, placement=placement(options), stages=on_stderr(), **options)
    if as_json:
        print_json({"prompt": prompt, "base": before, "model": after})
    else:
        show(score_tables.comparison(prompt, before, after))
