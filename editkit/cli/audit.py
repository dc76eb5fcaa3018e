"""audit: what brings a removed capability back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editkit.cli.options import (
    FOLDER,
    allow_code,
    as_json,
    placement,
    placing,
    remote_code,
    seed,
    session,
    sharing,
    work,
)
from editkit.cli.streams import print_json, show
from editkit.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from editkit.evidence.attacks import Attack, Attacks, Nats


@click.command()
@click.argument("out", type=FOLDER)
@click.option("--base", metavar="MODEL", help="The unedited model. Default: the one that the edit names.")
@click.option("--only", multiple=True, metavar="NAME", help="One audit; repeat for more. Default: all of the budget.")
@click.option("--budget", type=click.Choice(["quick", "full"]), default="quick", show_default=True)
@click.option(
    "--never-had", metavar="MODEL", help="A model of the same shape that never had the capability: a control."
)
@seed
@placing
@sharing
@remote_code
@allow_code
@work
@as_json
def audit(out: Path, only: tuple[str, ...], budget: str, as_json: bool, **options: Any) -> None:
    """Attack a removal: what brings the capability back, and how soon?

    Fine-tuning, answers that are begun, examples, other formats, rounding: each beside a control. The result is
    recorded in OUT/editkit/attacks.json; no attacked model is written.
    """
    from editkit.audits import AUDITS, chosen
    from editkit.audits.output import audit_output
    from editkit.audits.subject import BUDGETS

    if unknown := sorted(set(only) - set(AUDITS)):
        raise UsageError(f"--only {unknown[0]}: there is no such audit. Known: {', '.join(AUDITS)}.")
    where = {"placement": placement(options), "session": session(options)}
    attacks = audit_output(out, chosen(budget, only), BUDGETS[budget], **where, **options)
    print_json(attacks.to_dict()) if as_json else show(table(attacks))


def table(attacks: Attacks) -> RenderableType:
    """The rung, then a line for each attack."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from editkit.cli.shapes import columns
    from editkit.evidence.ladder import standing

    titles = ("attack", "dose", "task", "#base", "#edited", "#attacked", "#control", "#R", "", "#others")
    attack_table = columns(*titles, caption=_CAPTION)
    for row in attacks.rows:
        attack_table.add_row(*map(Text, _cells(row)))
    nats = columns("nats of the answers' tokens", "model", "#1st", "#2nd", "#3rd", "#rest")
    for line in attacks.nats:
        for cells in _nats(line):
            nats.add_row(*map(Text, cells))
    controls = dict.fromkeys(row.control.name for row in attacks.rows if row.control)
    lines = [Text(f"Controls: {'; '.join(controls)}.", "dim")] if controls else []
    lines += [Text(note, "dim") for note in attacks.notes]
    head = Padding(Text(standing(attacks).sentence, "bold"), (1, 0))
    return Group(head, attack_table, Text(), *([nats, Text()] if attacks.nats else []), *lines, Text())


_CAPTION = (
    "Scores in %. R: share of what was removed that is back, with its 95 % interval; the control is the same attack "
    "beside. Others: the worst change of another task, in points."
)


def _cells(row: Attack) -> tuple[str, ...]:
    share = row.recovered
    span = "" if share is None else f"{share.low:.2f} to {share.high:.2f}"
    others = f"{100 * min(row.others.values()):+.0f}" if row.others else ""
    scores = (f"{100 * score:.0f}" for score in (row.base, row.edited, row.attacked))
    control = "none" if row.control is None else f"{100 * row.control.score:.0f}"
    return (
        row.audit,
        row.dose,
        row.task,
        *scores,
        control,
        "" if share is None else f"{share.share:.2f}",
        span,
        others,
    )


def _nats(row: Nats) -> list[tuple[str, ...]]:
    return [
        (row.task if number == 0 else "", arm, *("" if value is None else f"{value:.1f}" for value in values))
        for number, (arm, values) in enumerate(row.arms.items())
    ]
