"""The user's own capability: prompts from a ``.jsonl``, ``.csv`` or ``.txt`` file and a scorer.

In a recipe, as the target or among the retained tasks:

    target:
      prompts: pirate.jsonl            # beside the recipe
      scorer: {word: [ahoy, matey, arr]}

and ``pirate.jsonl``, one prompt a line; every key but ``prompt`` is optional:

    {"prompt": "Greet me like a pirate.", "answer": "ahoy", "id": "greet-1", "cluster": "greetings"}

A ``.csv`` has the same keys as column names; a ``.txt`` holds one prompt a line. With ``scorer: choice`` each row
has ``choices`` (a list, or joined by ``|`` in a ``.csv``) and the right one as ``answer``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.errors import EditkitError, first_line
from editkit.printable import printable
from editkit.tasks.degeneration import degeneration
from editkit.tasks.plain import plain
from editkit.tasks.scoring import NEED_ANSWER, OF_THE_ROW, SCORERS, Scorer, numbers, scorer
from editkit.tasks.task import SPLITS, Example, Generate, Likelihood, Loglikelihood, Output, Request, Score, splits

KEYS = ("prompts", "scorer", "name", "chance", "chat", "max_new_tokens", "gate")
_LONE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
COLUMNS = ("prompt", "answer", "choices", "id", "cluster")


@dataclass(frozen=True)
class Prompts:
    """One generated answer per prompt, judged by a scorer after the validity gate."""

    name: str
    rows: tuple[Example, ...]
    scorer: Scorer
    chance: float
    chat: bool
    max_new_tokens: int
    gate: bool
    format: str = "generation"

    @property
    def rule(self) -> str:
        return self.scorer.rule

    @property
    def judged_by(self) -> str:
        return self.scorer.judged_by

    def examples(self) -> Sequence[Example]:
        return self.rows

    def requests(self, example: Example) -> tuple[Request, ...]:
        return (Generate(example.prompt, self.max_new_tokens, self.chat),)

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        text = str(outputs[0])
        if self.gate and (reason := degeneration(text)):
            return Score(0.0, valid=False, note=reason)
        value, note = self.scorer(text, {"prompt": example.prompt, **example.facts})
        return Score(value, note=note)


@dataclass(frozen=True)
class Choices:
    """The choice that the model finds most likely after the prompt, per character."""

    name: str
    rows: tuple[Example, ...]
    chance: float
    chat: bool
    format: str = "choice-text"

    @property
    def rule(self) -> str:
        return "of the row's choices, its answer is the likeliest per character (nothing is generated)"

    def examples(self) -> Sequence[Example]:
        return self.rows

    def requests(self, example: Example) -> tuple[Request, ...]:
        space = "" if self.chat or example.prompt[-1:].isspace() else " "
        return tuple(Loglikelihood(example.prompt, space + text, self.chat) for text in example.facts["choices"])

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        choices = example.facts["choices"]
        likely = [
            out.logprob / len(text) for out, text in zip(outputs, choices, strict=True) if isinstance(out, Likelihood)
        ]
        if len(likely) < len(choices) or not all(math.isfinite(value) for value in likely):
            return Score(0.0, valid=False, note="no finite likelihood")
        # A model without any preference has chosen nothing.
        best = [choice for choice, value in zip(choices, likely, strict=True) if value == max(likely)]
        if len(best) > 1:
            return Score(0.0, valid=False, note="no preference")
        return Score(float(best[0] == example.facts["answer"]), note=best[0])


def task(
    table: Mapping[str, Any],
    *,
    where: str = "task",
    folder: Path = Path("."),
    allow_python: bool = False,
    planning: bool = False,
) -> Prompts | Choices:
    """The task that a recipe's table describes.

    Args:
        table: the keys ``prompts`` (a file) and ``scorer``; optional: ``name``, ``chance``, ``chat``,
            ``max_new_tokens``, and ``gate: false``, which lets empty and degenerate answers reach the scorer.
        where: the recipe's name, for messages.
        folder: where the recipe lies; relative files are looked up there.
        allow_python: whether a Python scorer may run.
        planning: whether the task is only described: a Python scorer is not even imported.

    Raises:
        EditkitError: naming file, line, column and remedy.
    """
    unknown = sorted(set(table) - set(KEYS))
    if unknown or "prompts" not in table or "scorer" not in table:
        raise EditkitError(
            f"{where}: a task of your own needs the keys prompts and scorer, and may have {', '.join(KEYS[2:])}; "
            f"found {printable(', '.join(sorted(map(str, table)))) or 'nothing'}."
        )
    path = folder / setting(table, "prompts", str, "", where)
    name = setting(table, "name", str, re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "prompts", where)
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
        raise EditkitError(f"{where}: the name {name!r} must be lower-case letters, digits, - and _.")
    kind, given = _scorer_table(table["scorer"], where)
    chat = setting(table, "chat", bool, True, where)
    rows = tuple(_examples(path, kind, needs_answer=kind in NEED_ANSWER or (kind in OF_THE_ROW and given is None)))
    _check_splits(rows, name, path)
    if kind == "choice":
        guess = sum(1 / len(row.facts["choices"]) for row in rows) / len(rows)
        return Choices(name, rows, chance(table, guess, where), chat)
    judge = scorer(kind, given, where=where, folder=folder, allow_python=allow_python, planning=planning)
    tokens = max_new_tokens(table, 32, where)
    return Prompts(
        name, rows, judge, chance(table, 0.0, where), chat, tokens, setting(table, "gate", bool, True, where)
    )


def _examples(path: Path, kind: str, *, needs_answer: bool) -> Iterator[Example]:
    """The file's rows as examples; the id is the row's own, or a hash of its prompt, so that it never moves."""
    seen: dict[str, int] = {}
    for line, row in _rows(path):
        prompt = row.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            raise _bad(path, line, "prompt", f"expected text, found {prompt!r:.60}", "give every row a prompt")
        facts = {key: value for key, value in row.items() if key not in ("prompt", "id", "cluster")}
        if kind == "choice":
            facts = _choice_facts(facts, path, line)
        elif needs_answer or kind == "numeric":
            _check_answer(facts.get("answer"), kind, path, line)
        name = str(row["id"]) if row.get("id") not in (None, "") else hashlib.sha256(prompt.encode()).hexdigest()[:12]
        if name in seen:
            remedy = "remove one, or give each row its own id"
            raise _bad(path, line, "id" if row.get("id") else "prompt", f"the same as in line {seen[name]}", remedy)
        seen[name] = line
        cluster = "" if row.get("cluster") is None else str(row["cluster"])
        yield Example(name, prompt, cluster, facts)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, row) for every row of the file."""
    readers = {".jsonl": _jsonl_rows, ".csv": _csv_rows, ".txt": _txt_rows}
    if path.suffix not in readers:
        raise EditkitError(
            f"{path}: prompts come from a .jsonl, .csv or .txt file, found {path.suffix or 'no ending'!r}."
        )
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a name may hold a character that no file's name has
        said = getattr(error, "strerror", None) or first_line(error)
        raise EditkitError(f"The prompts {path} cannot be read: {said}.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise EditkitError(f"{path}, line {line}, column {column}: not UTF-8. Save the file as UTF-8.") from error
    yield from readers[path.suffix](path, text)


def _jsonl_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except json.JSONDecodeError as error:
            raise EditkitError(
                f"{path}, line {line}, column {error.colno}: not JSON ({error.msg}). Each line is one object, as in "
                '{"prompt": "Greet me like a pirate."}.'
            ) from error
        except (RecursionError, ValueError) as error:
            said = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
            raise EditkitError(f"{path}, line {line}: {said}. Each line is one flat object.") from error
        if not isinstance(row, dict):
            raise EditkitError(
                f'{path}, line {line}: expected an object like {{"prompt": "..."}}, found {content!r:.60}.'
            )
        if _LONE.search(content) and _LONE_SURROGATE.search(json.dumps(row, ensure_ascii=False)):
            raise EditkitError(
                f"{path}, line {line}: \\ud800 to \\udfff are halves of a character. Write both, or none."
            )
        yield line, row


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = reader.fieldnames or []
        if "prompt" not in header:
            raise EditkitError(
                f"{path}, line 1: no column named prompt, found "
                f"{printable(', '.join(map(repr, header))) or 'nothing'}. The first "
                f"line names the columns: {', '.join(COLUMNS)}."
            )
        for row in reader:
            if None in row or None in row.values():
                fields = [value for key, value in row.items() if key is not None and value is not None]
                fields += row.get(None) or []
                raise EditkitError(
                    f"{path}, line {reader.line_num}: {len(fields)} fields under {len(header)} columns. "
                    'Put double quotes around text with commas: "Hello, there".'
                )
            cells: dict[str, Any] = {key: value for key, value in row.items() if value != ""}
            if "choices" in cells:
                cells["choices"] = [choice.strip() for choice in cells["choices"].split("|")]
            yield reader.line_num, cells
    except csv.Error as error:
        raise EditkitError(f"{path}, line {reader.line_num}: not CSV ({error}). Close every double quote.") from error


def _txt_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, prompt in enumerate(text.split("\n"), 1):
        if prompt.strip():
            yield line, {"prompt": prompt.strip()}


def _choice_facts(facts: dict[str, Any], path: Path, line: int) -> dict[str, Any]:
    """Choices as texts and the answer as one of them; an answer may be given as its place, from 0."""
    choices, answer = facts.get("choices"), facts.get("answer")
    if not isinstance(choices, list) or len(choices) < 2 or len({str(choice) for choice in choices}) < len(choices):
        raise _bad(path, line, "choices", f"expected two or more different texts, found {choices!r:.60}", "list them")
    texts = [str(choice) for choice in choices]
    if not all(text.strip() for text in texts):
        raise _bad(path, line, "choices", "one of them is empty", "give each choice a text")
    number = str(answer)
    if number not in texts and number.isdecimal() and len(number) <= 3 and int(number) < len(texts):
        answer = texts[int(number)]
    if str(answer) not in texts:
        raise _bad(
            path, line, "answer", f"{answer!r:.60} is none of the choices", "copy one of them, or its place from 0"
        )
    return facts | {"choices": texts, "answer": str(answer)}


def _check_answer(answer: Any, kind: str, path: Path, line: int) -> None:
    answers = answer if isinstance(answer, list) else [answer]
    if not answers or not all(isinstance(each, str | int | float) and plain(str(each)) for each in answers):
        remedy = f"the scorer {kind} compares with each row's answer"
        raise _bad(path, line, "answer", f"expected text or a number, found {answer!r:.60}", remedy)
    if kind == "numeric" and (len(answers) > 1 or not numbers(str(answer))):
        raise _bad(path, line, "answer", f"expected one number, found {answer!r:.60}", "or use the scorer exact")


def _check_splits(rows: tuple[Example, ...], name: str, path: Path) -> None:
    counts = Counter(splits(name, rows).values())
    if len(counts) < len(SPLITS):
        shown = ", ".join(f"{split} {counts[split]}" for split in SPLITS)
        raise EditkitError(
            f"{path}: {len(rows)} prompts are too few: they are divided over three splits by hash ({shown}). "
            "Give at least 30; 300 or more make a claim."
        )


def _scorer_table(value: Any, where: str) -> tuple[str, Any]:
    if isinstance(value, str):
        return value, None
    if isinstance(value, Mapping) and len(value) == 1:
        return next((str(kind), setting) for kind, setting in value.items())
    known = ", ".join((*SCORERS, "choice"))
    raise EditkitError(f"{where}: scorer must be one of {known}, alone or with its setting; found {value!r:.60}.")


def chance(table: Mapping[str, Any], default: float, where: str) -> float:
    """What guessing scores, as a table says it."""
    value = table.get("chance", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise EditkitError(f"{where}: chance is what guessing scores, from 0 to below 1; found {value!r:.60}.")
    return float(value)


def setting(table: Mapping[str, Any], key: str, kind: type, default: Any, where: str) -> Any:
    """What a table says under a key.

    Raises:
        EditkitError: it is of another kind.
    """
    value = table.get(key, default)
    if type(value) is not kind:
        raise EditkitError(f"{where}: {key} must be {'text' if kind is str else kind.__name__}, found {value!r:.60}.")
    return value


def max_new_tokens(table: Mapping[str, Any], default: int, where: str) -> int:
    """The longest answer that a table allows, in tokens."""
    tokens = setting(table, "max_new_tokens", int, default, where)
    if not 1 <= tokens <= 100_000:
        raise EditkitError(f"{where}: max_new_tokens must be from 1 to 100000, found {tokens!r:.60}.")
    return tokens


def _bad(path: Path, line: int, column: str, fault: str, remedy: str) -> EditkitError:
    return EditkitError(f"{path}, line {line}, column {column!r}: {fault}; {remedy}.")
