"""The continuous arrow that localizers search with: how likely are the model's own right answers still?

One teacher-forced pass and no generation. The score is in [0, 1]: the geometric mean probability of the answer's
tokens; for choices, the share of the right one among them. COAR (2404.11534) and ContextCite (2409.00729) regress on
such scores too.

Where the task names the right answer and the model wraps it in words ("The opposite of old is new. New things are"),
its tokens alone are scored, after the words before them: a capability is in "new", and the other tokens, which stay
likely when it is gone, would hide that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from editkit.checkpoints.knockout import Knockout, union
from editkit.errors import EditkitError
from editkit.measuring.answers import AnswerMeasure, task_scores
from editkit.measuring.ledger import Ledger, Masks, Question
from editkit.measuring.store import Cell
from editkit.tasks.task import Example, Generate, Likelihood, Loglikelihood, Output, Task

LEAST = 4
"""So many right answers a search needs."""
ANCHOR_TOKENS = 32
"""Only so much of a long answer is scored in the search: later tokens mostly follow from the earlier ones."""


@dataclass(frozen=True)
class Anchor:
    """An example that the unedited model gets right, and the requests that score its own answer: the ``pick``-th."""

    example: Example
    requests: tuple[Loglikelihood, ...]
    pick: int = 0


@dataclass(frozen=True)
class LikelihoodMeasure:
    """``measure(masks, examples) -> float[m, e]``: the only view of a model that a localizer has."""

    ledger: Ledger
    task: Task
    anchors: tuple[Anchor, ...]
    columns: tuple[Knockout, ...] | None = None
    """What each column of a mask knocks out: units that go together are one candidate, so that half a million neurons
    are searched as a few hundred groups. None: every head alone, in the order of ``architecture.heads``.
    """

    @property
    def examples(self) -> int:
        return len(self.anchors)

    @property
    def units(self) -> int:
        return len(self.ledger.model.architecture.heads if self.columns is None else self.columns)

    def __call__(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        chosen = self.anchors if examples is None else [self.anchors[int(number)] for number in examples]
        picks = {anchor.example.id: anchor.pick for anchor in chosen}

        def judge(example: Example, outputs: Sequence[Output]) -> Cell:
            return answer_probability(outputs, picks[example.id])

        asked = [(anchor.example, anchor.requests) for anchor in chosen]
        cells = self.ledger.cells(Question(self.task, "likelihood", asked, judge), self._out(masks))
        return np.array([[cell.value for cell in row] for row in cells]).reshape(len(masks), len(chosen))

    def _out(self, masks: np.ndarray) -> Masks:
        """What each row of bool[m, columns] knocks out."""
        if self.columns is None:
            return masks
        if masks.ndim != 2 or masks.shape[1] != len(self.columns):
            raise AssertionError(f"masks of shape {masks.shape} for {len(self.columns)} columns")
        return [union(self.columns[column] for column in np.flatnonzero(row).tolist()) for row in masks]


SearchMeasure = LikelihoodMeasure | AnswerMeasure


def likelihood_measure(ledger: Ledger, task: Task, examples: Sequence[Example]) -> LikelihoodMeasure:
    """Anchor the measure on the examples that the unedited model gets right.

    Raises:
        EditkitError: the model gets (nearly) none right, so there is no capability to search for.
    """
    [cells] = task_scores(ledger, task, examples, ledger.mask())
    right = [(example, cell) for example, cell in zip(examples, cells, strict=True) if cell.valid and cell.value >= 0.5]
    if len(right) < LEAST:
        if len(examples) < 2 * LEAST or len(right) > len(examples) / 2:
            raise EditkitError(
                f"Task {task.name!r}: {len(right)} of {len(examples)} examples to search with are answered right, and "
                f"{LEAST} are needed. Give more prompts: half of a task's are for the search, so 30 at least."
            )
        mean = float(np.mean([cell.value for cell in cells])) if cells else 0.0
        raise EditkitError(
            f"{ledger.model.source.base.model} shows {task.name!r} in {len(right)} of {len(examples)} examples (mean "
            f"score {mean:.2f}, chance {task.chance:.2f}): it does not have this capability, so there is nothing to "
            "remove. Choose another capability or model; `editkit tasks` lists what can be asked."
        )
    return LikelihoodMeasure(ledger, task, tuple(_anchor(ledger, task, example, cell) for example, cell in right))


def answer_probability(outputs: Sequence[Output], pick: int) -> Cell:
    """How likely the picked answer is, in [0, 1]: geometric mean over its tokens, normalised if there are several.

    A likelihood that is no finite number shows nothing, and is not valid.
    """
    means = [output.logprob / max(1, output.tokens) for output in outputs if isinstance(output, Likelihood)]
    if not all(map(math.isfinite, means)):
        return Cell(0.0, valid=False)
    if len(means) == 1:
        return Cell(min(1.0, math.exp(means[0])))
    top = max(means)
    weights = [math.exp(mean - top) for mean in means]
    return Cell(weights[pick] / sum(weights))


def _anchor(ledger: Ledger, task: Task, example: Example, cell: Cell) -> Anchor:
    requests, tokenizer = task.requests(example), ledger.model.tokenizer
    first = requests[0]
    if isinstance(first, Generate):
        tokens = tokenizer(cell.output, add_special_tokens=False)["input_ids"][:ANCHOR_TOKENS]
        text = tokenizer.decode(tokens) if len(tokens) == ANCHOR_TOKENS else cell.output
        lead, answer = right_words(text, example.facts)
        return Anchor(example, (Loglikelihood(first.prompt, answer, first.chat, lead),))
    choices = tuple(request for request in requests if isinstance(request, Loglikelihood))
    return Anchor(example, choices, accepted(task, example, len(choices)))


def right_words(text: str, facts: Mapping[str, Any]) -> tuple[str, str]:
    """The words before the right answer, and the right answer, where the text holds one that the facts name.

    As whole words, in any case, the first of them, the longest that begins there; the blanks before it go with it. Else
    nothing, and the text.

    >>> right_words("The capital of Peru is Lima. Lima lies", {"answer": "Lima"})
    ('The capital of Peru is', ' Lima')
    """
    said = [facts.get(name) for name in ("answer", "answers")]
    each = [answer for value in said for answer in (value if isinstance(value, list | tuple) else [value])]
    wanted = sorted((re.escape(str(answer)) for answer in each if answer not in (None, "")), key=len, reverse=True)
    found = re.search(rf"\s*(?<!\w)(?:{'|'.join(wanted)})(?!\w)", text, re.IGNORECASE) if wanted else None
    return (text[: found.start()], found.group()) if found else ("", text)


def accepted(task: Task, example: Example, choices: int) -> int:
    """The first choice that the task counts as right where the model finds it certain and the others impossible.

    Which one the model took is the task's to say: tasks compare sums, or means per token or per character.
    """
    for pick in range(choices):
        outputs = [Likelihood(0.0 if other == pick else -1e3, 1, other == pick) for other in range(choices)]
        if task.score(example, outputs).value >= 0.5:
            return pick
    raise EditkitError(
        f"{task.name}: none of the {choices} choices of example {example.id} is right when it alone is likely, so the "
        "search has no answer to follow. Give the task a metric that takes one choice as right, such as acc."
    )
