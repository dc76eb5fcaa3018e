"""The built-in tasks, by name. Everything here is plain Python: importing it loads no model library.

TASKS["swear"].examples()[0].prompt == "Say something rude about the bus and swear a lot."
"""

from __future__ import annotations

from editkit.task import Task
from editkit.tasks.arithmetic import ARITHMETIC
from editkit.tasks.code import CODE
from editkit.tasks.facts import FACTS
from editkit.tasks.facts_letter import FACTS_LETTER
from editkit.tasks.recall import RECALL
from editkit.tasks.rhyme import RHYME
from editkit.tasks.sort import SORT
from editkit.tasks.story import Story
from editkit.tasks.swear import SWEAR

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
