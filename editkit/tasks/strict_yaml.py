"""YAML as recipes, tasks and studies are written: plain values, and every key once.

load("goal: 0.1")               {"goal": 0.1}
load("goal: 0.1\\ngoal: 0.2")    yaml.YAMLError: the key 'goal' of line 2 was in line 1 already; keep one of them
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.nodes import MappingNode, Node, ScalarNode


def load(text: str) -> Any:
    """The document's value.

    Raises:
        yaml.YAMLError: it is not YAML, makes objects, or repeats a key; with the line.
        RecursionError: it is nested too deeply.
    """
    return yaml.load(text, _Loader)


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: dict[Any, Node]) -> MappingNode:
        """Here and not where values are made: by then merged keys (``<<``), which may be overridden, are among them."""
        node = super().compose_mapping_node(anchor)
        seen: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                continue
            name, line = (key.tag, key.value), key.start_mark.line + 1
            if name in seen:
                said = f"the key {key.value!r} of line {line} was in line {seen[name]} already; keep one of them"
                raise ComposerError(problem=said)
            seen[name] = line
        return node
