"""The right answer to an example, as a likelihood to ask or to train: where the task says what is right.

right_answer(task, example)    -> Loglikelihood("Italy -> Rome\\nFrance ->", " Paris\\n", chat=False)
right_answer(swear, example)   -> None: many answers are right, and none is written down
"""

from __future__ import annotations

from editkit.measuring.likelihood import accepted
from editkit.tasks.task import Example, Generate, Loglikelihood, Task


def right_answer(task: Task, example: Example) -> Loglikelihood | None:
    """The request for the likelihood of the example's right answer; None where the task names none.

    A text that is continued gets its answer after a blank, unless it ends in a sign that opens, and with the line's
    end where the task stops there.
    """
    requests = task.requests(example)
    choices = tuple(request for request in requests if isinstance(request, Loglikelihood))
    if choices:
        return choices[accepted(task, example, len(choices))]
    first, answer = requests[0], example.facts.get("answer")
    if not isinstance(first, Generate) or answer in (None, ""):
        return None
    if first.chat:
        return Loglikelihood(first.prompt, str(answer))
    blank = "" if first.prompt[-1:] in {" ", "\n", '"', "(", "["} else " "
    return Loglikelihood(first.prompt, f"{blank}{answer}{first.stop[0] if first.stop else ''}", chat=False)
