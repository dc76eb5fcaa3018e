"""What a model answers, as the task judges it: what a user would see, and what the report says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editkit.measuring.ledger import Ledger, Masks, Question
from editkit.measuring.store import Cell
from editkit.tasks.task import Example, Likelihood, Output, Score, Task


def task_scores(
    ledger: Ledger, task: Task, examples: Sequence[Example], masks: Masks, *, run: int = 1
) -> list[list[Cell]]:
    """Let the model answer under each mask and let the task judge.

    Args:
        masks: bool[m, heads], or m knockouts.
        run: which measurement; a second one asks again what the store holds from the first.

    Returns:
        One list per mask, one cell per example, in the order of ``examples``; ``cell.output`` is the answer's text.
    """
    return ledger.cells(answers(task, examples, run=run), masks)


def answers(task: Task, examples: Sequence[Example], *, run: int = 1) -> Question:
    """What ``task_scores`` asks."""

    def judge(example: Example, outputs: Sequence[Output]) -> Cell:
        score = task.score(example, outputs)
        return Cell(score.value, score.valid, shown(outputs))

    asked = [(example, task.requests(example)) for example in examples]
    return Question(task, "task" if run == 1 else f"task, run {run}", asked, judge)


def scores(cells: Sequence[Cell]) -> list[Score]:
    """Stored cells as the task's scores."""
    return [Score(cell.value, cell.valid) for cell in cells]


@dataclass(frozen=True)
class AnswerMeasure:
    """``measure(masks, examples) -> float[m, e]`` of what the model answers: what the paper regresses on (2603.03335,
    eq. 1). The columns of a mask are the heads. An answer that collapsed counts as its score says, usually 0.
    """

    ledger: Ledger
    task: Task
    asked: tuple[Example, ...]

    @property
    def examples(self) -> int:
        return len(self.asked)

    @property
    def units(self) -> int:
        return len(self.ledger.model.architecture.heads)

    def __call__(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        chosen = self.asked if examples is None else [self.asked[int(number)] for number in examples]
        cells = task_scores(self.ledger, self.task, chosen, masks)
        return np.array([[cell.value for cell in row] for row in cells]).reshape(len(masks), len(chosen))


def shown(outputs: Sequence[Output]) -> str:
    """Generated text as it is; likelihoods as their mean log-probabilities per token."""
    texts = [o if isinstance(o, str) else f"{o.logprob / max(1, o.tokens):.6f}" for o in outputs]
    return " ".join(texts) if any(isinstance(o, Likelihood) for o in outputs) else "\n".join(texts)
