"""A task asked otherwise than it is: the attack is in the prompt, or in the answer's beginning; scored as before.

AskedOtherwise(CAPITALS, lambda example, request: [replace(request, prefill=" Par")], setting="prefill, 1 token")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from editkit.tasks.task import Example, Output, Request, Score, Task


@dataclass(frozen=True)
class AskedOtherwise:
    """The task ``task`` with other requests.

    Args:
        change: what is asked instead of an example's request.
        judge: the score of the outputs; without it the task's own.
        setting: names both: measurements are kept under it.
    """

    task: Task
    change: Callable[[Example, Request], Sequence[Request]] = field(repr=False)
    judge: Callable[[Example, Sequence[Output]], Score] | None = field(default=None, repr=False)
    setting: str = ""

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def chance(self) -> float:
        return self.task.chance

    @property
    def format(self) -> str:
        return self.task.format

    @property
    def rule(self) -> str:
        return self.task.rule

    def examples(self) -> Sequence[Example]:
        return self.task.examples()

    def requests(self, example: Example) -> tuple[Request, ...]:
        return tuple(asked for request in self.task.requests(example) for asked in self.change(example, request))

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        return (self.judge or self.task.score)(example, outputs)


def reworded(task: Task, words: Callable[[str], str]) -> AskedOtherwise:
    """The task with each prompt replaced by ``words(prompt)``."""
    return AskedOtherwise(task, lambda example, request: [replace(request, prompt=words(request.prompt))])
