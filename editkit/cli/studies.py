"""study: a grid of models, capabilities, methods and head counts, resumed and printed as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from editkit.cli.commands import note, placing, work


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="F", help="Write the tables here too.")
@click.option("--allow-code-execution", "allow_code", is_flag=True, help="Run code the model writes, in a sandbox.")
@placing
@work
def study(file: Path, out: Path | None, work: Path | None, **options: Any) -> None:
    """Measure a grid and print its tables, the published figures beside.

    The same command goes on where it stopped. Studies of the paper are in recipes/paper.
    """
    from editkit import study as studies
    from editkit.laboratory import Laboratory
    from editkit.render import study as render
    from editkit.render import terminal
    from editkit.work import cache

    wanted = studies.read(file)
    folder = work or cache() / "studies" / wanted.study
    bench = Laboratory(folder, file.parent, stages=terminal.stages(), **options)

    def told(cell: studies.Cell, place: int, total: int) -> None:
        name = cell.capability.recipe.capability
        note(f"{place}/{total}: {cell.model}, {name}, {cell.method}, {cell.heads} heads, seed {cell.seed}")

    results = list(studies.run(wanted, work=folder, locate=bench.locate, assess=bench.assess, told=told))
    text = render.tables(wanted, results, render.published())
    if out is not None:
        out.write_text(text, "utf-8")
    click.echo(text, nl=False)
