"""Which examples a run asks: the same things in every data set to locate, other things to report.

    samples(data)[0]    Sample(CAPITALS, "capability", locate=(france-1, japan-4, ...), report=(peru-0, ...))

What an example is about is its subject, else its cluster. Contents come in one order everywhere, so that data sets
about the same things are located on the same of them; and they are halved alike.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from editkit.reliability.plan import DataSets, Role
from editkit.tasks.task import Example, Task, examples_of


@dataclass(frozen=True)
class Sample:
    """One data set's examples: to locate and train; to choose a learning rate; and to erase and score. The latter two
    are about other things, as far as there are."""

    task: Task
    role: Role
    locate: tuple[Example, ...]
    choose: tuple[Example, ...]
    report: tuple[Example, ...]
    fresh: int
    """How many of ``report`` are about things that no data set of the capability is located on."""


def samples(data: DataSets) -> list[Sample]:
    """Every data set's, in the order of the plan."""
    settings = data.plan.settings
    locate = {task.name: _spread(examples_of(task, "locate"))[: settings.locate] for task, _ in data.tasks}
    used = {content(example) for task in data.of("capability") for example in locate[task.name]}
    drawn = []
    for task, role in data.tasks:
        report = _spread(examples_of(task, "report"), last=used)[: settings.report]
        last = used | {content(example) for example in report}
        choose = _spread(examples_of(task, "choose"), last=last)[: settings.report]
        fresh = sum(content(example) not in used for example in report)
        drawn.append(Sample(task, role, tuple(locate[task.name]), tuple(choose), tuple(report), fresh))
    return drawn


def content(example: Example) -> str:
    """What an example is about."""
    return str(example.facts.get("subject") or example.cluster or example.id).lower()


def half(about: str) -> int:
    """0 or 1, the same in every data set."""
    return hashlib.sha256(f"half\0{about}".encode()).digest()[0] & 1


def _spread(examples: Sequence[Example], last: Collection[str] = ()) -> list[Example]:
    """One example of each content, then a second of each, and so on; those about ``last`` after all others."""
    seen: Counter[str] = Counter()
    keyed = []
    for example in examples:
        about = content(example)
        keyed.append(((about in last, seen[about], hashlib.sha256(about.encode()).digest()), example))
        seen[about] += 1
    return [example for _, example in sorted(keyed, key=lambda pair: pair[0])]
