"""lm-evaluation-harness tasks as editkit tasks: its prompts and metrics, our requests, one score per example.

    retain:
      - lm_eval: gsm8k                 # any task, group or tag of lm-eval, by name
      - lm_eval: hellaswag
        metric: acc                    # default: acc_norm, acc or exact_match, whichever comes first
      - {lm_eval: wmdp_bio, text: true}  # the choices as text instead of letters: tells format heads from knowledge

Needs the extra ``editkit[eval]``. lm-eval builds the prompts and judges the answers of each example; the model is
asked by editkit, so that knockouts, batches and the measurement store are the same as everywhere. Its result cache is
never used: its key does not know which model answered. Generation is greedy whatever the task says.

A task is refused by name if it has no per-example score in [0, 1] where higher is better, or runs code that the model
wrote (``tasks/execution.py`` runs HumanEval and MBPP in a sandbox).
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from editkit.errors import EditkitError
from editkit.tasks.degeneration import degeneration
from editkit.tasks.jsonl import Choices, chance, setting
from editkit.tasks.task import Example, Generate, Likelihood, Loglikelihood, Output, Request, Score

KEYS = ("lm_eval", "name", "metric", "filter", "num_fewshot", "chat", "chance", "text")
KINDS: dict[str, type] = {"name": str, "metric": str, "filter": str, "num_fewshot": int, "chat": bool, "text": bool}
METRICS = ("acc_norm", "acc", "exact_match")
FILTERS = ("flexible-extract",)
SEED = 1234
"""lm-eval's own default for drawing few-shot examples."""
MAX_NEW_TOKENS = 256
"""lm-eval's own default where a task sets none."""
BROKEN = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, TemplateError)
"""What foreign task code raises on what it did not expect."""


@dataclass(frozen=True)
class Item:
    """One document of one lm-eval task: ``instances`` are its requests, ``source`` the task that judges it."""

    example: Example
    source: Any
    doc: Any
    instances: tuple[Any, ...]


@dataclass(frozen=True)
class HarnessTask:
    """A task, group or tag of lm-eval. Examples keep their id when documents are added or reordered.

    Args:
        judge: lm-eval's version, and the task's own table where it is no part of lm-eval: scores depend on both.
    """

    name: str
    items: Mapping[str, Item] = field(repr=False)
    metric: str
    filter: str
    chance: float
    format: str
    chat: bool
    judge: str

    @property
    def rule(self) -> str:
        return f"{self.metric} of lm-evaluation-harness, after its filter {self.filter}"

    def examples(self) -> Sequence[Example]:
        return tuple(item.example for item in self.items.values())

    def requests(self, example: Example) -> tuple[Request, ...]:
        return tuple(_request(instance, self.chat) for instance in self.items[example.id].instances)

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        if reason := _collapsed(outputs):
            return Score(0.0, valid=False, note=reason)
        try:
            value = _results(self.items[example.id], outputs, self.filter)[self.metric]
            number = float(value)
        except BROKEN as error:
            raise EditkitError(f"{self.name}: {self.metric} of example {example.id} failed: {error!r}.") from error
        if not 0 <= number <= 1:
            raise EditkitError(f"{self.name}: {self.metric} must lie in [0, 1], found {number:g} for {example.id}.")
        return Score(number)


