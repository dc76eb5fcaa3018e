"""What the Hub says of a README.md before it takes it: the front matter must be YAML of the right shape.

    faults("---\nlicense: apache2\n---\n") -> ['"license" must be one of [...]; found "apache2"']

From the Hub's published model-card metadata specification; only the fields a model card of ours can hold.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

LICENSES = frozenset(
    """
    afl-3.0 apache-2.0 artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0 bsd bsd-2-clause bsd-3-clause
    bsl-1.0 cc cc-by-2.0 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-4.0 cc-by-nc-nd-4.0 cc-by-nc-sa-4.0
    cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 creativeml-openrail-m epl-2.0 eupl-1.1 gemma gpl gpl-2.0
    gpl-3.0 isc lgpl lgpl-3.0 llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 mit mpl-2.0 ms-pl openrail
    openrail++ osl-3.0 postgresql unknown unlicense wtfpl zlib other
    """.split()  # noqa: SIM905
)
RELATIONS = ("finetune", "adapter", "merge", "quantized")
REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


def faults(text: str) -> tuple[list[str], list[str]]:
    """Errors and warnings of a card."""
    match = re.match(r"\A---[ \t]*\r?\n(.*?)\r?\n?---[ \t]*(\r?\n|\Z)", text, re.DOTALL)
    if match is None:
        return [], ["empty or missing yaml metadata in repo card"]
    try:
        data: Any = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        return [f"Invalid YAML: {error}"], []
    if data is None:
        return [], ["empty or missing yaml metadata in repo card"]
    if not isinstance(data, dict):
        return ["YAML metadata must be a mapping"], []
    return [fault for field, check in CHECKS.items() if field in data for fault in check(data[field])], []


def _license(value: Any) -> list[str]:
    names = value if isinstance(value, list) else [value]
    return [f'"license" must be one of {sorted(LICENSES)}; found {name!r}' for name in names if name not in LICENSES]


def _base_model(value: Any) -> list[str]:
    names = value if isinstance(value, list) else [value]
    return [
        f'"base_model" with value {name!r} is not valid. Use a model id from https://hf.co/models.'
        for name in names
        if not isinstance(name, str) or not REPO_ID.fullmatch(name)
    ]


def _strings(value: Any) -> list[str]:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return []
    return [f"must be a string or an array of strings; found {value!r}"]


def _text(value: Any) -> list[str]:
    return [] if isinstance(value, str) else [f"must be a string; found {value!r}"]


def _relation(value: Any) -> list[str]:
    return [] if value in RELATIONS else [f'"base_model_relation" must be one of {RELATIONS}; found {value!r}']


def _model_index(value: Any) -> list[str]:
    if not isinstance(value, list) or not value:
        return ['"model-index" must be a non-empty array']
    found = []
    for model in value:
        if not isinstance(model, dict) or not isinstance(model.get("name"), str) or not model["name"]:
            found.append('"model-index[].name" is required')
            continue
        for result in model.get("results") or []:
            if not isinstance(result, dict) or not (result.get("task") or {}).get("type"):
                found.append('"model-index[].results[].task.type" is required')
                continue
            dataset = result.get("dataset")
            if dataset is not None and not (dataset.get("type") and dataset.get("name")):
                found.append('"model-index[].results[].dataset" needs a type and a name')
            metrics = result.get("metrics")
            if not isinstance(metrics, list) or not all(
                isinstance(metric, dict) and isinstance(metric.get("type"), str) and "value" in metric
                for metric in metrics
            ):
                found.append('"model-index[].results[].metrics[]" need a type and a value')
    return found


CHECKS = {
    "license": _license,
    "license_name": _text,
    "license_link": _text,
    "base_model": _base_model,
    "base_model_relation": _relation,
    "library_name": _text,
    "pipeline_tag": _text,
    "language": _strings,
    "tags": _strings,
    "datasets": _strings,
    "model-index": _model_index,
}
