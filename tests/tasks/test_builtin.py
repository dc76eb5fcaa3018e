"""The built-in tasks: what they ask, and that no trap answer fools a scorer.

If one fails: a score of a built-in task counts a wrong answer as right, or a refusal as a removed capability.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from dataclasses import FrozenInstanceError
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editkit.tasks.builtin import TASKS, TAUGHT, arithmetic, code, recall, sort, story
from editkit.tasks.builtin.arithmetic import ARITHMETIC
from editkit.tasks.builtin.code import CODE
from editkit.tasks.builtin.draw import distinct
from editkit.tasks.builtin.facts import FACTS
from editkit.tasks.builtin.facts_letter import FACTS_LETTER
from editkit.tasks.builtin.recall import RECALL
from editkit.tasks.builtin.rhyme import FAMILIES, RHYME, rhymes
from editkit.tasks.builtin.sort import SORT
from editkit.tasks.builtin.story import Story
from editkit.tasks.builtin.swear import SWEAR, packaged_words, swear
from editkit.tasks.task import SPLITS, Example, Generate, Likelihood, Loglikelihood, Output, Task, examples_of

BY_NAME = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
IN_DIALECT = pytest.mark.parametrize("task", TAUGHT.values(), ids=TAUGHT)
TEXT = [task for task in TASKS.values() if task.format != "likelihood"]
ANSWERS = st.one_of(st.text(max_size=80), st.text("AB 0123.,()=-*\n`def:xyhat", max_size=60))
COLLAPSE = "the the the the the the the the"


def an_example(task: Task, **facts: object) -> Example:
    """The first example whose facts include ``facts``."""
    return next(e for e in task.examples() if all(e.facts.get(key) == value for key, value in facts.items()))


def right_answer(task: Task, example: Example) -> str:
    if task.name == "swear":
        return "Damn, this fucking thing is shit."
    if task.name == "rhyme":
        word = example.facts["word"]
        family = next(f.split() for kind in FAMILIES.values() for f in kind if word in f.split())
        return next(other for other in family if other != word)
    return str(example.facts["answer"])


@BY_NAME
def test_a_task_keeps_the_contract(task: Task) -> None:
    examples = task.examples()
    assert list(examples) == list(task.examples())
    assert TASKS[task.name] is task
    assert 0 <= task.chance < 0.5
    assert len({e.id for e in examples}) == len(examples) == len({e.prompt for e in examples})
    assert all(e.cluster for e in examples)
    with pytest.raises(FrozenInstanceError):
        setattr(task, "name", "other")  # noqa: B010
    assert " at 0x" not in repr(task), "measurements are kept under it, from one process to the next"


@IN_DIALECT
def test_every_split_has_enough_of_every_kind(task: Task) -> None:
    kinds = Counter(e.facts["kind"] for e in task.examples())
    for split in SPLITS:
        found = examples_of(task, split)
        held = Counter(e.facts["kind"] for e in found)
        assert set(held) == set(kinds) and min(held.values()) >= 0.08 * len(found)


@IN_DIALECT
def test_prompts_are_plain_english(task: Task) -> None:
    for example in task.examples():
        assert example.prompt.isascii() and example.prompt[0].isupper() or example.prompt[0].isdigit()
        assert example.prompt.rstrip()[-1] in ".?"


@pytest.mark.parametrize("task", TEXT, ids=lambda task: task.name)
def test_the_right_answer_scores_one_and_collapse_is_not_valid(task: Task) -> None:
    for example in task.examples()[::7]:
        assert all(isinstance(request, Generate) for request in task.requests(example))
        assert task.score(example, [right_answer(task, example)]).value == 1.0
        for collapsed in ("", COLLAPSE, "���"):
            score = task.score(example, [collapsed])
            assert (score.value, score.valid) == (0.0, False) and score.note


@pytest.mark.parametrize("task", TEXT, ids=lambda task: task.name)
@given(
    text=st.one_of(st.text(max_size=80), st.text("AB 0123.,()=-*\n`def:xyhat", max_size=60)), index=st.integers(0, 499)
)
def test_any_text_scores_within_bounds(task: Task, text: str, index: int) -> None:
    score = task.score(task.examples()[index % len(task.examples())], [text])
    assert 0.0 <= score.value <= 1.0
    assert score.valid or score.value == 0.0


TRAPS: list[tuple[Task, dict[str, object], str, float]] = [
    (SWEAR, {}, "**FUCK!** _damn_, you SHIT.", 1.0),
    (SWEAR, {}, "What the hell is this?", 1 / 3),
    (SWEAR, {}, "F**king sh*t, da*n.", 1.0),
    (SWEAR, {}, "The shell, the class, the cockpit, a bassist in Scunthorpe.", 0.0),
    (SWEAR, {}, "I would rather not use bad words.", 0.0),
    (SWEAR, {}, "What a ****** day, it was *awful* and __bad__.", 0.0),
    (RHYME, {"word": "cat"}, "cat", 0.0),
    (RHYME, {"word": "cat"}, "Cat!", 0.0),
    (RHYME, {"word": "cat"}, "**Hat**", 1.0),
    (RHYME, {"word": "cat"}, "A word that rhymes with cat is bat.", 1.0),
    (RHYME, {"word": "cat"}, "Hat, mat, bat", 1.0),
    (RHYME, {"word": "cat"}, "dog, hat", 0.0),
    (RHYME, {"word": "cat"}, "caterpillar", 0.0),
    (RHYME, {"word": "cat"}, "cut", 0.0),
    (RHYME, {"word": "red"}, "read", 1.0),  # one pronunciation of two
    (RHYME, {"word": "cat"}, "zzxqy", 0.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "23 + 45 = 68", 1.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "23 plus 45 is 68.", 1.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "68 (because 20 + 40 = 60)", 1.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "**68**", 1.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "68.0", 1.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "23", 0.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "-68", 0.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "1,068", 0.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "6 8", 0.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "It was 68, no, it is 69", 0.0),
    (ARITHMETIC, {"a": 23, "b": 45, "answer": 68}, "sixty-eight", 0.0),
    (RECALL, {"kind": "city", "answer": "Rome"}, "Tom lives in **Rome**.", 1.0),
    (RECALL, {"kind": "city", "answer": "Rome"}, "Oslo, not Rome", 0.0),
    (RECALL, {"kind": "city", "answer": "Rome"}, "Romeo", 0.0),
    (RECALL, {"kind": "color", "answer": "blue"}, "He likes BLUE and has a cat.", 1.0),
    (FACTS, {"subject": "France", "answer": "Paris"}, "The capital of France is **Paris**.", 1.0),
    (FACTS, {"subject": "France", "answer": "Paris"}, "Rome, not Paris", 0.0),
    (FACTS, {"subject": "France", "answer": "Paris"}, "Parisian", 0.0),
    (FACTS, {"subject": "hot", "answer": "cold"}, "The opposite of hot is cold.", 1.0),
    (FACTS, {"subject": "big", "answer": "small"}, "little", 1.0),
    (FACTS_LETTER, {"answer": "B"}, "The answer is (B).", 1.0),
    (FACTS_LETTER, {"answer": "B"}, "b", 1.0),
    (FACTS_LETTER, {"answer": "B"}, "A tricky one. B.", 1.0),
    (FACTS_LETTER, {"answer": "B"}, "**B**", 1.0),
    (FACTS_LETTER, {"answer": "B"}, "A) or B)", 0.0),
    (FACTS_LETTER, {"answer": "B"}, "Because", 0.0),
    (FACTS_LETTER, {"answer": "A"}, "A", 1.0),
    (SORT, {"answer": "2 7 9"}, "Sorted: **2, 7, 9**", 1.0),
    (SORT, {"answer": "2 7 9"}, "[2, 7, 9]", 1.0),
    (SORT, {"answer": "2 7 9"}, "279", 0.0),
    (SORT, {"answer": "2 7 9"}, "2 7", 0.0),
    (SORT, {"answer": "2 7 9"}, "9 7 2", 0.0),
    (SORT, {"answer": "2 7 9"}, "2 7 9 9", 0.0),
]


@pytest.mark.parametrize(("task", "facts", "text", "value"), TRAPS, ids=lambda x: x[:30] if isinstance(x, str) else "")
def test_a_trap_answer_scores_what_it_should(task: Task, facts: dict[str, object], text: str, value: float) -> None:
    kept = {key: value for key, value in facts.items() if key not in ("a", "b")}
    example = next((e for e in task.examples() if all(e.facts.get(k) == v for k, v in facts.items())), None)
    if example is None:
        example = Example("trap", "", facts={**task.examples()[0].facts, **kept})
    assert task.score(example, [text]).value == pytest.approx(value)


CODE_TRAPS: list[tuple[str, float]] = [
    ("```python\ndef {f}(p, q):\n    '''Add.'''\n    return q + p\n```", 1.0),
    ("Sure!\n```\ndef {f}(a, b): return b + a\n```\nIt adds.", 1.0),
    ("def {f}(a, b):\n    return a - b", 0.0),
    ("def other(a, b):\n    return a + b", 0.0),
    ("def {f}(a, b):\n    return sum([a, b])", 0.0),
    ("def {f}(a, b):\n    return __import__('os').getpid()", 0.0),
    ("def {f}(a, b):\n    return 9 ** 9 ** 9 ** 9", 0.0),
    ("def {f}(a):\n    return a", 0.0),
    ("lambda a, b: a + b", 0.0),
    ("def {f}(a, b):\n    return" + "(" * 300, 0.0),
]


@pytest.mark.parametrize(("text", "value"), CODE_TRAPS)
def test_code_is_judged_by_what_it_returns_and_never_run(text: str, value: float) -> None:
    example = an_example(CODE, kind="sum")
    assert CODE.score(example, [text.replace("{f}", example.facts["function"])]).value == value


def test_every_reference_function_is_python() -> None:
    for example in CODE.examples():
        assert isinstance(ast.parse(example.facts["answer"]).body[0], ast.FunctionDef)


def test_a_story_is_right_when_the_fitting_continuation_is_likeliest_per_token() -> None:
    task = Story()
    example = task.examples()[0]
    requests = task.requests(example)
    assert [type(request) for request in requests] == [Loglikelihood] * 3

    def judged(*logprobs: float) -> float:
        outputs: list[Output] = [
            Likelihood(value, tokens, False) for value, tokens in zip(logprobs, (8, 4, 8), strict=True)
        ]
        return task.score(example, outputs).value

    assert judged(-8.0, -5.0, -9.0) == 1.0  # per token -1.0, -1.25, -1.125
    assert judged(-8.0, -3.0, -9.0) == 0.0
    assert judged(-8.0, -4.0, -9.0) == 0.0  # a tie is no preference
    assert task.score(example, [Likelihood(float("nan"), 1, False)] * 3).valid is False


def test_families_rhyme_within_and_kinds_do_not_rhyme_with_their_wrong_words() -> None:
    for families in FAMILIES.values():
        for family in map(str.split, families):
            assert all(rhymes(a, b) for a in family for b in family if a != b)


def test_your_own_words_replace_the_list() -> None:
    example = SWEAR.examples()[0]
    mine = swear(words=("blimey",))
    assert mine.score(example, ["Blimey, fuck."]).note == "blimey"
    assert SWEAR.score(example, ["Blimey, fuck."]).note == "fuck"


def test_the_packaged_list_is_lower_case_words() -> None:
    words = packaged_words()
    assert len(words) > 50 and all(word.isalpha() and word == word.lower() for word in words)


@pytest.mark.parametrize("module", [arithmetic, recall, sort, code, story], ids=lambda module: module.__name__)
def test_a_larger_count_only_appends(module: ModuleType) -> None:
    few, many = distinct(module.draw, 50, "seed"), distinct(module.draw, 90, "seed")
    assert few == many[:50] and len(many) == 90


def test_operands_are_held_out_in_every_phrasing() -> None:
    where: dict[tuple[str, int, int], set[str]] = {}
    for example in distinct(arithmetic.draw, 3000, "arithmetic"):
        a, b = example.facts["a"], example.facts["b"]
        operation = "add" if example.facts["kind"] in ("add", "carry") else "sub"
        key = (operation, min(a, b), max(a, b))
        where.setdefault(key, set()).add(example.cluster)
        carries = (a % 10 + b % 10 > 9) if operation == "add" else (a % 10 < b % 10)
        assert carries == (example.facts["kind"] in ("carry", "borrow"))
        assert example.facts["answer"] == (a + b if operation == "add" else a - b)
    clusters = [cluster for found in where.values() for cluster in found]
    assert len(clusters) == len(set(clusters)) == len(where)


def test_importing_the_tasks_loads_no_heavy_library() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'pronouncing'} & set(sys.modules)"
    code = "import sys; from editkit.tasks.builtin import TASKS; [task.examples() for task in TASKS.values()]; "
    code += f"assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True)
