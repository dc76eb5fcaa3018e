"""The commonest shape of a task: every prompt is answered with one text, which is judged by the example's facts.

RECALL = Asked("recall", partial(distinct, draw, 600, "recall"), judge, chance=0.12)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editkit.tasks.degeneration import degeneration
from editkit.tasks.task import Example, Generate, Output, Request, Score


@dataclass(frozen=True)
class Asked:
    """A task of prompts, each answered with a text.

    Args:
        source: all examples, the same on every call.
        judge: scores an answer that is no collapse, by the example's facts.
        max_new_tokens: the longest answer, in tokens.
        chat: asked in the model's chat template; else the raw text is continued.
        stop: an answer ends before the first of these strings.
        setting: what else ``judge`` goes by, so that the measurements of one task are not taken for another's.
        rule: what ``judge`` looks for, for a person.
    """

    name: str
    source: Callable[[], Sequence[Example]] = field(repr=False)
    judge: Callable[[str, Mapping[str, Any]], Score] = field(repr=False)
    chance: float = 0.0
    max_new_tokens: int = 24
    format: str = "generation"
    setting: tuple[str, ...] = ()
    chat: bool = field(default=True, repr=False)  # these two are told by the requests
    stop: tuple[str, ...] = field(default=(), repr=False)
    rule: str = field(default="", repr=False)

    def examples(self) -> Sequence[Example]:
        return self.source()

    def requests(self, example: Example) -> tuple[Request, ...]:
        return (Generate(example.prompt, self.max_new_tokens, self.chat, self.stop),)

    def score(self, example: Example, outputs: Sequence[Output]) -> Score:
        text = str(outputs[0])
        if reason := degeneration(text):
            return Score(0.0, valid=False, note=reason)
        return self.judge(text, example.facts)
