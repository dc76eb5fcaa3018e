"""Every error a user can cause, and the exit code each ends in.

EditkitError            1   a message that says what, where, expected, found, and what to do
├── OutOfMemory         1   not even one request fits in the memory of the device
├── Unreachable         1   the Hub does not answer, or offline mode is on
├── UsageError          2   the command was called wrongly
├── NotLocalized        3   the capability did not localize: evidence is written, no checkpoint
├── TooMuchDamage       4   the goal costs more than the damage budget: evidence is written, no checkpoint
└── IntegrityError      5   a file is not what the manifest says, or the shipped model does not behave as measured

A run that was asked to accept less than its goal (--accept best), and does, ends in 6 (``REDUCED``): no error.
"""

from __future__ import annotations

import re
from typing import Any

from editkit.printable import visible

_SENTENCE = re.compile(r"(?<=[^.][.!?])\s+(?=[A-Z`])")
"""Where one sentence of a message ends and the next begins."""
_WHERE = re.compile(r"(--[\w-]+(?: [^\s:]+)?|[^\s:]+(?:, line \d+)?(?:, column [^\s:]+)?): ")
"""What most messages begin with: an option, a model, or a file with a place in it."""


def first_line(error: BaseException) -> str:
    """The first line of what an error of some library says, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


REDUCED = 6
"""A checkpoint was written from which the capability is reduced, not removed."""


class EditkitError(Exception):
    """An error with a message for the user; the command line prints it without a traceback.

    Whatever the message quotes (a name in a checkpoint, the words of a chat template), a terminal obeys none of it.
    """

    exit_code = 1
    outcome: object = None
    """The evidence of ``NotLocalized`` and ``TooMuchDamage``: an ``editkit.evidence.outcome.Outcome``."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


def parts(error: BaseException, code: int) -> dict[str, Any]:
    """What ``--json`` prints of an error, from the form that messages have: ``WHERE: what is wrong. What to do.``

    ``where`` and ``remedy`` are empty where the message names none.
    """
    message = str(error).strip() or type(error).__name__
    place = _WHERE.match(message)
    remedy = [*_SENTENCE.split(message, maxsplit=1), ""][1]
    return {"error": message, "code": code, "where": place[1] if place else "", "remedy": remedy}


class OutOfMemory(EditkitError):
    """Not a fact about the model: never to be taken for "cannot do this"."""


class Unreachable(EditkitError):
    """Nothing was learned of the repository: what is on this machine may do."""


class UsageError(EditkitError):
    exit_code = 2


class NotLocalized(EditkitError):
    exit_code = 3


class TooMuchDamage(EditkitError):
    exit_code = 4


class IntegrityError(EditkitError):
    exit_code = 5