def task(
    table: Mapping[str, Any] | str, *, where: str = "task", allow_python: bool = False, include: Path | None = None
) -> HarnessTask | Choices:
    """The lm-eval task that a name or a recipe's table describes.

    Args:
        table: a name, or a table with ``lm_eval`` and any of ``KEYS``. ``lm_eval`` may hold a whole task instead of
            a name; its templates can run Python, so that needs ``allow_python``.
        include: a folder with more lm-eval tasks; needs ``allow_python`` for the same reason.
    """
    given = {"lm_eval": table} if isinstance(table, str) else dict(table)
    unknown = sorted(set(given) - set(KEYS))
    spec = given.get("lm_eval")
    if unknown or not isinstance(spec, str | Mapping):
        raise EditkitError(
            f"{where}: an lm-eval task has the keys {', '.join(KEYS)}; found {', '.join(map(str, given))}."
        )
    for key, kind in KINDS.items():
        setting(given, key, kind, kind(), where)
    if (include is not None or not isinstance(spec, str)) and not allow_python:
        raise EditkitError(
            f"{where}: an lm-eval task that is not part of lm-eval can run Python from its templates. "
            "Read it, then pass --allow-code-execution (allow_python=True from Python)."
        )
    label = spec if isinstance(spec, str) else str(spec.get("task", "inline"))
    sources = _load(spec, label, include)
    items = {item.example.id: item for item in _items(sources, label, given.get("num_fewshot"))}
    name = str(given.get("name", f"lm-eval-{label}")).lower()
    if given.get("text", False):
        return _as_text(items, f"{name}-text", where)
    metric, chosen = _metric(items, given, label)
    kind, guess = _format(items)
    judge = f"lm-eval {version('lm_eval')}" + ("" if isinstance(spec, str) else json.dumps(spec, default=str))
    return HarnessTask(
        name, items, metric, chosen, chance(given, guess, where), kind, bool(given.get("chat", False)), judge
    )


def _load(spec: str | Mapping[str, Any], label: str, include: Path | None) -> list[Any]:
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


def _refused(label: str, reason: str) -> EditkitError:
    """Why a task cannot be used."""
    return EditkitError(f"The lm-eval task {label!r} cannot be used: {reason}. Choose another task.")


def _unsafe(label: str) -> EditkitError:
    return EditkitError(
        f"The lm-eval task {label!r} runs code that the model wrote, in the open. Use editkit's own humaneval or mbpp "
        "with --allow-code-execution: they run it in a sandbox."
    )


def _items(sources: list[Any], label: str, num_fewshot: Any) -> Iterator[Item]:
    seen: dict[str, int] = {}
    for source in sources:
        if num_fewshot is not None:
            source.set_config("num_fewshot", int(num_fewshot))
        source.set_fewshot_seed(SEED)
        _check(source, label)
        with contextlib.redirect_stderr(io.StringIO()):
            source.build_all_requests()
        groups: dict[int, list[Any]] = {}
        for instance in source.instances:
            groups.setdefault(instance.doc_id, []).append(instance)
        for instances in groups.values():
            doc = instances[0].doc
            # Equal documents of one task differ by their count, so that ids stay unique.
            digest = hashlib.sha256(
                json.dumps([source.task_name, doc], sort_keys=True, default=str).encode()
            ).hexdigest()
            seen[digest] = seen.get(digest, 0) + 1
            name = digest[:16] if seen[digest] == 1 else f"{digest[:16]}-{seen[digest]}"
            text = source.doc_to_text(doc)
            prompt = text if isinstance(text, str) else str(instances[0].args[0])
            yield Item(Example(name, prompt, facts={"task": source.task_name}), source, doc, tuple(instances))


def _check(source: Any, label: str) -> None:
    if source.OUTPUT_TYPE == "loglikelihood_rolling":
        raise _refused(label, "it measures perplexity, which is no score from 0 to 1 per example")
    if getattr(source, "MULTIMODAL", False):
        raise _refused(label, "it asks about images or sound")
    if (source.config.repeats or 1) > 1:
        raise _refused(
            label, f"it samples {source.config.repeats} answers per example, and editkit answers greedily, once"
        )


def _request(instance: Any, chat: bool) -> Request:
    first, second = instance.args[0], instance.args[1]
    if instance.request_type == "loglikelihood":
        return Loglikelihood(first, second, chat)
    until = second.get("until") or []
    stop = tuple(word for word in ([until] if isinstance(until, str) else until) if word)
    return Generate(first, int(second.get("max_gen_toks", MAX_NEW_TOKENS)), chat, stop)


