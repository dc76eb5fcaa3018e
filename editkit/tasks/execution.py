"""HumanEval and MBPP: the model writes Python, a sandbox runs it against the tests.

    target: {code: humaneval, rows: HumanEval.jsonl}     # rows: none = the data set from the Hugging Face Hub

One row of HumanEval (openai/openai_humaneval, MIT):

    {"task_id": "HumanEval/0", "prompt": "from typing import List\\n\\n\\ndef has_close_elements(...):\\n  ...",
     "entry_point": "has_close_elements", "test": "def check(candidate):\\n    assert candidate([1.0, 2.0], 0.3) ..."}

and of MBPP (google-research-datasets/mbpp, CC-BY-4.0); ``prompt`` and ``test`` are read as ``text`` and ``test_list``:

    {"task_id": 11, "text": "Write a python function to remove first and last occurrence of a given character ...",
     "test_list": ["assert remove_Occ(\\"hello\\",\\"l\\") == \\"heo\\"", ...]}

The score is 1 if every test passes with the one greedy answer (pass@1). Program and tests run apart (``sandbox.py``).
The wording of the prompts is our own.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editkit.errors import EditkitError
from editkit.tasks import sandbox
from editkit.tasks.builtin.code import code_of
from editkit.tasks.degeneration import degeneration
from editkit.tasks.jsonl import max_new_tokens, setting
from editkit.tasks.task import Example, Generate, Output, Request, Score

KEYS = ("code", "rows", "name", "chat", "max_new_tokens")
STOPS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n```", '\n"""', "\nassert ")
"""Where a base model that completes a function has begun something else."""

MakeExample = Callable[[Mapping[str, Any]], Example]
MakeProgram = Callable[[Example, str], tuple[str, str]]
"""Example and answer -> program and tests."""


@dataclass(frozen=True)
class Execution:
    """One program per example. Building it needs a working sandbox and the user's leave (``task``)."""

    name: str
    rows: tuple[Example, ...]
    program: MakeProgram = field(repr=False)
    chat: bool
    max_new_tokens: int
    chance: float = 0.0
    format: str = "generation"
    judge: str = "outside"
    """Where the verdict is made: measurements are kept under it, and older ones came from the program's own process."""

    @property
    def rule(self) -> str:
        return "a program that passes the tests of its row, run in a sandbox"

    def examples(self) -> Sequence[Example]:
        return self.rows

    def requests(self, example: Example) -> tuple[Request, ...]:
        prompt = example.prompt if self.chat else example.facts["start"]
        return (Generate(prompt, self.max_new_tokens, self.chat, () if self.chat else STOPS),)

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        text = str(outputs[0])
        if reason := degeneration(text):
            return Score(0.0, valid=False, note=reason)
        outcome = sandbox.run(*self.program(example, text))
        return Score(float(outcome.passed), note=outcome.reason)


def task(
    table: Mapping[str, Any], *, where: str = "task", folder: Path = Path("."), allow_code_execution: bool = False
) -> Execution:
    """HumanEval or MBPP from a local ``.jsonl`` or from the Hub.

    Raises:
        EditkitError: without ``allow_code_execution``, without a sandbox, or for rows that are not of that data set.
    """
    kind = table.get("code")
    unknown = sorted(set(table) - set(KEYS))
    if unknown or not isinstance(kind, str) or kind not in SETS:
        raise EditkitError(
            f"{where}: a code task is written {{code: humaneval}} or {{code: mbpp}}, with {', '.join(KEYS[1:])} as you "
            f"like; found {dict(table)!r:.80}."
        )
    if not allow_code_execution:
        raise EditkitError(
            f"{where}: {kind} runs code that the model wrote. It runs in a sandbox, and only if you say so: "
            "pass --allow-code-execution (allow_code_execution=True from Python)."
        )
    sandbox.require()
    source, example, program = SETS[kind]
    file, name, chat = (
        setting(table, key, type(value), value, where) for key, value in (("rows", ""), ("name", kind), ("chat", True))
    )
    tokens = max_new_tokens(table, 512, where)
    rows = _local(folder / file) if file else _hub(*source)
    examples = tuple(_example(example, row, line, file or source[0]) for line, row in enumerate(rows, 1))
    if not examples:
        raise EditkitError(f"{where}: {file} holds no rows.")
    return Execution(name, examples, program, chat, tokens)


