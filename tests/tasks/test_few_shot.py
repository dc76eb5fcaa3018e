"""Capabilities of real models: many clusters, shots that give nothing away, the same facts in every format.

If one fails: a real model's score is inflated by its own examples, or its interval is too narrow.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from importlib.resources import files

import pytest

from editkit.tasks.builtin import FORMATS, TASKS, TAUGHT, usual
from editkit.tasks.builtin.few_shot import SHOTS, plain
from editkit.tasks.builtin.prose import PROSE
from editkit.tasks.task import Example, Generate, Loglikelihood, Task

EVERY = [task for formats in FORMATS.values() for task in formats]
BY_NAME = pytest.mark.parametrize("task", EVERY, ids=lambda task: task.name)
FEW_SHOT = [task for task in EVERY if task.examples()[0].prompt.count("\n") == SHOTS]


def an_example(task: str, start: str) -> Example:
    return next(example for example in TASKS[task].examples() if example.id.startswith(start))


@BY_NAME
def test_there_are_hundreds_of_examples_in_many_clusters(task: Task) -> None:
    assert len(task.examples()) >= 400 and len({e.cluster for e in task.examples()}) >= 60


@pytest.mark.parametrize("capability", FORMATS)
def test_formats_share_their_clusters_and_the_few_shot_one_comes_first(capability: str) -> None:
    first, *others = FORMATS[capability]
    assert first.name == capability and first in FEW_SHOT
    assert len(others) >= 2
    for task in others:
        assert task.name.startswith(f"{capability}-")
        assert {e.cluster for e in task.examples()} == {e.cluster for e in first.examples()}


@pytest.mark.parametrize("task", FEW_SHOT, ids=lambda task: task.name)
def test_shots_are_different_and_come_from_other_clusters(task: Task) -> None:
    cluster_of = {e.prompt.split("\n")[-1]: e.cluster for e in task.examples()}
    for example in task.examples():
        shots = example.prompt.split("\n")[:-1]
        asked = re.findall(r"^.*(?:->|=|\||,)", "\n".join(shots), re.MULTILINE)
        assert len(set(asked)) == SHOTS
        assert example.cluster not in {cluster_of[question] for question in asked}


@pytest.mark.parametrize("task", [task for task in FEW_SHOT if task.name[0] not in "asn"], ids=lambda task: task.name)
def test_words_that_answer_stand_in_no_shot(task: Task) -> None:
    for example in task.examples():
        shown = [line.partition(" -> ")[2] for line in example.prompt.split("\n")]
        assert not set(example.facts["answers"]) & set(shown)


@BY_NAME
def test_raw_text_is_continued_to_the_end_of_its_line_and_questions_are_chat(task: Task) -> None:
    [request] = task.requests(task.examples()[0])
    assert isinstance(request, Generate) and request.stop == ("\n",)
    assert request.chat == (task not in FEW_SHOT and not task.name.endswith("-sentence"))


TRAPS = [
    ("capitals", "france", " Paris", 1.0),
    ("capitals", "france", " paris.\nGermany -> Berlin", 1.0),
    ("capitals", "france", " Parisian", 0.0),
    ("capitals", "france", " Rome\nParis", 0.0),
    ("capitals", "france", " Paris or Rome", 0.0),
    ("capitals", "india", " Delhi", 1.0),
    ("capitals-chat", "france", "The capital of France is **Paris**.", 1.0),
    ("capitals-chat", "france", "It is Parisian.", 0.0),
    ("capitals-chat", "france", "It is Lyon. Paris is another city.", 0.0),
    ("capitals-reversed", "seoul", "Seoul is the capital of South Korea.", 1.0),
    ("capitals-reversed", "seoul", "Korea", 0.0),
    ("capitals-sentence", "brazil", " Brasília, and it", 1.0),
    ("addition", "3-+-4", " 7", 1.0),
    ("addition", "3-+-4", " 7\n3 + 5 = 8", 1.0),
    ("addition", "3-+-4", " 17", 0.0),
    ("addition", "3-+-4", " 7 + 1 = 8", 0.0),
    ("addition-chat", "3-+-4", "3 plus 4 is 7.", 1.0),
    ("addition-chat", "3-+-4", "3 + 4 = 8", 0.0),
    ("addition-words", "3-+-4", "Tom has 3 + 4 = 7 apples now.", 1.0),
    ("subtraction-chat", "8---4", "8 - 4 = 5", 0.0),
    ("antonyms", "big", " little", 1.0),
    ("antonyms-chat", "big", 'The opposite of "big" is "small".', 1.0),
    ("translation", "school", " ecole", 1.0),
    ("translation", "egg", " oeuf", 1.0),
    ("translation", "egg", " \u0153uf", 1.0),
    ("subtraction-words", "8---4", "Tom has 8 - 4 = 4 apples left.", 1.0),
    ("subtraction-words", "8---4", "8 apples", 0.0),
    ("copying", "cat", "", 0.0),
    ("copying-chat", "house-bell-doctor", "House, bell, doctor.", 1.0),
    ("copying-chat", "house-bell-doctor", "The house has a bell for the doctor.", 0.0),
    ("copying-sentence", "house-bell-doctor", 'house bell doctor".', 1.0),
    ("next-number-chat", "2,-4,-6", "The next number is 8.", 1.0),
    ("next-number-sentence", "2,-4,-6", " 8, 10, 12", 1.0),
    ("next-number-sentence", "2,-4,-6", " 80", 0.0),
]


@pytest.mark.parametrize(("name", "start", "text", "value"), TRAPS)
def test_a_trap_answer_scores_what_it_should(name: str, start: str, text: str, value: float) -> None:
    assert TASKS[name].score(an_example(name, start), [text]).value == value


def test_what_surrounds_an_answer_does_not_count() -> None:
    assert plain('  "Brasília." ') == "brasilia" and plain("New  Delhi!") == "new delhi" and plain("--") == ""


def test_examples_are_the_same_in_every_process() -> None:
    code = "import hashlib; from editkit.tasks.builtin import TASKS; "
    code += "print(hashlib.sha256(repr([task.examples() for task in TASKS.values()]).encode()).hexdigest())"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    here = hashlib.sha256(repr([task.examples() for task in TASKS.values()]).encode()).hexdigest()
    assert other.stdout.strip() == here


def test_the_bundled_model_is_asked_what_it_was_taught_and_any_other_every_capability_once() -> None:
    assert usual(bundled=True) == tuple(TAUGHT.values())
    other = [task.name for task in usual(bundled=False)]
    assert {*TAUGHT, *FORMATS, "prose"} == set(other) and "capitals-chat" not in other


def test_prose_goes_on_with_its_own_words() -> None:
    texts = [" ".join(text.split()) for text in _prose().split("\n\n")]
    assert len(texts) == len({example.cluster for example in PROSE.examples()})
    for example in PROSE.examples():
        own, mixed, other = example.facts["choices"]
        assert any(example.prompt + own in text for text in texts)
        assert 14 <= len(example.prompt.split()) <= 32
        assert sorted(mixed.split()) == sorted(own.split()) and mixed != own
        assert not any(example.prompt + other in text for text in texts)
        requests = PROSE.requests(example)
        assert all(isinstance(request, Loglikelihood) and not request.chat for request in requests)


def _prose() -> str:
    return files("editkit.tasks.builtin").joinpath("prose.txt").read_text("utf-8").strip()
