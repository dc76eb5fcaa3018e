"""The command line: parse, call one function, print. Results go to stdout; progress and notes go to stderr.

    editkit remove-capability swear --out no-swear
    editkit verify no-swear

Nothing here imports torch or transformers before a command needs a model.
"""

from __future__ import annotations

import click

from editkit import __version__
from editkit.cli.audit import audit
from editkit.cli.catalogue import recipes, tasks
from editkit.cli.commands import Commands
from editkit.cli.files import bake, card, export, report, undo, verify
from editkit.cli.hub import pull_verify, push
from editkit.cli.reliability import reliability
from editkit.cli.scores import compare, evaluate, try_out
from editkit.cli.search import inspect, localize, plan, remove_capability, universal
from editkit.cli.studies import study


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="editkit")
def main() -> None:
    """Find the heads or neurons a capability depends on, remove them from the weights, and prove what changed."""


for command in (
    *(try_out, remove_capability, plan, inspect, localize, universal),
    *(bake, verify, undo, audit, evaluate, compare, study, reliability),
    *(card, report, export, push, pull_verify, recipes, tasks),
):
    main.add_command(command)
