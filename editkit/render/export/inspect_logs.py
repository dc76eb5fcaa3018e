"""Results as logs of Inspect (inspect_ai), which its viewer, its data frames and its other programs read.

    logs/2026-11-23T00-00-00+00-00_swear_organism_5c0e....eval      a log is one task of one model
    inspect view --log-dir logs

Needs the extra ``editkit[inspect]``: the files are written by inspect_ai itself. The logs of one model share a
``run_id``; those of both models, the ``eval_set_id``. The tag is ``base`` or ``edited``.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editkit.errors import UsageError
from editkit.evidence.results import Reply, Results, TaskResults
from editkit.render.export.file_names import file_names

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalResults, EvalSample, EvalSpec

SCORER = "score"
"""The one score of each sample, by its task's own rule."""
COLLAPSED = "Empty, degenerate or repetitive: it shows no capability, and never counts as removed."


def require() -> None:
    """Refuse where inspect_ai is not installed.

    Raises:
        UsageError: naming the extra.
    """
    if find_spec("inspect_ai") is None:
        raise UsageError("inspect: inspect_ai is not installed. Install it by: pip install 'editkit[inspect]'")


def write(results: Sequence[Results], folder: Path) -> None:
    """A log for each task of each model."""
    from inspect_ai.log import write_eval_log

    names = file_names(
        [*(each.model for each in results), *(task.name for each in results for task in each.tasks)],
        unlike="[^A-Za-z0-9.-]+",
        sign="-",
    )
    runs = [_id(each) for each in results]
    for each, run in zip(results, runs, strict=True):
        for task in each.tasks:
            log = eval_log(each, task, run=run, eval_set=_id(*runs))
            parts = (log.eval.created.replace(":", "-"), names[task.name], names[each.model], log.eval.task_id)
            write_eval_log(log, str(folder / f"{'_'.join(parts)}.eval"))


def eval_log(results: Results, task: TaskResults, *, run: str, eval_set: str) -> EvalLog:
    """One task of one model; the same results give the same log.

    Args:
        run, eval_set: what this model's logs have in common, and those of both models.
    """
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSpec, EvalStats

    created = f"{results.date}T00:00:00+00:00"
    spec = EvalSpec(
        eval_set_id=eval_set,
        eval_id=_id(run, task.name, "eval"),
        run_id=run,
        task_id=_id(run, task.name),
        created=created,
        task=task.name,
        tags=[str(results.about["arm"])] if "arm" in results.about else None,
        dataset=EvalDataset(
            name=f"{task.name}, split {task.split}",
            samples=len(task.replies),
            sample_ids=[reply.example for reply in task.replies],
            shuffled=False,
        ),
        model=results.model,
        config=EvalConfig(epochs=1),
        packages=dict(results.versions),
        metadata={**results.about, "role": task.role, "chance": task.chance, "split": task.split, "seed": results.seed},
    )
    return EvalLog(
        status="success",
        eval=spec,
        results=_results(task),
        stats=EvalStats(started_at=created, completed_at=created),
        samples=[_sample(reply, spec, _id(run, task.name, reply.example)) for reply in task.replies],
    )


def _results(task: TaskResults) -> EvalResults:
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    score = task.score
    values = {"mean": score.mean, "stderr": task.stderr, "low": score.low, "high": score.high}
    values |= {"collapse": task.collapse, "chance": task.chance}
    metrics = {name: EvalMetric(name=name, value=value) for name, value in values.items() if value is not None}
    count = len(task.replies)
    return EvalResults(
        total_samples=count,
        completed_samples=count,
        scores=[EvalScore(name=SCORER, scorer=SCORER, scored_samples=count, unscored_samples=0, metrics=metrics)],
    )


def _sample(reply: Reply, spec: EvalSpec, uuid: str) -> EvalSample:
    """With the two events that the viewer's transcript is made of: the model was asked, and the answer was scored."""
    from inspect_ai.event import ModelEvent, ScoreEvent
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, GenerateConfig, ModelOutput
    from inspect_ai.scorer import Score

    asked = ChatMessageUser(id=f"{uuid}-0", content=reply.prompt, source="input")
    answer = ChatMessageAssistant(id=f"{uuid}-1", content=reply.answer, model=spec.model, source="generate")
    output = ModelOutput.from_message(answer)
    score = Score(value=reply.score.value, answer=reply.answer, explanation=None if reply.score.valid else COLLAPSED)
    at: dict[str, Any] = {"timestamp": datetime.datetime.fromisoformat(spec.created), "working_start": 0}
    generated = ModelEvent(
        uuid=f"{uuid}-2",
        **at,
        model=spec.model,
        input=[asked],
        tools=[],
        tool_choice="none",
        config=GenerateConfig(),
        output=output,
    )
    scored = ScoreEvent(uuid=f"{uuid}-3", **at, scorer=SCORER, score=score, target=reply.right)
    return EvalSample(
        id=reply.example,
        epoch=1,
        input=reply.prompt,
        choices=list(reply.choices) or None,
        target=reply.right,
        messages=[asked, answer],
        output=output,
        scores={SCORER: score},
        events=[generated, scored],
        metadata={"cluster": reply.cluster, "valid": reply.score.valid, "prompt_sha256": reply.prompt_sha256},
        uuid=uuid,
    )


def _id(*of: object) -> str:
    """Of the same results the same, of others another; without the signs that part a file's name."""
    return hashlib.sha256(repr(of).encode()).hexdigest()[:22]
