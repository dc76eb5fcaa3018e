"""A task asked otherwise than it is: the attack is in the prompt, or in the answer's beginning; scored as before.

AskedOtherwise(CAPITALS, lambda example, request: replace(request, prefill=" Par"), setting="prefill, 1 token")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from editkit.tasks.task import Example, Output, Request, Score, Task


@dataclass(frozen=True)
class AskedOtherwise:
    """The task ``task`` with other requests.

    Args:
        change: an example's request, changed.
        heard: what the task's scorer is given of the outputs.
        setting: names both: measurements are kept under it.
    """

    task: Task
    change: Callable[[Example, Request], Request] = field(repr=False)
    heard: Callable[[Example, Sequence[Output]], Sequence[Output]] = field(
        default=lambda example, outputs: outputs, repr=False
    )
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
        return tuple(self.change(example, request) for request in self.task.requests(example))

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        return self.task.score(example, self.heard(example, outputs))
