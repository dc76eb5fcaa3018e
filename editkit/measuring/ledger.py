"""From a live model to numbers: task scores for confirmation, and the continuous arrow that localizers search with.

Two ways to measure one task on one set of examples, both kept in the store cell by cell:

- ``task_scores``: let the model answer, and let the task judge. What a user would see; what the report says.
  ``AnswerMeasure`` is the same as an arrow to search with.
- ``LikelihoodMeasure``: how likely are the model's *own correct* unedited answers now? One teacher-forced pass, no
  generation, continuous, in [0, 1]: the geometric mean probability of the answer's tokens (for choices: the share
  of the right one among them). METHODS: COAR (2404.11534) and ContextCite (2409.00729) regress on such
  scores too.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from editkit.errors import EditkitError
from editkit.measuring.store import Cell, Store
from editkit.models.encoding import ASKED
from editkit.models.language_model import LanguageModel
from editkit.progress import Advance
from editkit.tasks.task import Example, Generate, Likelihood, Loglikelihood, Output, Request, Score, Task, digest

ANCHOR_TOKENS = 32
"""Only so much of a long answer is scored in the search: later tokens mostly follow from the earlier ones."""

_ELSEWHERE = ("_name_or_path", "_commit_hash", "transformers_version")
"""What a config says of its files and its library."""


def task_scores(
    model: LanguageModel,
    task: Task,
    examples: Sequence[Example],
    masks: np.ndarray,
    store: Store,
    *,
    run: int = 1,
    advance: Advance = lambda cells: None,
) -> list[list[Cell]]:
    """Let the model answer under each mask and let the task judge.

    Args:
        masks: bool[m, heads].
        run: which measurement; a second one asks again what the store holds from the first.

    Returns:
        One list per mask, one cell per example, in the order of ``examples``; ``cell.output`` is the answer's text.
    """

    def judge(example: Example, outputs: Sequence[Output]) -> Cell:
        score = task.score(example, outputs)
        return Cell(score.value, score.valid, _shown(outputs))

    space = store.space(_space(model, task, "task" if run == 1 else f"task, run {run}"))
    requests = {example.id: task.requests(example) for example in examples}
    return _Ledger(model, store, space, requests, judge, advance).cells(examples, masks)


def scores(cells: Sequence[Cell]) -> list[Score]:
    """Stored cells as the task's scores."""
    return [Score(cell.value, cell.valid) for cell in cells]


