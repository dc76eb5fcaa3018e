"""A recipe: one capability to lose, the tasks to retain, and what counts as success. Strict YAML.

capability: swear
summary: Swearing on request.
target: swear
retain: [rhyme, arithmetic, recall, facts, facts-letter, sort, code, story]
goal: 0.15
damage: {each: 0.02, mean: 0.01}
method: auto
heads: auto
examples: {locate: 100, choose: 100, report: 200}
random_sets: 50
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator, model_validator

from editkit.errors import EditkitError
from editkit.evidence.verdict import Criteria, level
from editkit.removal.complaints import nearest, validated
from editkit.tasks import strict_yaml

Method = Literal["auto", "halving", "css", "csb", "greedy", "one-shot"]
Spec = str | dict[str, Any]
"""A task's name, or a table that describes the user's own (`docs/evaluation.md`)."""

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class Strict(BaseModel):
    """A table whose keys and kinds of values are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Damage(Strict):
    """How many score points (0.05 = 5 points) the retained tasks may lose: each of them, and on average."""

    each: Share = 0.05
    """By a single retained task."""
    mean: Share = 0.03
    """By all retained tasks on average."""


class Examples(Strict):
    """How many examples of each split are used, per task."""

    locate: Count = 100
    """To find units with."""
    choose: Count = 100
    """To choose how many, or which set."""
    report: Count = 200
    """For the report, which nothing else has looked at."""
    first: Count | None = None
    """Retained tasks are judged by so many of these. Those that lost more than a quarter of their budget, but not
    surely more than all of it, are asked the rest and judged by all."""


class Recipe(Strict):
    """One capability to remove. Every key has a default but the first three."""

    capability: Name
    """What the recipe is called, in files and in the model's name."""
    target: tuple[Spec, ...] = Field(strict=False, min_length=1, max_length=8)
    """One task; or several that show the capability in different formats, which must all be lost."""
    retain: tuple[Spec, ...] = Field(strict=False, min_length=1)
    """What must be kept: four tasks or more, not all of one format, show which heads everything depends on."""
    transfer: tuple[Spec, ...] = Field(default=(), strict=False)
    """Further formats of the capability, reported only: neither the search nor the choice sees them."""
    also: tuple[Spec, ...] = Field(default=(), strict=False)
    """Tasks that may be lost as well, such as a capability that shares the target's units: reported, not judged."""
    hide: tuple[str, ...] = Field(default=(), strict=False)
    """Tasks whose answers are not published: the evidence holds their hashes, and shows no transcript."""
    summary: str = ""
    """One sentence for people: what is removed."""
    goal: Share = 0.15
    """The target's score afterwards, as a share of its score before, must be at most this."""
    damage: Damage = Damage()
    """What the retained tasks may lose."""
    units: Literal["heads", "neurons", "both"] = "heads"
    """What may be removed. Neurons are found by contrast, and chosen as sets; ``method`` is how heads are found."""
    harden: bool = False
    """Whether the chosen set of neurons is grown by rounds of attack and removal: what a little fine-tuning finds in
    its place goes out as well, within the damage budget. Trains all weights, which takes four times their memory."""
    path: Literal["joint", "layers"] = "joint"
    """How answers are attributed to neurons: all layers in one pass; or each by itself, at as many times the cost."""
    steps: Count = 1
    """Points on the path from shut to open; 1: activation times gradient. The paper of neurons: layers, 19."""
    method: Method = "auto"
    """How heads are found: see docs/localization.md."""
    choose: Literal["ranking", "set"] = "ranking"
    """How heads are chosen from those found: the first of the ranking, as the paper does; or the set that takes the
    target furthest within the damage budget. A fixed number of heads comes from the ranking."""
    accept: Literal["goal", "best"] = "goal"
    """What becomes a checkpoint: a removal to the goal; or also the best that the damage budget allows, if it is a
    certain reduction that random heads do not make."""
    heads: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = "auto"
    """How many heads are removed: exactly so many, or as many as the goal needs."""
    scores: Literal["likelihood", "answers"] = "likelihood"
    """What the search looks at: how likely the model's own right answers still are; or, as the paper does, its answers
    as the task judges them, which is coarser and costs a generation each."""
    max_heads: Count = 10
    """With ``heads: auto``, no more than this many are tried."""
    examples: Examples = Examples()
    """How many examples of each split are used, per task."""
    universal_examples: Count = 20
    """Per retained task, for finding the heads that everything depends on."""
    random_sets: Annotated[int, Field(ge=0, le=10_000)] = 50
    """How many sets of as many random heads the drop is compared with; 0: none, and no p."""
    random_examples: Count = 50
    """On so many examples of the target."""
    audits: Literal["none", "quick", "full"] = "quick"
    """Which attacks on the finished checkpoint follow; what they bring back stands on its card (docs/audits.md)."""

    @model_validator(mode="after")
    def _counted(self) -> Recipe:
        if isinstance(self.heads, int) and self.units != "heads":
            raise ValueError(f"heads: {self.heads} with units: {self.units}; a number of heads needs units: heads")
        if self.harden and self.units == "heads":
            raise ValueError("harden: true with units: heads; hardening adds neurons, and needs units: neurons or both")
        return self

    @field_validator("target", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | dict) else value

    @field_serializer("target")
    def _one(self, value: tuple[Spec, ...]) -> Any:
        return value[0] if len(value) == 1 else list(value)

    @property
    def criteria(self) -> Criteria:
        return Criteria(self.goal, self.damage.each, self.damage.mean, level(self.examples.first))