def _results(item: Item, outputs: Sequence[Output], chosen: str) -> Mapping[str, Any]:
    """lm-eval's metrics of one example, after its filter."""
    instances = []
    for instance, output in zip(item.instances, outputs, strict=True):
        fresh = copy.copy(instance)
        fresh.resps = [(output.logprob, output.greedy) if isinstance(output, Likelihood) else output]
        fresh.filtered_resps = {}
        instances.append(fresh)
    next(each for each in item.source._filters if each.name == chosen).apply(instances)
    return item.source.process_results(item.doc, [instance.filtered_resps[chosen] for instance in instances])


def _collapsed(outputs: Sequence[Output]) -> str:
    texts = [output for output in outputs if isinstance(output, str)]
    likely = [output.logprob for output in outputs if isinstance(output, Likelihood)]
    if not all(math.isfinite(value) for value in likely):
        return "no finite likelihood"
    if len(likely) > 1 and len(set(likely)) == 1:
        return "no preference"
    return next((reason for text in texts if (reason := degeneration(text))), "")


def _metric(items: Mapping[str, Item], given: Mapping[str, Any], label: str) -> tuple[str, str]:
    """(metric, filter): the ones asked for, or the usual ones, tried on a made-up answer to each task of a group."""
    firsts = list({id(item.source): item for item in reversed(list(items.values()))}.values())
    filters = [each.name for each in firsts[0].source._filters]
    chosen = given.get("filter", next((name for name in FILTERS if name in filters), filters[0]))
    fit, metrics = list(METRICS), set[str]()
    for item in firsts:
        if chosen not in (known := [each.name for each in item.source._filters]):
            raise EditkitError(f"The lm-eval task {label!r} has no filter {chosen!r}; it has {', '.join(known)}.")
        try:
            results = _results(item, [_made_up(instance) for instance in item.instances], chosen)
        except BROKEN as error:
            raise _refused(label, f"its scoring fails on a single example ({error!r})") from error
        better = item.source.higher_is_better()
        shares = [name for name, value in results.items() if _is_share(value) and better.get(name, True)]
        fit = shares if item is firsts[0] else [name for name in fit if name in shares]
        metrics |= {str(name) for name in results}
    wanted = given.get("metric", next((name for name in METRICS if name in fit), fit[0] if fit else "none of them"))
    if wanted not in fit:
        raise _refused(label, f"of its metrics ({', '.join(sorted(metrics))}), {wanted} scores one example from 0 to 1")
    return wanted, chosen


def _made_up(instance: Any) -> Output:
    return Likelihood(-1.0 - instance.idx, 1, False) if instance.request_type == "loglikelihood" else "The answer is 1."


def _is_share(value: Any) -> bool:
    return not isinstance(value, tuple | list | str | dict) and 0 <= float(value) <= 1


def _format(items: Mapping[str, Item]) -> tuple[str, float]:
    """The task's format, and what guessing scores: one over the number of choices, on average."""
    kinds = {item.source.OUTPUT_TYPE for item in items.values()}
    if kinds == {"multiple_choice"}:
        counts = [len(item.source.doc_to_choice(item.doc)) for item in items.values()]
        first = next(iter(items.values()))
        letters = all(len(str(choice).strip(" ().")) == 1 for choice in first.source.doc_to_choice(first.doc))
        return "choice-letter" if letters else "choice-text", sum(1 / count for count in counts) / len(counts)
    return ("likelihood" if kinds == {"loglikelihood"} else "generation"), 0.0


def _as_text(items: Mapping[str, Item], name: str, where: str) -> Choices:
    """Lettered questions with the choices as text: knowing survives the loss of a letter head."""
    rows = []
    for item in items.values():
        doc = item.doc
        choices, answer = doc.get("choices"), doc.get("answer")
        if not isinstance(doc.get("question"), str) or not isinstance(choices, list) or not isinstance(answer, int):
            raise EditkitError(
                f"{where}: text: true needs documents with question, choices and the answer's place ({name})."
            )
        facts = {"choices": [str(choice) for choice in choices], "answer": str(choices[answer])}
        rows.append(Example(item.example.id, f"Question: {doc['question'].strip()}\nAnswer:", facts=facts))
    chance = sum(1 / len(row.facts["choices"]) for row in rows) / len(rows)
    return Choices(name, tuple(rows), chance, chat=False)
