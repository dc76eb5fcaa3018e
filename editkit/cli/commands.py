"""How every command runs: in the order of a day's work, and errors as messages with their exit codes."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import click

from editkit.cli.streams import AS_JSON, fitting, print_document
from editkit.errors import EditkitError, first_line, parts

INTERRUPTED = "interrupted: nothing half-written was left, what was measured is kept. Run the same command again."


class Commands(click.Group):
    """Commands in the order of a day's work, not of the alphabet; a user's mistake never ends in a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``--json`` is known before any command reads its options: what is wrong with them is told as JSON too."""
        ctx.meta.setdefault(AS_JSON, "--json" in args)
        return super().parse_args(ctx, args)

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
                print_document(ctx)
                _flush()
                return done
        except EditkitError as error:
            _flagged("error:", str(error), "red")
            self._end(ctx, error, error.exit_code)
        except click.UsageError as error:
            print_document(ctx, {**parts(error, error.exit_code), "error": error.format_message()})
            raise
        except click.exceptions.Exit:
            print_document(ctx)
            raise
        except KeyboardInterrupt:
            click.echo("\n" + fitting(INTERRUPTED), err=True)
            self._end(ctx, EditkitError(INTERRUPTED), 130)
        except BrokenPipeError:
            _discard_output()
            ctx.exit(141)
        except OSError as error:
            _refused(error)
            self._end(ctx, EditkitError(_not_done(error)), 1)

    def _end(self, ctx: click.Context, error: EditkitError, code: int) -> None:
        """Exit with a code; the error goes to stdout as well, if that is to be JSON and takes it."""
        try:
            print_document(ctx, parts(error, code))
        except OSError:
            _discard_output()
        ctx.exit(code)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # of --help and --version, which are printed before any command is invoked
            _refused(error)
            sys.exit(1)


def _not_done(error: OSError) -> str:
    """What the system did not do, as a sentence."""
    where = f"{error.filename}: " if error.filename else ""
    said = error.strerror or first_line(error)
    remedy = "See that there is room, and that what is named may be read and written; then run it again."
    return f"{where}{said}. {remedy}"


def _refused(error: OSError) -> None:
    """Say what the system did not do."""
    _flagged("error:", _not_done(error), "red")
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
