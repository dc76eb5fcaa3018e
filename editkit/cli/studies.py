"""study: a grid of models, capabilities, methods and head counts, resumed and printed as tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editkit.cli.options import FILE, allow_code, as_json, placement, placing, require_folder, sharing, work, write
from editkit.cli.streams import note, print_json
from editkit.errors import EditkitError
from editkit.printable import visible

if TYPE_CHECKING:
    from editkit.removal.study import Study


@click.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--out", type=FILE, metavar="F", help="Write the tables here too.")
@allow_code
@click.option("--plan", "planned", is_flag=True, help="Say what it will cost on a GPU; load and download nothing.")
@click.option("--gpu", default="h100", show_default=True, metavar="G", help="With --plan: h100, a100 or rtx4090.")
@placing
@sharing
@work
@as_json
def study(
    name: str, out: Path | None, work: Path | None, planned: bool, gpu: str, as_json: bool, **options: Any
) -> None:
    """Measure a grid and print its tables, the published figures beside.

    The same command goes on where it stopped. NAME is a built-in study, one of the paper's: dose, methods, organism,
    tables, transfer, wmdp.
    """
    from editkit.removal import study as studies

    require_folder("--out", out)
    file = studies.named(name)
    grid = studies.read(file)
    if planned:
        from editkit.planning.study_cost import plan

        cost = plan(grid, gpu=gpu, folder=file.parent)
        text, failed, document = cost.table(), False, asdict(cost)
    else:
        text, failed, document = _measured(grid, file, work, options)
    print_json(document) if as_json else click.echo(visible(text), nl=False)
    if out is not None:
        write(out, text.encode())
    if failed:
        raise EditkitError("No cell of this study could be measured: the table says why.")


def _measured(grid: Study, file: Path, work: Path | None, options: dict[str, Any]) -> tuple[str, bool, dict[str, Any]]:
    """The tables, whether they hold no figure at all, and the JSON form."""
    from editkit.cli.stages import on_stderr
    from editkit.removal import study as studies
    from editkit.removal import study_table as render
    from editkit.removal.study_cells import Laboratory
    from editkit.workspace import cache

    folder = work or cache() / "studies" / grid.study
    bench = Laboratory(folder, file.parent, placement(options), options["allow_code"], on_stderr())

    def announce(cell: studies.Cell, number: int, total: int) -> None:
        name, heads = cell.capability.recipe.capability, "1 head" if cell.heads == 1 else f"{cell.heads} heads"
        note(f"{number}/{total}: {cell.model}, {name}, {cell.method}, {heads}, seed {cell.seed}")

    results = list(
        studies.run(grid, work=folder, locate=bench.locate, assess=bench.assess, basis=bench.basis, announce=announce)
    )
    document = {"study": grid.study, "cells": [result.to_dict() for result in results]}
    return render.tables(grid, results, render.published()), all(result.error for result in results), document
