"""What all commands share: errors as messages with their exit codes, options for models, JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editkit.errors import EditkitError, UsageError, first_line

if TYPE_CHECKING:
    from editkit.models.placement import Placement
    from editkit.workspace import Session

METHODS = ("auto", "halving", "css", "csb", "greedy", "one-shot")


class Commands(click.Group):
    """Commands in the order of a day's work, not of the alphabet; a user's mistake never ends in a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One sentence per command, wrapped where the terminal is narrow; click itself would cut it."""
        rows = [(name, command.get_short_help_str(200)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            ctx.color = False  # click itself does not know of it
        if sys.stderr is None or not sys.stderr.isatty():  # a client's progress bars are noise in a file
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
            os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warned
                for category in (DeprecationWarning, FutureWarning):  # of libraries, for those who write programs
                    warnings.simplefilter("ignore", category)
                done = super().invoke(ctx)
                _flush()
                return done
        except EditkitError as error:
            _flagged("error:", str(error), "red")
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            said = "interrupted: nothing half-written was left, what was measured is kept. Run the same command again."
            click.echo("\n" + fitting(said), err=True)
            ctx.exit(130)
        except BrokenPipeError:
            _discard_output()
            ctx.exit(141)
        except OSError as error:
            _refused(error)
            ctx.exit(1)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # of --help and --version, which are printed before any command is invoked
            _refused(error)
            sys.exit(1)


def _refused(error: OSError) -> None:
    """Say what the system did not do."""
    place = f"{error.filename}: " if error.filename else ""
    said = error.strerror or first_line(error)
    remedy = "See that there is room, and that what is named may be read and written; then run it again."
    _flagged("error:", f"{place}{said}. {remedy}", "red")
    try:
        _flush()
    except OSError:
        _discard_output()


def _flush() -> None:
    """Write what waits for stdout, if there is one, while an error can still be told."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _discard_output() -> None:
    """What stdout did not take is not tried again when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flagged(flag: str, text: str, color: str) -> None:
    click.secho(flag, fg=color, bold=True, err=True, nl=False)
    click.echo(fitting(f"{flag} {text}").removeprefix(flag), err=True)


def _warned(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as a sentence: where in the code it came from tells the reader nothing."""
    _flagged("warning:", str(message), "yellow")


def stacked(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Several click options as one decorator, shown in the order given."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


which_model = stacked(
    click.option("--model", metavar="MODEL", help="Hub id or local directory. Default: the bundled organism."),
    click.option("--revision", metavar="R", help="Hub commit, branch or tag."),
)
placing = stacked(
    click.option(
        "--device", default="auto", show_default=True, metavar="D", help="auto, cpu, cuda, cuda:1, mps or balanced."
    ),
    click.option(
        "--dtype", default="auto", show_default=True, type=click.Choice(["auto", "float32", "bfloat16", "float16"])
    ),
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
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where measurements are kept. Default: the user's cache.",
)


def placement(options: dict[str, Any]) -> Placement:
    """How the model options say that a model is loaded; they are taken out of ``options``."""
    from editkit.models.placement import Placement

    given = {key: options.pop(key) for key in ("device", "dtype", "trust_remote_code") if key in options}
    return Placement(**given)


def session(options: dict[str, Any], command: str = "") -> Session:
    """Where measurements go and what may run, as the options say; they are taken out of ``options``."""
    from editkit.cli import terminal
    from editkit.workspace import Session

    return Session(options.pop("work"), options.pop("allow_code", False), terminal.stages(), command)


def require_folder(option: str, path: Path | None) -> None:
    """Before the work: is there a folder for the file that the work will end in?"""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}. Make it first, or name another file.")


def write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def note(text: str) -> None:
    """A sentence for the person, on stderr."""
    click.secho(fitting(text), dim=True, err=True)


def say(text: str) -> None:
    """A sentence that is the result, on stdout."""
    from editkit.cli import streams

    streams.say(text)


def fitting(text: str) -> str:
    """Text for stderr: on a terminal lines end between words; elsewhere they stay whole."""
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return "\n".join(textwrap.fill(line, width, **options) for line in text.split("\n"))