def read(name: str) -> Recipe:
    """A built-in recipe by name, or a recipe file by path.

    Raises:
        EditkitError: no such recipe (naming the nearest), or a file that is not one (naming the key).
    """
    return parse(text(name), where=name)


def text(name: str) -> str:
    """The YAML text of a built-in recipe or of a file."""
    built_in = _built_in()
    if name in built_in:
        return built_in[name].read_text("utf-8")
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or "/" in name:
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EditkitError(f"The recipe {name} cannot be read: {error}.") from error
    raise EditkitError(
        f"There is no recipe {name!r}{nearest(name, built_in)}. Built in: {', '.join(sorted(built_in))}. "
        "Or give the path of a recipe file ending in .yaml."
    )


def parse(text: str, *, where: str) -> Recipe:
    """Read YAML text as a recipe; ``where`` names it in errors."""
    try:
        value = strict_yaml.load(text)
    except yaml.YAMLError as error:
        raise EditkitError(f"{where} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(value, dict):
        raise EditkitError(
            f"{where}: expected a table of keys such as capability, target, retain; found {value!r:.80}."
        )
    return validated(value, Recipe, where)


def is_recipe(path: str) -> bool:
    """Whether a YAML file is a recipe; else it may be a task, a study, or nothing that can be read."""
    try:
        value = strict_yaml.load(Path(path).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(value, dict) and not {"capability", "target", "retain"}.isdisjoint(value)


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with some keys set to other values: ``{"goal": 0.5, "heads": 3}``. Tasks set to ``also`` leave retain.

    ``limit`` is no key of its own: no number of examples is larger.

    Raises:
        EditkitError: naming the key that is none, or whose value will not do.
    """
    values = recipe.model_dump() | {key: value for key, value in changes.items() if key != "limit"}
    if limit := changes.get("limit"):
        of_split = values["examples"].items()
        values["examples"] = {split: None if count is None else min(count, limit) for split, count in of_split}
        values |= {key: min(values[key], limit) for key in ("universal_examples", "random_examples")}
    if "also" in changes:
        values["retain"] = [task for task in values["retain"] if task not in values["also"]]
    return validated(values, Recipe)


def names() -> list[str]:
    """The built-in recipes."""
    return sorted(_built_in())


def dump(recipe: Recipe) -> str:
    """The recipe as YAML, defaults included: what a manifest keeps."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _built_in() -> dict[str, Traversable]:
    folder = files("editkit.recipes")
    return {entry.name.removesuffix(".yaml"): entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
