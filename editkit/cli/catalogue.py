"""recipes, tasks: what is built in; ``show NAME`` prints one."""

from __future__ import annotations

from collections import Counter

import click

from editkit.cli.commands import Commands
from editkit.cli.options import as_json
from editkit.cli.streams import print_json, show
from editkit.printable import visible


@click.group(cls=Commands, invoke_without_command=True)
@as_json
@click.pass_context
def recipes(ctx: click.Context, as_json: bool) -> None:
    """The built-in recipes; `show NAME` prints one."""
    if ctx.invoked_subcommand is None:
        from editkit.removal import recipe

        listed = {name: recipe.read(name).summary for name in recipe.names()}
        print_json(listed) if as_json else show_pairs(listed)


@recipes.command("show")
@click.argument("name")
@as_json
def show_recipe(name: str, as_json: bool) -> None:
    """Print a recipe's YAML."""
    from editkit.removal import recipe

    read = recipe.read(name)
    print_json(read.model_dump(mode="json")) if as_json else click.echo(visible(recipe.text(name)), nl=False)


@click.group(cls=Commands, invoke_without_command=True)
@as_json
@click.pass_context
def tasks(ctx: click.Context, as_json: bool) -> None:
    """The built-in tasks; `show NAME` prints examples of one."""
    if ctx.invoked_subcommand is None:
        from editkit.tasks.builtin import TASKS

        listed = {
            name: {"format": task.format, "examples": len(task.examples()), "chance": task.chance, "rule": task.rule}
            for name, task in TASKS.items()
        }
        line = "{format:13}  {examples} examples, chance {chance:.2f}"
        print_json(listed) if as_json else show_pairs({name: line.format(**each) for name, each in listed.items()})


@tasks.command("show")
@click.argument("name")
@click.option("--count", default=5, show_default=True, metavar="N", help="Examples per split.")
@as_json
def show_task(name: str, count: int, as_json: bool) -> None:
    """Print a task's splits and some of its questions."""
    from editkit.tasks.find import find
    from editkit.tasks.task import SPLITS, divides_clusters, examples_of, splits

    task = find(name)
    sizes = Counter(splits(task.name, task.examples()).values())
    prompts = {split: [example.prompt for example in examples_of(task, split, limit=count)] for split in SPLITS}
    if as_json:
        divided = divides_clusters(task)
        told = {split: {"examples": sizes[split], "prompts": prompts[split]} for split in SPLITS}
        print_json({"task": task.name, "rule": task.rule, "divided": divided, "splits": told})
        return
    if divides_clusters(task):
        click.echo(
            "Too few clusters to keep each in one split: each split asks new fillings of templates that others use too."
        )
    for split in SPLITS:
        click.secho(f"{split} ({sizes[split]} examples)", bold=True)
        for prompt in prompts[split]:
            click.echo(f"  {visible(prompt)}")
    click.echo(f"scores 1: {visible(task.rule)}")


def show_pairs(facts: dict[str, str]) -> None:
    from editkit.cli import shapes

    show(shapes.pairs(facts))
