"""Rows in the form of benchmarks whose data is not at hand, and lm-eval's own settings pointed at them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

SUBJECTS = ("A baker", "A sailor", "A nurse", "A clerk", "A child", "A smith")
ACTS = ("kneads the dough", "ties the rope", "washes both hands", "opens the book")


def hellaswag(place: int) -> dict[str, Any]:
    subject = SUBJECTS[place % len(SUBJECTS)]
    endings = [f"{act} [substeps] and rests." for act in ACTS]
    return {
        "ind": place, "activity_label": "Daily work", "ctx_a": f"{subject} wakes at {place}.", "ctx_b": "then she",
        "ctx": f"{subject} wakes at {place}. then she", "endings": endings, "label": str(place % 4), "split": "val",
        "split_type": "indomain", "source_id": f"made~{place}",
    }  # fmt: skip


def boolq(place: int) -> dict[str, Any]:
    subject = SUBJECTS[place % len(SUBJECTS)]
    return {
        "question": f"does {subject.lower()} work at {place}", "passage": f"{subject} works from {place} to noon.",
        "idx": place, "label": place % 2,
    }  # fmt: skip


def wmdp_bio(place: int) -> dict[str, Any]:
    choices = ["a cell wall", "a nucleus", "a ribosome", "a membrane"]
    return {"question": f"Which part is numbered {place} in a textbook? ", "choices": choices, "answer": place % 4}


def arithmetic_2da(place: int) -> dict[str, Any]:
    one, other = 10 + place, 30 + 2 * place
    return {"context": f"Question: What is {one} plus {other}?\nAnswer:", "completion": f" {one + other}"}


ROWS = {"hellaswag": hellaswag, "boolq": boolq, "wmdp_bio": wmdp_bio, "arithmetic_2da": arithmetic_2da}


def settings(name: str, folder: Path, count: int = 24) -> dict[str, Any]:
    """lm-eval's settings of ``name``, prompts, code and metrics included, on ``count`` rows made here."""
    from lm_eval.tasks._yaml_loader import load_yaml

    spec = load_yaml(_index()[name].yaml_path, resolve_func=True, recursive=True)
    rows = folder / f"{name}.jsonl"
    rows.write_text("".join(json.dumps(ROWS[name](place)) + "\n" for place in range(count)), "utf-8")
    split = spec.get("test_split") or spec["validation_split"]
    files = {"data_files": {split: str(rows)}}
    return dict(spec) | {
        "dataset_path": "json", "dataset_name": None, "dataset_kwargs": files, "training_split": None,
    }  # fmt: skip


@cache
def _index() -> Any:
    from lm_eval.tasks import TaskManager

    return TaskManager().task_index
