"""recipes, tasks: what is built in; ``show NAME`` prints one."""

from __future__ import annotations

from collections import Counter

import click

from editkit.cli.commands import Commands
from editkit.cli.streams import show
from editkit.printable import visible


@click.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def recipes(ctx: click.Context) -> None:
    """The built-in recipes; `show NAME` prints one."""
    if ctx.invoked_subcommand is None:
        from editkit.removal import recipe

        show_pairs({name: recipe.read(name).summary for name in recipe.names()})


@recipes.command("show")
@click.argument("name")
def show_recipe(name: str) -> None:
    """Print a recipe's YAML."""
    from editkit.removal import recipe

    recipe.read(name)
    click.echo(visible(recipe.text(name)), nl=False)


@click.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def tasks(ctx: click.Context) -> None:
    """The built-in tasks; `show NAME` prints examples of one."""
    if ctx.invoked_subcommand is None:
        from editkit.tasks.builtin import TASKS

        show_pairs(
            {
                name: f"{task.format:13}  {len(task.examples())} examples, chance {task.chance:.2f}"
                for name, task in TASKS.items()
            }
        )


@tasks.command("show")
@click.argument("name")
@click.option("--count", default=5, show_default=True, metavar="N", help="Examples per split.")
def show_task(name: str, count: int) -> None:
    """Print a task's splits and some of its questions."""
    from editkit.tasks.find import find
    from editkit.tasks.task import SPLITS, examples_of, split_of

    task = find(name)
    sizes = Counter(split_of(task.name, example.id) for example in task.examples())
    for split in SPLITS:
        click.secho(f"{split} ({sizes[split]} examples)", bold=True)
        for example in examples_of(task, split, limit=count):
            click.echo(f"  {visible(example.prompt)}")


def show_pairs(facts: dict[str, str]) -> None:
    from editkit.cli import shapes

    show(shapes.pairs(facts))