@dataclass(frozen=True)
class LikelihoodMeasure:
    """``measure(masks, examples) -> float[m, e]``: the only view of a model that a localizer has.

    ``anchors`` are the examples the unedited model gets right, each with the requests that score its own answer.
    """

    model: LanguageModel
    task: Task
    anchors: tuple[tuple[Example, tuple[Loglikelihood, ...], int], ...]
    store: Store
    advance: Advance

    @property
    def examples(self) -> int:
        return len(self.anchors)

    @property
    def units(self) -> int:
        return len(self.model.architecture.heads)

    def __call__(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        chosen = self.anchors if examples is None else [self.anchors[int(place)] for place in examples]
        picks = {example.id: pick for example, _, pick in chosen}

        def judge(example: Example, outputs: Sequence[Output]) -> Cell:
            return answer_probability(outputs, picks[example.id])

        space = self.store.space(_space(self.model, self.task, "likelihood"))
        requests = {example.id: wanted for example, wanted, _ in chosen}
        ledger = _Ledger(self.model, self.store, space, requests, judge, self.advance)
        cells = ledger.cells([example for example, _, _ in chosen], masks)
        return np.array([[cell.value for cell in row] for row in cells]).reshape(len(masks), len(chosen))


@dataclass(frozen=True)
class AnswerMeasure:
    """``measure(masks, examples) -> float[m, e]`` of what the model answers, as the task judges it: what the paper
    regresses on (2603.03335, eq. 1). An answer that collapsed counts as its score says, usually 0.
    """

    model: LanguageModel
    task: Task
    asked: tuple[Example, ...]
    store: Store
    advance: Advance

    @property
    def examples(self) -> int:
        return len(self.asked)

    @property
    def units(self) -> int:
        return len(self.model.architecture.heads)

    def __call__(self, masks: np.ndarray, examples: np.ndarray | None = None) -> np.ndarray:
        chosen = self.asked if examples is None else [self.asked[int(place)] for place in examples]
        cells = task_scores(self.model, self.task, chosen, masks, self.store, advance=self.advance)
        return np.array([[cell.value for cell in row] for row in cells]).reshape(len(masks), len(chosen))


SearchMeasure = LikelihoodMeasure | AnswerMeasure


def likelihood_measure(
    model: LanguageModel,
    task: Task,
    examples: Sequence[Example],
    store: Store,
    *,
    advance: Advance = lambda cells: None,
) -> LikelihoodMeasure:
    """Anchor the measure on the examples that the unedited model gets right.

    Raises:
        EditkitError: the model gets (nearly) none right, so there is no capability to search for.
    """
    nothing = np.zeros((1, len(model.architecture.heads)), dtype=bool)
    [cells] = task_scores(model, task, examples, nothing, store, advance=advance)
    right = [(example, cell) for example, cell in zip(examples, cells, strict=True) if cell.valid and cell.value >= 0.5]
    if len(right) < 4:
        mean = float(np.mean([cell.value for cell in cells])) if cells else 0.0
        raise EditkitError(
            f"{model.source.base.model} shows {task.name!r} in {len(right)} of {len(examples)} examples (mean score "
            f"{mean:.2f}, chance {task.chance:.2f}): it does not have this capability, so there is nothing to remove. "
            "Choose another capability or model; `editkit tasks` lists what can be asked."
        )
    anchors = tuple((example, *_anchor(model, task, example, cell)) for example, cell in right)
    return LikelihoodMeasure(model, task, anchors, store, advance)


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


def _anchor(model: LanguageModel, task: Task, example: Example, cell: Cell) -> tuple[tuple[Loglikelihood, ...], int]:
    requests = task.requests(example)
    first = requests[0]
    if isinstance(first, Generate):
        tokens = model.tokenizer(cell.output, add_special_tokens=False)["input_ids"][:ANCHOR_TOKENS]
        text = model.tokenizer.decode(tokens) if len(tokens) == ANCHOR_TOKENS else cell.output
        return (Loglikelihood(first.prompt, text, first.chat),), 0
    choices = tuple(request for request in requests if isinstance(request, Loglikelihood))
    return choices, _accepted(task, example, len(choices))


def _accepted(task: Task, example: Example, choices: int) -> int:
    """The first choice that the task counts as right where the model finds it certain and the others impossible.

    Which one the model took is the task's to say: tasks compare sums, or means per token or per character.
    """
    for pick in range(choices):
        outputs = [Likelihood(0.0 if place == pick else -1e3, 1, place == pick) for place in range(choices)]
        if task.score(example, outputs).value >= 0.5:
            return pick
    raise EditkitError(
        f"{task.name}: none of the {choices} choices of example {example.id} is right when it alone is likely, so the "
        "search has no answer to follow. Give the task a metric that takes one choice as right, such as acc."
    )


def _shown(outputs: Sequence[Output]) -> str:
    """Generated text as it is; likelihoods as their mean log-probabilities per token."""
    parts = [o if isinstance(o, str) else f"{o.logprob / max(1, o.tokens):.6f}" for o in outputs]
    return " ".join(parts) if any(isinstance(o, Likelihood) for o in outputs) else "\n".join(parts)


def _space(model: LanguageModel, task: Task, mode: str) -> dict[str, Any]:
    """Everything a cell depends on besides its mask and its example."""
    return {
        "model": model.source.base.model if model.source.base.revision is None else model.source.base.revision,
        "config": _settings(model.network),
        "tokenizer": model.tokenizer_digest,
        "chat": ASKED,
        "task": task.name,
        "scorer": digest(task),
        "mode": mode,
        "dtype": model.dtype,
        "device": model.device.type,
    }


def _settings(network: Any) -> str:
    """The digest of what a network computes with besides its weights, and of where its answers end.

    Not of where its files lie, nor of the library that read them.
    """

    def kept(part: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in part.items() if key not in _ELSEWHERE}

    texts = [part.to_json_string(use_diff=False) for part in (network.config, network.generation_config)]
    parts = [json.loads(text, object_hook=kept) for text in texts]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class _Ledger:
    """One space of the store, and how to fill it: wanted minus stored is asked of the model, batch by batch."""

    model: LanguageModel
    store: Store
    space: int
    requests: Mapping[str, tuple[Request, ...]]
    judge: Callable[[Example, Sequence[Output]], Cell]
    advance: Advance

    def cells(self, examples: Sequence[Example], masks: np.ndarray) -> list[list[Cell]]:
        """One list per mask, one cell per example; a bounded number of masks at a time."""
        found: list[list[Cell]] = []
        step = max(1, 20_000 // max(1, sum(len(self.requests[example.id]) for example in examples)))
        keys = {example.id: self._key(example) for example in examples}
        for start in range(0, len(masks), step):
            part = masks[start : start + step]
            known = [self.store.get(self.space, mask) for mask in part]
            wanted = [
                (place, example)
                for place, row in enumerate(known)
                for example in examples
                if keys[example.id] not in row
            ]
            self.advance(len(part) * len(examples) - len(wanted))
            for place, example, cell in self._measured(wanted, part):
                known[place][keys[example.id]] = cell
            found += [[row[keys[example.id]] for example in examples] for row in known]
        return found

    def _measured(self, wanted: list[tuple[int, Example]], masks: np.ndarray) -> list[tuple[int, Example, Cell]]:
        """Measure cells (mask place, example); each batch's finished cells go to the store at once."""
        counts = [len(self.requests[example.id]) for _, example in wanted]
        starts = np.cumsum([0, *counts])
        owner = np.repeat(np.arange(len(wanted)), counts)
        answers: dict[int, Output] = {}
        measured: list[tuple[int, Example, Cell]] = []

        def arrived(places: list[int], outputs: list[Output]) -> None:
            answers.update(zip(places, outputs, strict=True))
            done = []
            for cell in dict.fromkeys(int(owner[place]) for place in places):
                span = range(starts[cell], starts[cell + 1])
                if all(part in answers for part in span):
                    place, example = wanted[cell]
                    done.append((place, example, self.judge(example, [answers.pop(part) for part in span])))
            self.store.put(self.space, [(masks[place], self._key(example), cell) for place, example, cell in done])
            self.advance(len(done))
            measured.extend(done)

        if wanted:
            flat = [request for _, example in wanted for request in self.requests[example.id]]
            self.model.answer(flat, masks[[wanted[cell][0] for cell in owner]], arrived=arrived)
        return measured

    def _key(self, example: Example) -> str:
        """The example's id and what exactly is asked: a changed question is another cell."""
        return f"{example.id}#{hashlib.sha256(repr(self.requests[example.id]).encode()).hexdigest()[:16]}"
