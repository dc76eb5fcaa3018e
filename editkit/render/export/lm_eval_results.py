"""Results as the files that lm-evaluation-harness writes with ``--output_path`` and ``--log_samples``.

    results/organism/results_2026-11-23T00-00-00.json                   its tables and comparisons read this
    results/organism/samples_swear_2026-11-23T00-00-00.jsonl            a line for each example
    results/no-swear/...                                                 the other model's

lm-eval need not be installed. The metric is ``score``, by the task's own rule; ``low`` and ``high`` are its 95 %
bounds, ``collapse`` the share of empty, degenerate or repetitive answers. What lm-eval notes of its own run and editkit
does not have is null.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from editkit.evidence.examples import sha256
from editkit.evidence.results import Reply, Results, TaskResults
from editkit.render.export.file_names import file_names

FILTER = "none"
"""lm-eval's word for answers that were scored as they are."""
BETTER = {"score": True, "low": True, "high": True, "collapse": False}
"""Each metric, and whether more of it is better."""


def write(results: Sequence[Results], folder: Path) -> None:
    """A folder for each model: one file of results, and one of samples for each task."""
    folders = file_names([each.model for each in results], unlike=r'["<>:/|\\?*\[\]\x00-\x1f\x7f]+')
    for each in results:
        place, date = folder / folders[each.model], _moment(each).replace(tzinfo=None).isoformat().replace(":", "-")
        place.mkdir()
        names = file_names([task.name for task in each.tasks])
        samples = {task.name: [_sample(at, reply) for at, reply in enumerate(task.replies)] for task in each.tasks}
        told = aggregated(each, samples, folder=folders[each.model])
        _write(place / f"results_{date}.json", json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False))
        for name, rows in samples.items():
            lines = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
            _write(place / f"samples_{names[name]}_{date}.jsonl", lines)


def aggregated(results: Results, samples: dict[str, list[dict[str, Any]]], *, folder: str) -> dict[str, Any]:
    """The file of results.

    Args:
        samples: of each task.
        folder: what the model is called in a path.
    """
    moment, tasks = _moment(results).timestamp(), sorted(results.tasks, key=lambda task: task.name)
    hashes = {
        name: sha256("".join(row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in rows))
        for name, rows in samples.items()
    }
    return {
        "results": {task.name: _metrics(task) for task in results.tasks},
        "group_subtasks": {},
        "configs": {task.name: _config(task) for task in tasks},
        "versions": {task.name: results.versions.get("editkit") for task in tasks},
        "n-shot": {task.name: 0 for task in tasks},
        "higher_is_better": {task.name: BETTER for task in tasks},
        "n-samples": {
            task.name: {"original": len(task.replies), "effective": len(task.replies)} for task in results.tasks
        },
        "config": {
            "model": "editkit",
            "model_args": {"pretrained": results.model},
            **dict.fromkeys(("batch_size", "device", "use_cache", "limit", "bootstrap_iters", "gen_kwargs")),
            "batch_sizes": [],
            **dict.fromkeys(("random_seed", "numpy_seed", "torch_seed", "fewshot_seed"), results.seed),
        },
        "git_hash": None,
        "date": moment,
        "pretty_env_info": " ".join(f"{name} {version}" for name, version in results.versions.items()),
        "transformers_version": results.versions.get("transformers"),
        "lm_eval_version": None,
        "upper_git_hash": None,
        "task_hashes": hashes,
        "model_source": "editkit",
        "model_name": results.model,
        "model_name_sanitized": folder,
        **dict.fromkeys(("system_instruction", "system_instruction_sha", "fewshot_as_multiturn")),
        **dict.fromkeys(("chat_template", "chat_template_sha")),
        **{"start_time": moment, "end_time": moment, "total_evaluation_time_seconds": None},
        "editkit": dict(results.about),
    }


def _metrics(task: TaskResults) -> dict[str, Any]:
    score, stderr = task.score, task.stderr
    values: dict[str, Any] = {
        "score": score.mean,
        "score_stderr": "N/A" if stderr is None else stderr,
        **{"low": score.low, "high": score.high, "collapse": task.collapse},
    }
    named = {"name": task.name, "alias": task.name, "sample_len": len(task.replies)}
    return named | {f"{name},{FILTER}": value for name, value in values.items()}


def _config(task: TaskResults) -> dict[str, Any]:
    return {
        "task": task.name,
        "test_split": task.split,
        "output_type": "multiple_choice" if any(reply.choices for reply in task.replies) else "generate_until",
        "num_fewshot": 0,
        "metric_list": [{"metric": "score", "aggregation": "mean", "higher_is_better": True}],
        "repeats": 1,
        "metadata": {"role": task.role, "chance": task.chance},
    }


def _sample(number: int, reply: Reply) -> dict[str, Any]:
    doc = {"id": reply.example, "cluster": reply.cluster, "prompt": reply.prompt, "choices": list(reply.choices)}
    return {
        "doc_id": number,
        "doc": doc,
        "target": reply.right,
        "arguments": {"gen_args_0": {"arg_0": reply.prompt, "arg_1": ""}},
        "resps": [[reply.answer]],
        "filtered_resps": [reply.answer],
        "filter": FILTER,
        "metrics": ["score"],
        "doc_hash": sha256(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": reply.prompt_sha256,
        "target_hash": sha256(reply.right),
        "score": reply.score.value,
        "valid": reply.score.valid,
    }


def _moment(results: Results) -> datetime.datetime:
    """The date of the measurement as a moment: its midnight, as no time was written down."""
    return datetime.datetime.fromisoformat(results.date).replace(tzinfo=datetime.UTC)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
