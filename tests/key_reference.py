"""docs/reference.md: every key of the files that users write, from the models that read them.

python -m tests.key_reference > docs/reference.md

| `goal` | 0.15 | from 0 to 1 | The target's score afterwards, as a share of its score before, must be at most this. |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from editkit.reliability.plan import Plan, Settings
from editkit.removal.recipe import Damage, Examples, Recipe
from editkit.removal.study import Capability, Study

HEAD = """# The keys of recipes, studies and plans

Written by `python -m tests.key_reference > docs/reference.md`; a test holds it in step. A *task* is the name of a
built-in task, `lm-eval:NAME`, the path of a `.yaml` file, or a table ([evaluation](evaluation.md)). An unknown key is
an error that names the nearest.
"""

SECTIONS: dict[str, type[BaseModel]] = {
    "Recipe": Recipe,
    "`damage` of a recipe": Damage,
    "`examples` of a recipe": Examples,
    "Study": Study,
    "One of the `capabilities` of a study": Capability,
    "Reliability plan": Plan,
    "`settings` of a reliability plan": Settings,
}
NEEDED = "needed"


def page() -> str:
    """The whole page."""
    tables = (f"\n## {title}\n\n" + "\n".join(_table(model)) + "\n" for title, model in SECTIONS.items())
    return HEAD + "".join(tables)


def _table(model: type[BaseModel]) -> Iterator[str]:
    schema = model.model_json_schema()
    yield from ("| key | default | value | meaning |", "|---|---|---|---|")
    for key, field in schema["properties"].items():
        default = _written(field["default"]) if "default" in field else NEEDED
        meaning = " ".join(str(model.model_fields[key].description).split()).replace("``", "`").replace("|", "\\|")
        alone = "a task, or " if key == "target" else ""  # Recipe takes it without a list, which no schema says
        yield f"| `{key}` | {default} | {alone}{_value(field, schema)} | {meaning} |"


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "see below"
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _value(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """What may stand there, in words."""
    if "$ref" in field:
        return "a table, below" if field["$ref"].rsplit("/", 1)[-1] != "Recipe" else "a name, or the keys of a recipe"
    if "anyOf" in field:
        kinds = [_value(part, schema) for part in field["anyOf"]]
        return "a task" if kinds == ["text", "a table"] else " or ".join(kinds)
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if field["type"] == "array":
        of = _value(field["items"], schema)
        several = {"a task": "tasks", "text": "texts", "a table, below": "tables, below"}.get(of, of)
        return f"a list of {several}"
    if field["type"] in ("integer", "number"):
        kind, bounds = ("whole numbers" if field["type"] == "integer" else "numbers"), ""
        low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum")
        if low is not None:
            above = "above" if "exclusiveMinimum" in field else "from"
            bounds = f" {above} {low:g}" + (f" to {high:,}" if high is not None else "")
        return f"{kind}{bounds}"
    if "pattern" in field:
        return "a name: `a-z`, `0-9`, `-`, `_`"
    return {"string": "text", "object": "a table", "boolean": "`true` or `false`", "null": "`null`"}[field["type"]]


if __name__ == "__main__":
    print(page(), end="")
