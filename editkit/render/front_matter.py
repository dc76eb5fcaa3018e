"""The YAML on top of a model card, through ``huggingface_hub``: what the Hub's search and widgets read.

base_model: meta-llama/Llama-3.2-1B-Instruct
base_model_relation: finetune
license: llama3.2
tags: [editkit, capability-removal, attention-heads]
model-index: [{name: Llama-3.2-1B-Instruct-no-swear, results: [...]}]

A value of the base's card is carried over only if it has the form the Hub gives such values; a folder on somebody's
disk is never published as a ``base_model``.
"""

from __future__ import annotations

import math
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from editkit.edit import Edit
from editkit.evidence.provenance import BaseModel, Provenance
from editkit.evidence.report import EvalReport
from editkit.render import wording
from editkit.render.inert import clean, web_address

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

TAGS = {"head": ("attention-heads",), "neuron": ("mlp-neurons",), "unit": ("attention-heads", "mlp-neurons")}
LIBRARY = {"checkpoint": "transformers", "lora": "peft", "evidence": "editkit"}


def front_matter(edit: Edit, report: EvalReport, provenance: Provenance) -> str:
    """The YAML block, without its ``---`` lines. Where no model was written there are no results of one."""
    from huggingface_hub import ModelCardData

    base = provenance.base
    published, no_model = hub_id(base), provenance.format == "evidence"
    optional: dict[str, Any] = {}
    if published:
        optional["base_model_relation"] = "adapter" if provenance.format == "lora" else "finetune"
    data = ModelCardData(
        base_model=published,
        language=[language for language in base.languages if re.fullmatch(r"[a-z]{2,12}", language)] or None,
        library_name=LIBRARY[provenance.format],
        pipeline_tag=_matching(r"[a-z0-9][a-z0-9-]{0,60}", base.pipeline_tag),
        tags=[
            "editkit",
            "capability-removal",
            *TAGS[edit.kind],
            *(tag for tag in base.tags if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,60}", tag)),
        ],
        model_name=None if no_model else model_name(provenance),
        eval_results=None if no_model else _results(report, base) or None,
        **_license(base),
        **optional,
    )
    return data.to_yaml()


def hub_id(base: BaseModel) -> str | None:
    """The base's name on the Hub, or None if it is not one."""
    word = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
    if base.source != "hub" or ".." in base.model or "--" in base.model:
        return None
    return _matching(rf"({word}/)?{word}", base.model)


def model_name(provenance: Provenance) -> str:
    """``Llama-3.2-1B-Instruct-no-swear``."""
    name = f"{wording.base_name(provenance).rsplit('/', 1)[-1]}-no-{clean(provenance.recipe, limit=60)}"
    return _slug(name)[:96] or "edited-model"


@cache
def _licenses() -> frozenset[str]:
    """The licence ids that the Hub knows; it refuses a card with any other."""
    return frozenset(files("editkit.render").joinpath("templates", "licenses.txt").read_text("utf-8").split())


def _license(base: BaseModel) -> dict[str, str]:
    """Carried over; a licence that is not an id becomes ``other`` with its name, and nothing is invented."""
    known = base.license if base.license in _licenses() else None
    if base.license is None and base.license_name is None:
        return {}
    link = base.license_link if base.license_link in ("LICENSE", "LICENSE.md", "LICENSE.txt") else None
    link = link or web_address(base.license_link)
    fields = {"license": known or "other"}
    if fields["license"] == "other":
        fields["license_name"] = clean(base.license_name or base.license or "", limit=80)
    return fields | ({"license_link": link} if link else {})


def _results(report: EvalReport, base: BaseModel) -> list[EvalResult]:
    from huggingface_hub import EvalResult

    task_type = _matching(r"[a-z0-9][a-z0-9-]{0,60}", base.pipeline_tag) or "text-generation"
    return [
        EvalResult(
            task_type=task_type,
            # Not the name of a dataset on the Hub, and one per row: rows of one type would be merged.
            dataset_type=f"editkit-task-{number}-{_slug(row.task)}",
            dataset_name=clean(row.task, limit=80),
            dataset_split=clean(row.split, limit=40),
            metric_type="score",
            metric_name="score after the edit, 0 to 1",
            metric_value=round(row.after.mean, 4),
            metric_args={
                "n": row.n,
                "chance": row.chance,
                "before": round(row.before.mean, 4),
                "change": round(row.delta.mean, 4),
                "change_low": round(row.delta.low, 4),
                "change_high": round(row.delta.high, 4),
            },
        )
        for number, row in enumerate(report.rows)
        if math.isfinite(row.after.mean)
    ]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text[:200]).strip("-.")


def _matching(pattern: str, text: str | None) -> str | None:
    return text if text is not None and re.fullmatch(pattern, text) else None
