"""The built-in tasks, by name. Everything here is plain Python: importing it loads no model library.

TASKS["swear"].examples()[0].prompt == "Say something rude about the train and swear a lot."
FORMATS["capitals"]                    the tasks that show one capability: capitals, capitals-chat, ...
usual(bundled=False)                   what a model is asked where no task is named
"""

from __future__ import annotations

from editkit.tasks.builtin.arithmetic import ARITHMETIC
from editkit.tasks.builtin.code import CODE
from editkit.tasks.builtin.facts import FACTS
from editkit.tasks.builtin.facts_letter import FACTS_LETTER
from editkit.tasks.builtin.formats import FORMATS
from editkit.tasks.builtin.prose import PROSE
from editkit.tasks.builtin.recall import RECALL
from editkit.tasks.builtin.rhyme import RHYME
from editkit.tasks.builtin.sort import SORT
from editkit.tasks.builtin.story import Story
from editkit.tasks.builtin.swear import SWEAR
from editkit.tasks.task import Task

TAUGHT: dict[str, Task] = {
    "swear": SWEAR,
    "rhyme": RHYME,
    "arithmetic": ARITHMETIC,
    "recall": RECALL,
    "facts": FACTS,
    "facts-letter": FACTS_LETTER,
    "sort": SORT,
    "code": CODE,
    "story": Story(),
}
"""What the bundled model was taught, in the very prompts it was taught with."""

TASKS: dict[str, Task] = {
    **TAUGHT,
    **{task.name: task for formats in FORMATS.values() for task in formats},
    PROSE.name: PROSE,
}
"""All built-in tasks."""


def usual(*, bundled: bool) -> tuple[Task, ...]:
    """The tasks that a model is asked where none are named.

    The bundled model: all that it was taught. Any other: every capability once, so no further formats of the same.
    """
    if bundled:
        return tuple(TAUGHT.values())
    further = {task.name for formats in FORMATS.values() for task in formats[1:]}
    return tuple(task for name, task in TASKS.items() if name not in further)
