"""From a name to lm-eval's own task objects, refusing first what would run code of its own or of the model.

load("mmlu_abstract_algebra", "mmlu_abstract_algebra", None) -> [<one task of lm-eval>]
"""

from __future__ import annotations

import contextlib
import difflib
import io
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from editkit.errors import EditkitError

BROKEN = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, TemplateError)
"""What foreign task code raises on what it did not expect."""


def load(spec: str | Mapping[str, Any], label: str, include: Path | None) -> list[Any]:
    """The lm-eval task objects behind a name: several for a group or a tag."""
    manager = _manager(include, defaults=False)
    if isinstance(spec, str) and spec not in manager.task_index:
        manager = _manager(include, defaults=True)
    if isinstance(spec, str) and spec not in manager.task_index:
        close = difflib.get_close_matches(spec, manager.all_tasks, n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise EditkitError(f"lm-eval has no task {spec!r}.{hint} `lm_eval ls tasks` lists them.")
    if any(cfg.get("unsafe_code") for cfg in _configs(spec, manager)):
        raise _unsafe(label)
    try:
        # Progress bars and notes of a library that believes it is the program.
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            sources = list(manager.load(spec if isinstance(spec, str) else dict(spec))["tasks"].values())
    except (OSError, ImportError, *BROKEN) as error:
        raise EditkitError(
            f"The lm-eval task {label!r} cannot be loaded: {' '.join(str(error).split())[:300]}. "
            "Its data comes from the Hugging Face Hub on first use; with HF_HUB_OFFLINE=1 only what is there works."
        ) from error
    if any(getattr(source, "UNSAFE_CODE", False) for source in sources):
        raise _unsafe(label)
    return sorted(sources, key=lambda source: source.task_name)


@lru_cache(maxsize=4)
def _manager(include: Path | None, *, defaults: bool) -> Any:
    """lm-eval's index of its tasks; reading all of it takes seconds, so only when a name is asked for."""
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise EditkitError("lm-eval is not installed: pip install 'editkit[eval]'.") from error
    return TaskManager(include_path=None if include is None else str(include), include_defaults=defaults)


def _configs(spec: Any, manager: Any) -> Iterator[Mapping[str, Any]]:
    """Every task's settings, read without importing any of its code: loading an unsafe task already runs some."""
    from lm_eval.tasks._yaml_loader import load_yaml

    if isinstance(spec, str):
        entry = manager.task_index.get(spec)
        if entry is None:
            return
        if entry.yaml_path is None:
            for child in sorted(entry.tags or ()):
                yield from _configs(child, manager)
            return
        spec = load_yaml(entry.yaml_path, resolve_func=False, recursive=True)
    yield spec
    children = spec.get("task")
    for child in children if isinstance(children, list) else []:
        yield from _configs(child, manager)
        if isinstance(child, Mapping) and isinstance(child.get("task"), str):
            yield from _configs(child["task"], manager)


def refused(label: str, reason: str) -> EditkitError:
    """Why a task cannot be used."""
    return EditkitError(f"The lm-eval task {label!r} cannot be used: {reason}. Choose another task.")


def _unsafe(label: str) -> EditkitError:
    return EditkitError(
        f"The lm-eval task {label!r} runs code that the model wrote, in the open. Use editkit's own humaneval or mbpp "
        "with --allow-code-execution: they run it in a sandbox."
    )
