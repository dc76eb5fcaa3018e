"""The built-in tasks, by name. Everything here is plain Python: importing it loads no model library.

TASKS["swear"].examples()[0].prompt == "Say something rude about the bus and swear a lot."
"""

from __future__ import annotations

from editkit.tasks.builtin.arithmetic import ARITHMETIC
from editkit.tasks.builtin.code import CODE
from editkit.tasks.builtin.facts import FACTS
from editkit.tasks.builtin.facts_letter import FACTS_LETTER
from editkit.tasks.builtin.recall import RECALL
from editkit.tasks.builtin.rhyme import RHYME
from editkit.tasks.builtin.sort import SORT
from editkit.tasks.builtin.story import Story
from editkit.tasks.builtin.swear import SWEAR
from editkit.tasks.task import Task

TASKS: dict[str, Task] = {
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

__all__ = ["TASKS"]
