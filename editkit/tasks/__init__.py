"""The built-in tasks, by name. Everything here is plain Python: importing it loads no model library.

TASKS["swear"].examples()[0].prompt == "Say something rude about the bus and swear a lot."
"""

from __future__ import annotations

from editkit.task import Task
from editkit.tasks.arithmetic import Arithmetic
from editkit.tasks.code import Code
from editkit.tasks.facts import Facts
from editkit.tasks.facts_letter import FactsLetter
from editkit.tasks.recall import Recall
from editkit.tasks.rhyme import Rhyme
from editkit.tasks.sort import Sort
from editkit.tasks.story import Story
from editkit.tasks.swear import Swear

TASKS: dict[str, Task] = {
    "swear": Swear(),
    "rhyme": Rhyme(),
    "arithmetic": Arithmetic(),
    "recall": Recall(),
    "facts": Facts(),
    "facts-letter": FactsLetter(),
    "sort": Sort(),
    "code": Code(),
    "story": Story(),
}

__all__ = ["TASKS"]
