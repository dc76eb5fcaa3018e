"""YAML as recipes, tasks and studies are written: plain values, every key once, and no larger than people write.

load("goal: 0.1")               {"goal": 0.1}
load("goal: 0.1\\ngoal: 0.2")    yaml.YAMLError: the key 'goal' of line 2 was in line 1 already; keep one of them
load("a: &a [*a]")              yaml.YAMLError: line 1: an alias stands within what it stands for
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.nodes import MappingNode, Node, ScalarNode

from editkit.errors import first_line

SIZE = 2**16
"""Characters of a file: the reader takes seconds for as many."""
DEPTH = 40
"""Lists and tables within each other."""
PARTS = 20_000
"""Values of a document, where an alias counts as all that it stands for: eight lines can stand for a billion."""


def load(text: str) -> Any:
    """The document's value.

    Raises:
        yaml.YAMLError: it is not YAML, makes objects, repeats a key, or passes a limit; with the line.
    """
    if len(text) > SIZE:
        raise yaml.YAMLError(f"{len(text)} characters; at most {SIZE} are read")
    try:
        return yaml.load(text, _Loader)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # What the library's own readers of dates and numbers raise on 2024-99-99.
        raise yaml.YAMLError(f"a value is not what it looks like ({first_line(error)}); put text in quotes") from error


class _Loader(yaml.SafeLoader):
    depth = 0

    def get_single_node(self) -> Node | None:
        node = super().get_single_node()
        if node is not None:
            _count(node, {})
        return node

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self.depth += 1
        if self.depth > DEPTH:
            line = self.peek_event().start_mark.line + 1
            raise ComposerError(problem=f"line {line}: more than {DEPTH} lists and tables within each other")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

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


def _count(node: Node, known: dict[int, int]) -> int:
    """How many values a node stands for, aliases written out; ``known`` by node, 0 while it is counted."""
    where = f"line {node.start_mark.line + 1}"
    if known.setdefault(id(node), -1) == 0:
        raise ComposerError(problem=f"{where}: an alias stands within what it stands for")
    if known[id(node)] < 0:
        known[id(node)] = 0
        known[id(node)] = 1 + sum(_count(child, known) for child in _children(node))
    if known[id(node)] > PARTS:
        raise ComposerError(problem=f"{where}: stands for more than {PARTS} values, aliases written out")
    return known[id(node)]


def _children(node: Node) -> Iterable[Node]:
    if isinstance(node, ScalarNode):
        return ()
    return (child for pair in node.value for child in pair) if isinstance(node, MappingNode) else node.value
