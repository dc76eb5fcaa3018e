"""The evidence of a removal, measured: dose curve on ``choose``; before, after and random heads on ``report``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from editkit.errors import EditkitError, IntegrityError
from editkit.evidence import report as evaluation
from editkit.evidence.exhibits import Transcript
from editkit.evidence.report import RandomHeads, Row
from editkit.measuring.ledger import scores, task_scores
from editkit.measuring.store import Cell, Store
from editkit.models.language_model import LanguageModel
from editkit.progress import Advance, Stages, silent
from editkit.removal.find_heads import Capability
from editkit.removal.random_sets import random_sets
from editkit.tasks.task import Example, Likelihood, Loglikelihood, Task, examples_of
from editkit.units import Head

SHOWN = 6
"""How many transcripts of the target are kept in the report, and one of each retained task."""
BEGINNING = 200
"""Characters of a prompt that are scored as its continuation."""
TIPPED = 3
"""The shipped model's answers may differ from the hooked one's in so many times what differs when nothing changed."""


@dataclass(frozen=True)
class Sheet:
    """One task's examples, and the cells one model filled in for them."""

    task: Task
    examples: tuple[Example, ...]
    cells: tuple[Cell, ...]

    @property
    def clusters(self) -> list[str]:
        return [example.cluster for example in self.examples]

    @property
    def mean(self) -> float:
        return float(np.mean([cell.value for cell in self.cells]))


def answers(
    model: LanguageModel,
    tasks: Sequence[Task],
    mask: np.ndarray,
    store: Store,
    *,
    split: str,
    limit: int,
    advance: Advance = lambda cells: None,
) -> list[Sheet]:
    """Let the model answer every task's examples of ``split`` under one mask.

    Unedited, hooked and shipped models get the same requests in the same batches, so that nothing but the edit differs.
    """
    sheets = []
    for task in tasks:
        examples = examples_of(task, split, limit=limit)  # type: ignore[arg-type]
        if not examples:
            raise EditkitError(f"Task {task.name!r} has no example in the split {split!r}: it needs more examples.")
        [cells] = task_scores(model, task, examples, mask[None], store, advance=advance)
        sheets.append(Sheet(task, tuple(examples), tuple(cells)))
    return sheets


def again(
    model: LanguageModel, sheets: Sequence[Sheet], store: Store, *, advance: Advance = lambda cells: None
) -> list[Sheet]:
    """The unedited model's answers a second time, for the A/A noise floor.

    Every second example is asked first, so that each has other neighbours in its batch: there kernels round
    differently, and a near tie may tip.
    """
    nothing, second = np.zeros((1, len(model.architecture.heads)), dtype=bool), []
    for sheet in sheets:
        cells: dict[str, Cell] = {}
        for part in (sheet.examples[::2], sheet.examples[1::2]):
            [found] = task_scores(model, sheet.task, part, nothing, store, run=2, advance=advance)
            cells |= {example.id: cell for example, cell in zip(part, found, strict=True)}
        second.append(replace(sheet, cells=tuple(cells[example.id] for example in sheet.examples)))
    return second


def rows(
    wanted: Capability, before: Sequence[Sheet], after: Sequence[Sheet], *, split: str, rng: np.random.Generator
) -> list[Row]:
    """Paired rows, target first."""
    return [
        evaluation.row(
            first.task.name,
            "target" if first.task.name == wanted.target.name else "retain",
            split=split,
            chance=first.task.chance,
            before=scores(first.cells),
            after=scores(second.cells),
            clusters=first.clusters,
            margin=wanted.recipe.damage.each,
            rng=rng,
        )
        for first, second in zip(before, after, strict=True)
    ]


def agree(
    hooked: Sequence[Sheet], shipped: Sequence[Sheet], unedited: Sequence[Sheet], second: Sequence[Sheet]
) -> None:
    """The shipped model must answer as the hooked one did.

    Rows with other neighbours in their batch (a resumed run, less free memory) round differently, which tips near
    ties. One answer in a hundred may, or ``TIPPED`` times as many as when the unedited model was asked twice.

    Raises:
        IntegrityError: naming the task and the first answer that differs.
    """
    for one, other, *same in zip(hooked, shipped, unedited, second, strict=True):
        different, tipped = _different(one, other), len(_different(*same))
        if len(different) > max(len(one.examples) / 100, TIPPED * tipped):
            example, expected, found = different[0]
            raise IntegrityError(
                f"The written checkpoint does not behave as the model that was measured: task {one.task.name!r}, "
                f"{len(different)} of {len(one.examples)} answers differ (asked twice, the unedited model differs in "
                f"{tipped}), first {example.id!r}: expected {expected.output!r:.80}, found {found.output!r:.80}. "
                "Nothing was published; please report this."
            )


