"""The options that several commands share, and the check of a file that a command will end in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editkit.cli.streams import note
from editkit.errors import UsageError

if TYPE_CHECKING:
    from editkit.checkpoints.source import Source
    from editkit.models.language_model import LanguageModel
    from editkit.models.placement import Placement
    from editkit.models.pool import Opener
    from editkit.workspace import Session

BUNDLED = "No --model given: using the small bundled model (the organism)."
METHODS = ("auto", "halving", "css", "csb", "greedy", "one-shot")
EXPORTS = ("inspect", "lm-eval")
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)
ANY = click.Path(path_type=Path)
"""A directory, or a GGUF file."""


def stacked(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Several click options as one decorator, shown in the order given."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


revision = click.option("--revision", metavar="R", help="Hub commit, branch or tag.")
which_model = stacked(
    click.option("--model", metavar="MODEL", help="Hub id, directory or GGUF file. Default: the bundled organism."),
    revision,
)
device = click.option(
    "--device", default="auto", show_default=True, metavar="D", help="auto, cpu, cuda, cuda:1, mps or balanced."
)
dtype = click.option(
    "--dtype", default="auto", show_default=True, type=click.Choice(["auto", "float32", "bfloat16", "float16"])
)
placing = stacked(device, dtype)
workers = click.option(
    "--workers", metavar="N", type=click.IntRange(1), help="Let N copies of the model answer (docs/cluster.md)."
)
sharing = stacked(
    workers,
    click.option("--ray", metavar="ADDRESS", help="On a Ray cluster: auto, ray://HOST:10001. Default: this machine."),
    click.option("--gpus-per-worker", metavar="K", type=click.IntRange(1), help="Spread each copy over K GPUs."),
    click.option("--mixed-pool", is_flag=True, help="Allow processors of several types, which round otherwise."),
)
remote_code = click.option("--trust-remote-code", is_flag=True, help="Run Python files that came with the model.")
allow_code = click.option(
    "--allow-code-execution",
    "allow_code",
    is_flag=True,
    help="Let Python scorers run, and code the model writes in a sandbox.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
seed = click.option("--seed", default=0, show_default=True, metavar="N", type=click.IntRange(min=0))
method = click.option("--method", type=click.Choice(METHODS), help="How heads are found. Default: the recipe's.")
work = click.option(
    "--work",
    type=FOLDER,
    metavar="DIR",
    help="Where measurements are kept. Default: the user's cache.",
)


def placement(options: dict[str, Any]) -> Placement:
    """How the model options say that a model is loaded; they are taken out of ``options``."""
    from editkit.models.placement import Placement

    given = {key: options.pop(key) for key in ("device", "dtype", "trust_remote_code") if key in options}
    return Placement(**given, pool=_pool(options))


def _pool(options: dict[str, Any]) -> Opener | None:
    asked = [options.pop(key, None) for key in ("workers", "ray", "gpus_per_worker")]
    mixed = options.pop("mixed_pool", False)
    if not any(asked) and not mixed:
        return None
    from editkit.cli.stages import on_stderr
    from editkit.cluster.workers import Workers

    return Workers(*asked, mixed=mixed).opener(on_stderr())


def session(options: dict[str, Any], command: str = "") -> Session:
    """Where measurements go and what may run, as the options say; they are taken out of ``options``."""
    from editkit.cli.stages import on_stderr
    from editkit.workspace import Session

    return Session(options.pop("work"), options.pop("allow_code", False), on_stderr(), command)


def load(options: dict[str, Any]) -> LanguageModel:
    """Load what the model options name; all but ``work`` are taken out of ``options``."""
    from editkit.api import LOADING
    from editkit.checkpoints.source import resolve
    from editkit.cli.stages import on_stderr
    from editkit.models.loading import load_source

    model, stages = options.pop("model"), on_stderr()
    if model is None:
        note(BUNDLED)
    source = resolve(model, options.pop("revision"), stages=stages)
    tell_kept(source, options["work"])
    placed = placement(options)
    with stages(LOADING, None):
        return load_source(source, placed)


def tell_kept(source: Source, work: Path | None) -> None:
    """Say what is known of a model already: a run that was stopped goes on from there."""
    from editkit.measuring.store import opened
    from editkit.workspace import work_for

    path = work_for(source.base, "", 0, work).store
    if not path.is_file():
        return
    with opened(path) as store:
        count = store.count()
    if count:
        note(f"{count:,} measurements of this model are kept in {path}: what this run asks of them is not asked again.")


def require_folder(option: str, path: Path | None) -> None:
    """Refuse a file whose folder does not exist, before the work that ends in it."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}. Make it first, or name another file.")


def write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
