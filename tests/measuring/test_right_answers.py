"""A right answer is asked in the words and at the place where the model would give it.

If one fails: models are trained on, or scored by, an answer that no one would give.
"""

from __future__ import annotations

from editkit.measuring.right_answers import right_answer
from editkit.tasks.builtin import FORMATS, TASKS
from editkit.tasks.jsonl import task
from editkit.tasks.task import Example, Loglikelihood


def test_the_answer_stands_where_the_prompt_ends() -> None:
    few, chat, *_ = FORMATS["capitals"]
    [line] = [right_answer(few, example) for example in few.examples() if example.id == "france-0"]
    assert line == Loglikelihood(few.examples()[line_of(few)].prompt, " Paris\n", chat=False)
    asked = right_answer(chat, chat.examples()[0])
    assert asked and asked.chat and asked.continuation in chat.examples()[0].facts["answers"]
    quoted = TASKS["antonyms-sentence"]
    first = right_answer(quoted, quoted.examples()[0])
    assert first and first.prompt.endswith('"') and not first.continuation.startswith(" ")


def line_of(few) -> int:
    return next(number for number, example in enumerate(few.examples()) if example.id == "france-0")


def test_a_choice_has_the_one_that_the_task_takes_as_right(tmp_path) -> None:
    rows = ["prompt,choices,answer", *(f"Which is {n}?,one|two|three,two" for n in range(20))]
    (tmp_path / "pick.csv").write_text("\n".join(rows))
    choices = task({"prompts": "pick.csv", "scorer": "choice"}, folder=tmp_path)
    found = right_answer(choices, choices.examples()[0])
    assert found and found.continuation.strip() == "two"


def test_where_many_answers_are_right_there_is_none() -> None:
    assert right_answer(TASKS["rhyme"], TASKS["rhyme"].examples()[0]) is None
    assert right_answer(TASKS["swear"], Example("x", "Swear.")) is None
