"""A first look at a recipe or a task: some prompts, what the model answers, and how the scorer judges each answer.

named = tasks_of("person.yaml")                              # its targets, and the tasks that it retains
tryout(model, named.shown[0], count=10).answers[0]
Answered(prompt="Tom lives in Rome. ...", answer="Rome", expected="Rome", value=1.0, valid=True, note="Rome")

Whoever sees a score of 0 sees here whether the model cannot do it or the scorer looks for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from editkit.errors import EditkitError
from editkit.measuring.answers import shown
from editkit.models.language_model import LanguageModel
from editkit.progress import Stages, silent
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.removal.complaints import nearest
from editkit.tasks.builtin import TASKS
from editkit.tasks.find import HARNESS, find
from editkit.tasks.task import Generate, Task, divides_clusters, examples_of


@dataclass(frozen=True)
class Answered:
    """One prompt and what became of it. ``expected`` is the row's own answer, "" where it has none."""

    prompt: str
    answer: str
    expected: str
    value: float
    valid: bool
    note: str


@dataclass(frozen=True)
class Tryout:
    """One task's answers.

    Args:
        rule: what an answer must be to score 1.
        divided: too few clusters to keep each in one split: a report will ask new fillings of templates already used.
    """

    model: str
    task: str
    rule: str
    chance: float
    answers: tuple[Answered, ...]
    divided: bool = False

    @property
    def score(self) -> float:
        """The mean of the answers' scores, in [0, 1]."""
        return sum(each.value for each in self.answers) / len(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {**asdict(self), "score": self.score}


@dataclass(frozen=True)
class Named:
    """What a word of the user's stands for: the tasks that are shown first, and those that a recipe asks besides."""

    shown: tuple[Task, ...]
    besides: tuple[Task, ...] = ()
    is_recipe: bool = False
    hide: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[Task, ...]:
        return (*self.shown, *self.besides)


def tasks_of(name: str, *, where: str = "task", allow_code: bool = False) -> Named:
    """The tasks of a recipe, or else one task: built in, of lm-eval, or in a file.

    Raises:
        EditkitError: it is neither; the message names the nearest of both.
    """
    is_file = Path(name).suffix in {".yaml", ".yml"}
    if not (recipes.is_recipe(name) if is_file else name in recipes.names()):
        if is_file or name in TASKS or name.startswith(HARNESS):
            return Named((find(name, where=where, allow_code=allow_code),))
        raise EditkitError(
            f"There is no recipe or task {name!r}{nearest(name, [*TASKS, *recipes.names()])}. `editkit recipes` and "
            f"`editkit tasks` list what is built in; tasks of lm-evaluation-harness are written {HARNESS}NAME; your "
            "own is a .yaml file (docs/evaluation.md)."
        )
    wanted = capability(recipes.read(name), folder=Path(name).parent, allow_code=allow_code)
    return Named(wanted.targets, (*wanted.retain, *wanted.transfer, *wanted.also), True, wanted.recipe.hide)


def tryout(model: LanguageModel, task: Task, *, count: int = 10, stages: Stages = silent) -> Tryout:
    """Ask the first ``count`` examples of the split that searches use: those of the report stay unseen."""
    examples = examples_of(task, "locate", limit=count)
    requests = [task.requests(example) for example in examples]
    with stages(f"Answers, {task.name}", sum(map(len, requests))) as advance:
        outputs = model.answer(
            [request for each in requests for request in each],
            None,
            arrived=lambda places, _: advance(len(places)),
        )
    answers, start = [], 0
    for example, asked in zip(examples, requests, strict=True):
        given, start = outputs[start : start + len(asked)], start + len(asked)
        score = task.score(example, given)
        text = shown(given) if isinstance(asked[0], Generate) else score.note
        expected = _listed(example.facts.get("answer"))
        answers.append(Answered(example.prompt, text, expected, score.value, score.valid, score.note))
    return Tryout(model.source.base.model, task.name, task.rule, task.chance, tuple(answers), divides_clusters(task))


def _listed(answer: object) -> str:
    """The right answer of a row as text; of several, all."""
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        return " / ".join(map(str, answer))
    return "" if answer is None else str(answer)