def _different(one: Sheet, other: Sheet) -> list[tuple[Example, Cell, Cell]]:
    """Examples that were scored otherwise, with both cells."""
    return [
        (example, first, second)
        for example, first, second in zip(one.examples, one.cells, other.cells, strict=True)
        if (first.value, first.valid) != (second.value, second.valid)
    ]


def readings(model: LanguageModel, heads: Iterable[Head], prompts: Sequence[str]) -> list[Likelihood]:
    """How likely each prompt finds its own beginning, with ``heads`` out: numbers that any change of the weights moves.

    One by one, since rows of a batch may round as their neighbours have it. The beginning alone: a long prompt would
    not fit behind itself, nor its logits in memory.
    """
    mask, asked = model.architecture.mask(heads)[None], [Loglikelihood(text, text[:BEGINNING]) for text in prompts]
    return [found for request in asked for found in model.answer([request], mask) if isinstance(found, Likelihood)]


def same_readings(
    prompts: Sequence[str],
    hooked: Sequence[Likelihood],
    shipped: Sequence[Likelihood],
    *,
    again: Sequence[Likelihood],
    rounding: float = 0.0,
) -> None:
    """The shipped weights must give the very log-probabilities that the hooked model gives: equal, not close.

    Args:
        again: the hooked model's a second time. Where a device does not repeat itself, ten times as much is allowed.
        rounding: the share of a log-probability that kernels may differ by; 0 where they are the same.

    Raises:
        IntegrityError: they differ.
    """
    for prompt, one, other, repeated in zip(prompts, hooked, shipped, again, strict=True):
        allowed = max(rounding * abs(one.logprob), 10 * abs(one.logprob - repeated.logprob))
        if one != other and not abs(one.logprob - other.logprob) <= allowed:
            raise IntegrityError(
                f"The written checkpoint computes something else than the model that was measured: {prompt!r} "
                f"expected {one}, found {other}. Nothing was published; please report this."
            )


def null(
    model: LanguageModel,
    wanted: Capability,
    heads: frozenset[Head],
    universal: Iterable[Head],
    before: Sheet,
    after: Sheet,
    store: Store,
    *,
    seed: int,
    stages: Stages = silent,
) -> RandomHeads | None:
    """The target's change under random head sets, on the first ``random_examples`` of its report examples."""
    recipe = wanted.recipe
    if recipe.random_sets == 0 or not heads:
        return None
    few = slice(0, recipe.random_examples)
    masks = random_sets(model.architecture, heads, universal, recipe.random_sets, np.random.default_rng(seed))
    with stages("Random heads", len(masks) * len(before.examples[few])) as advance:
        cells = task_scores(model, wanted.target, before.examples[few], masks, store, advance=advance)
    base = np.mean([cell.value for cell in before.cells[few]])
    change = float(np.mean([cell.value for cell in after.cells[few]]) - base)
    deltas = [float(np.mean([cell.value for cell in row]) - base) for row in cells]
    return evaluation.random_heads(change, deltas, examples=len(before.cells[few]))


def transcripts(before: Sequence[Sheet], after: Sequence[Sheet]) -> list[Transcript]:
    """A few prompts with both answers: several of the target (the first sheet), one of each retained task."""
    found = []
    for place, (first, second) in enumerate(zip(before, after, strict=True)):
        if isinstance(first.task.requests(first.examples[0])[0], Loglikelihood):
            continue
        for example, old, new in list(zip(first.examples, first.cells, second.cells, strict=True))[
            : SHOWN if place == 0 else 1
        ]:
            found.append(Transcript(first.task.name, example.prompt, old.output.strip(), new.output.strip()))
    return found


def transcript_lines(before: Sequence[Sheet], after: Sequence[Sheet]) -> str:
    """Every answer of both models, one JSON object a line, for people who want to read them all."""
    lines = []
    for first, second in zip(before, after, strict=True):
        for example, old, new in zip(first.examples, first.cells, second.cells, strict=True):
            row = {"task": first.task.name, "example": example.id, "prompt": example.prompt}
            row |= {"before": asdict(old), "after": asdict(new)}  # type: ignore[dict-item]
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)