def humaneval_program(example: Example, answer: str) -> tuple[str, str]:
    """The prompt and the answer, as its completion or as the whole function again; and the tests.

    The tests have the prompt too, for the helpers in it; only the function that is asked for is the program's.
    """
    code, facts = code_of(answer), example.facts
    start, asked = facts["start"], facts["entry_point"]
    # The prompt is itself a function without a body but its docstring: imports and helpers above it stay defined.
    joint = "\n\n" if re.search(rf"^def {re.escape(asked)}\b", code, re.MULTILINE) else ""
    tests = [start, f"{asked} = __program__.{asked}", facts["test"], f"check({asked})\n"]
    return f"{start}{joint}{code}\n", "\n".join(tests)


def mbpp_program(example: Example, answer: str) -> tuple[str, str]:
    """The set-up and the answer; the set-up and the asserts."""
    setup, facts = example.facts["setup"], example.facts
    # A few tests ask for a function that has a built-in's name (`sum`): the reference solution tells.
    own = [f"{name} = __program__.{name}" for name in facts["names"] if hasattr(builtins, name)]
    return f"{setup}\n{code_of(answer)}\n", "\n".join([setup, *own, *facts["tests"]]) + "\n"


def _humaneval(row: Mapping[str, Any]) -> Example:
    start = row["prompt"]
    prompt = (
        f"Complete this Python function. Answer with the whole function in one code block.\n\n```python\n{start}```"
    )
    facts = {"start": start, "test": row["test"], "entry_point": row["entry_point"]}
    return Example(row["task_id"], prompt, facts=facts)


def _mbpp(row: Mapping[str, Any]) -> Example:
    text, tests = row.get("text") or row["prompt"], list(row.get("test_list") or row["test"])
    shown = "\n".join(tests)
    prompt = f"{text}\nThe function must pass these tests:\n\n{shown}\n\nAnswer with one block of Python code."
    # A base model continues a file whose docstring is the question.
    start = f'"""\n{text}\n\n{shown}\n"""\n'
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or ())
    names = re.findall(r"^def (\w+)", row.get("code") or "", re.MULTILINE)
    facts = {"start": start, "tests": tests, "setup": setup, "names": names}
    return Example(f"mbpp/{row['task_id']}", prompt, facts=facts)


SETS: dict[str, tuple[tuple[str, str | None], MakeExample, MakeProgram]] = {
    "humaneval": (("openai/openai_humaneval", None), _humaneval, humaneval_program),
    "mbpp": (("google-research-datasets/mbpp", "full"), _mbpp, mbpp_program),
}


def _example(make: MakeExample, row: Any, line: int, where: str) -> Example:
    try:
        example = make(row)
        values = [each for value in example.facts.values() for each in (value if isinstance(value, list) else [value])]
        if not all(isinstance(value, str) for value in (example.id, example.prompt, *values)):
            raise TypeError("its parts are texts and lists of texts")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EditkitError(
            f"{where}, line {line}: not a row of this data set, {error!r:.200}; see editkit/tasks/execution.py."
        ) from error
    return example


def _local(path: Path) -> list[Any]:
    try:
        lines = path.read_text("utf-8").split("\n")
        return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise EditkitError(f"The rows {path} cannot be read: {error}. Expected one JSON object a line.") from error


def _hub(name: str, config: str | None) -> list[Any]:
    from datasets import load_dataset

    try:
        return list(load_dataset(name, config, split="test"))
    except (OSError, ValueError) as error:
        raise EditkitError(
            f"The data set {name} cannot be loaded: {' '.join(str(error).split())[:200]}. Give a local file as `rows`."
        ) from error
