"""reliability: is the same found again, and does it do what it should?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editkit.cli.options import (
    FOLDER,
    allow_code,
    as_json,
    load,
    placing,
    seed,
    stacked,
    which_model,
    work,
    write,
)
from editkit.cli.streams import note, print_json, show
from editkit.errors import NotLocalized, UsageError
from editkit.printable import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from editkit.evidence.reliability import Reliability

SETTINGS = ("units", "sigma", "size", "contrast", "path", "steps", "locate", "report", "draws", "seeds")

_how = stacked(
    click.option("--units", type=click.Choice(["heads", "neurons"]), help="What is located. Default: neurons."),
    click.option("--sigma", type=float, metavar="K", help="Located: K standard deviations above the mean. Default: 6."),
    click.option("--size", type=int, metavar="N", help="Located instead: the N strongest units."),
    click.option("--contrast", type=float, metavar="W", help="Less W times what other capabilities need. Default: 0."),
    click.option("--path", type=click.Choice(["layers", "joint"]), help="Gradients layer by layer, or all in one."),
    click.option("--steps", type=int, metavar="N", help="Points on the gradients' path. Default: 19."),
    click.option("--locate", type=int, metavar="N", help="Examples per data set to locate and to train."),
    click.option("--report", type=int, metavar="N", help="Fresh examples per data set to erase and to score."),
    click.option("--draws", type=int, metavar="N", help="Random sets beside the erased one. Default: 20."),
    click.option("--seeds", type=int, metavar="N", help="Trainings of each set; 0: none. Default: 3."),
)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="RECIPE|TASK...")
@which_model
@click.option("--content", multiple=True, metavar="T", help="A task about the same things: another capability.")
@click.option("--other", multiple=True, metavar="T", help="A task that has nothing to do with it.")
@_how
@click.option("--plan", "planned", is_flag=True, help="Say what it will cost on a GPU; load and download nothing.")
@click.option("--gpu", default="h100", show_default=True, metavar="G", help="With --plan: h100, a100 or rtx4090.")
@click.option("-o", "--out", type=FOLDER, metavar="DIR", help="Default: reliability-NAME.")
@seed
@placing
@allow_code
@work
@as_json
def reliability(names: tuple[str, ...], out: Path | None, as_json: bool, seed: int, **options: Any) -> None:
    """Test what a capability is located in: found again, erased, trained.

    RECIPE is a recipe or a plan (recipes/cnl); its formats are the data sets. Or name the tasks themselves.
    """
    from editkit.cli.stages import on_stderr
    from editkit.measuring.ledger import Ledger
    from editkit.measuring.store import opened
    from editkit.reliability import plan as plans
    from editkit.reliability.run import reliability as run
    from editkit.workspace import work_for

    changes = {key: value for key in SETTINGS if (value := options.pop(key)) is not None}
    plan, folder = plans.read(names, content=options.pop("content"), other=options.pop("other"))
    plan, gpu = plans.changed(plan, changes), options.pop("gpu")
    if options.pop("planned"):
        from editkit.planning import reliability_cost

        cost = reliability_cost.plan(plan, folder, model=options["model"], gpu=gpu)
        click.echo(visible(cost.table()), nl=False)
        return
    where = out or Path(f"reliability-{plan.reliability}")
    if where.exists() and not where.is_dir():
        raise UsageError(f"--out {where}: there is a file of that name. Name another folder.")
    data = plans.data_sets(plan, folder=folder, allow_code=options.pop("allow_code"))
    live = load(options)
    kept = work_for(live.source.base, f"reliability-{plan.reliability}", seed, options["work"])
    with opened(kept.store) as store:
        result = run(Ledger(live, store, on_stderr()), data, kept.folder, seed=seed)
    _write(where, result)
    if as_json:
        print_json(result.to_json())
    else:
        show(_tables(result))
        note(f"Written to {where}: reliability.json, reliability.md, reliability.png.")
    if not result.located["common"]:
        raise NotLocalized(
            f"No {plan.settings.units[:-1]} is located by every data set of {plan.reliability!r} at {result.chosen}. "
            "Lower --sigma, or give a --size; the evidence is written."
        )


def _write(where: Path, result: Reliability) -> None:
    from editkit.render import reliability as render

    where.mkdir(parents=True, exist_ok=True)
    write(where / "reliability.json", result.to_json().encode())
    write(where / "reliability.md", render.page(result).encode())
    write(where / "reliability.png", render.png(result))


def _tables(result: Reliability) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from editkit.cli.shapes import columns
    from editkit.render import reliability as render

    lines: list[Any] = []
    for grid in render.tables(result):
        table = columns(*grid.head)
        for row in grid.rows:
            table.add_row(*map(Text, row))
        lines += [Text(), Text(grid.title, "bold"), table, Text(grid.note, "dim")]
    return Group(*lines, Text())
