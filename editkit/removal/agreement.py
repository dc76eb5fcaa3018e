"""What is shipped must behave as what was measured: the last check before a checkpoint may appear.

Like is compared with like: ``probe`` asks the hooked model a few requests of every task in plain batches, without
sharing, and the reopened checkpoint answers the same requests in the same batches. On a CPU both must agree to the last
bit. The stored answers of the whole trial came from other batches, which round differently: they are judged by how
often that tips an answer of this model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from editkit.errors import IntegrityError
from editkit.measuring.store import Cell
from editkit.models.knockout import knocked_out
from editkit.models.language_model import LanguageModel
from editkit.removal.trial import Answers, Sheet
from editkit.tasks.task import Example, Likelihood, Loglikelihood, Output, Request
from editkit.units import Unit

ASKED, READ = 8, 4
"""Examples of each task that are asked plainly; prompts of the first task whose beginning is scored after them."""
BEGINNING = 200
"""Characters of a prompt that are scored as its continuation."""
TIPPED = 3
"""Differing answers may be so many times as many as differ when nothing changed."""
CERTAIN = 0.999
"""Rounding alone tips more answers than allowed in less than one trial of a thousand."""


@dataclass(frozen=True)
class Probe:
    """A few requests of every task, and what the hooked model answers in plain batches, asked twice.

    Args:
        tipped: the share of stored answers that plain batches tip, at most: the upper end of its 95 % interval.
        rounding: the share of a log-probability that kernels may differ by; 0 on a CPU.
    """

    requests: tuple[Request, ...]
    hooked: tuple[Output, ...]
    repeated: tuple[Output, ...]
    tipped: float
    rounding: float


def probe(model: LanguageModel, units: Iterable[Unit], hooked: Sequence[Sheet]) -> Probe:
    """Ask the hooked model plainly.

    Args:
        hooked: its stored answers, one sheet a task.
    """
    chosen = [
        (sheet, example, cell)
        for sheet in hooked
        for example, cell in zip(sheet.examples[:ASKED], sheet.cells[:ASKED], strict=True)
    ]
    asked = [sheet.task.requests(example) for sheet, example, _ in chosen]
    texts = [example.prompt for example in hooked[0].examples[:READ]]
    requests = (*(one for each in asked for one in each), *(Loglikelihood(text, text[:BEGINNING]) for text in texts))
    outputs, repeated = (plainly(model, requests, units) for _ in range(2))
    rest, differing = iter(outputs), 0
    for (sheet, example, cell), each in zip(chosen, asked, strict=True):
        score = sheet.task.score(example, [next(rest) for _ in each])
        differing += (score.value, score.valid) != (cell.value, cell.valid)
    return Probe(requests, outputs, repeated, at_most(differing, len(chosen)), model.rounding)


def plainly(model: LanguageModel, requests: Sequence[Request], units: Iterable[Unit] = ()) -> tuple[Output, ...]:
    """Answers in batches that depend on the requests alone: no layer and no beginning is shared."""
    plain = replace(model, blocks=None, prefixes=False)
    with knocked_out(model.network, model.architecture, frozenset(units)):
        return tuple(plain.answer(requests, None))


def same_model(measured: Probe, shipped: Sequence[Output]) -> None:
    """The shipped weights must answer the probe as the hooked model did: equal, not close.

    Off a CPU log-probabilities may differ by ``rounding`` or ten times what the device itself changes when asked twice,
    and one generated answer in a hundred, or ``TIPPED`` times as many as when asked twice.

    Raises:
        IntegrityError: naming the first request that is answered otherwise.
    """
    tipped, differing = 0, []
    for request, one, again, other in zip(measured.requests, measured.hooked, measured.repeated, shipped, strict=True):
        if isinstance(one, Likelihood) and isinstance(again, Likelihood) and isinstance(other, Likelihood):
            allowed = max(measured.rounding * abs(one.logprob), 10 * abs(one.logprob - again.logprob))
            if one.logprob != other.logprob and not abs(one.logprob - other.logprob) <= allowed:
                raise _another_model(request, one, other)
        else:
            tipped += one != again
            differing += [(request, one, other)] if one != other else []
    if len(differing) > (max(len(shipped) / 100, TIPPED * tipped) if measured.rounding else TIPPED * tipped):
        raise _another_model(*differing[0])


def same_answers(answers: Answers, shipped: Sequence[Sheet], *, tipped: float) -> None:
    """The shipped model must answer every task as the hooked one did, but for near ties that other batches tip.

    A task may differ in ``TIPPED`` times as many answers as when the unedited model was asked twice, or in as many as
    rounding explains where it tips a share of ``tipped``.

    Raises:
        IntegrityError: naming the task and the first answer that differs.
    """
    from scipy.stats import binom

    for one, other, *same in zip(answers.after, shipped, answers.before, answers.again, strict=True):
        different, noise = _different(one, other), len(_different(*same))
        if len(different) > max(TIPPED * noise, binom.ppf(CERTAIN, len(one.examples), tipped)):
            example, expected, actual = different[0]
            raise IntegrityError(
                f"The written checkpoint does not behave as the model that was measured: task {one.task.name!r}, "
                f"{len(different)} of {len(one.examples)} answers differ (asked twice, the unedited model differs in "
                f"{noise}; rounding tips at most {tipped:.1%}), first {example.id!r}: expected "
                f"{expected.output!r:.80}, found {actual.output!r:.80}."
            )


def _another_model(request: Request, expected: Output, actual: Output) -> IntegrityError:
    return IntegrityError(
        f"The written checkpoint computes something else than the model that was measured: {request.prompt!r:.200} "
        f"expected {expected!r:.200}, found {actual!r:.200}."
    )


def at_most(count: int, trials: int) -> float:
    """The upper end of the exact 95 % interval of a share (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    return 1.0 if count >= trials else float(beta.ppf(0.975, count + 1, trials - count))


def _different(one: Sheet, other: Sheet) -> list[tuple[Example, Cell, Cell]]:
    """Examples that were scored otherwise, with both cells."""
    return [
        (example, first, second)
        for example, first, second in zip(one.examples, one.cells, other.cells, strict=True)
        if (first.value, first.valid) != (second.value, second.valid)
    ]
