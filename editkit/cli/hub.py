"""push, pull-verify: publish an edit, and let anyone check it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from editkit.cli.options import FOLDER, allow_code, as_json, placement, placing, remote_code, session
from editkit.cli.streams import print_json, say, show


@click.command()
@click.argument("out", type=FOLDER)
@click.argument("repo")
@click.option("--public", is_flag=True, help="Readable by everybody. Default: private.")
@click.option("--create-pr", is_flag=True, help="As a pull request to a repository that exists.")
@click.option("--dry-run", is_flag=True, help="List every operation and byte; change nothing.")
@click.option("--allow-unmet", is_flag=True, help="Publish although the verdict was not met; the card will say so.")
@click.option("--allow-gated", is_flag=True, help="Publish openly although the base is gated.")
@click.option("--allow-secrets", is_flag=True, help="Publish although files look like secrets.")
@as_json
def push(out: Path, repo: str, as_json: bool, **options: Any) -> None:
    """Publish an output on the Hub.

    Everything is checked before and compared after; private unless --public.
    """
    from editkit.cli import hub_tables
    from editkit.hub import Allow
    from editkit.hub import push as publish

    allow = Allow(**{key: options.pop(f"allow_{key}") for key in ("unmet", "gated", "secrets")})
    pushed = publish(out, repo, allow=allow, **options)
    if as_json:
        print_json(asdict(pushed))
    else:
        show(hub_tables.pushed(pushed, dry_run=options["dry_run"]))


@click.command("pull-verify")
@click.argument("repo")
@click.option("--revision", metavar="R", help="A commit, branch, tag or refs/pr/N.")
@click.option("--base", metavar="MODEL", help="Compare with this base. Default: the one that the edit names.")
@click.option(
    "--rerun", type=click.IntRange(min=1), metavar="N", help="Download it, and ask N of its examples again of it."
)
@placing
@remote_code
@allow_code
@as_json
def pull_verify(
    repo: str, revision: str | None, base: str | None, rerun: int | None, as_json: bool, **options: Any
) -> None:
    """Check a published edit against its base.

    Exactly the stated slices differ and are zero, and its numbers follow from its examples. Exit code 5 if not.
    """
    from editkit.cli import hub_tables
    from editkit.hub import pull_verify as checked

    verification = checked(repo, revision=revision, base=base)
    if not as_json:
        show(hub_tables.verification(verification))
    again = None
    if rerun is not None:
        from editkit import api

        where = {"revision": verification.commit, "placement": placement(options)}
        again = api.rerun(repo, rerun, **where, session=session(options | {"work": None}))
    if as_json:
        print_json(asdict(verification) | {"rerun": None if again is None else asdict(again)})
    elif again is not None:
        say(again.describe())
