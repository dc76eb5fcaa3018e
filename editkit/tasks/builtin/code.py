'''Code: a one-line Python function, judged by what it returns, never run by Python itself.

    prompt   "Write a Python function named total that takes a and b and returns their sum. Answer with code only."
    answer   "def total(a, b):\\n    return a + b"      -> 1.0
    answer   "```python\\ndef total(x, y):\\n    """Sum."""\\n    return y + x\\n```"   -> 1.0
    answer   "def total(a, b):\\n    return a - b"      -> 0.0

The function is read with ``ast`` and its return expression evaluated here on a few inputs: names, numbers,
arithmetic, comparisons and max, min, abs. Nothing else is understood and nothing is executed. A function's name with
its arguments is in one split.
'''

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from editkit.tasks.builtin.asked import Asked
from editkit.tasks.builtin.draw import distinct, pick
from editkit.tasks.task import Example, Score

Number = int | float

OPERATIONS: dict[str, tuple[str, str]] = {
    "sum": ("returns their sum", "{x} + {y}"),
    "difference": ("returns {x} minus {y}", "{x} - {y}"),
    "product": ("returns their product", "{x} * {y}"),
    "larger": ("returns the larger one", "max({x}, {y})"),
    "smaller": ("returns the smaller one", "min({x}, {y})"),
    "equal": ("tells if they are equal", "{x} == {y}"),
    "greater": ("tells if {x} is greater than {y}", "{x} > {y}"),
    "double": ("returns twice their sum", "2 * ({x} + {y})"),
}
FUNCTIONS: tuple[str, ...] = (
    "total", "compute", "solve", "combine", "check", "calc", "work", "apply", "result", "value", "task", "step",
    "make", "find", "run", "join", "rate", "score", "tell", "judge", "count", "mix", "pair", "both",
)  # fmt: skip
ARGUMENTS: tuple[tuple[str, str], ...] = (("a", "b"), ("x", "y"), ("m", "n"), ("p", "q"), ("u", "v"), ("s", "t"))
TEMPLATES: tuple[str, ...] = (
    "Write a Python function named {function} that takes {x} and {y} and {what}. Answer with code only.",
    "In Python, write {function} with arguments {x} and {y}. It {what}. Code only.",
    "Define a Python function {function} of {x} and {y} that {what}. Only code.",
)
_LARGE = 10**9
_INPUTS: tuple[tuple[int, int], ...] = ((3, 5), (5, 3), (4, 4), (-2, 7), (0, -6))
_BINARY: dict[type, Callable[[Number, Number], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Number, Number], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Lt: operator.lt, ast.LtE: operator.le,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "abs": abs, "bool": bool}


class _NotUnderstood(Exception):
    """The expression uses something outside the small language that is evaluated here."""


def judge(text: str, facts: Mapping[str, Any]) -> Score:
    name = str(facts["function"])
    try:
        right = _returns(text, name) == _returns(str(facts["answer"]), name)
    except _NotUnderstood as reason:
        return Score(0.0, note=str(reason))
    return Score(float(right))


def _returns(text: str, name: str) -> list[Number]:
    """What the function ``name`` in ``text`` returns on the fixed inputs."""
    function = _function(text, name)
    arguments = [argument.arg for argument in function.args.args]
    returned = function.body[-1]
    documented = all(isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in function.body[:-1])
    if len(arguments) != 2 or not isinstance(returned, ast.Return) or returned.value is None or not documented:
        raise _NotUnderstood("not a function of two arguments with one return")
    return [_evaluate(returned.value, dict(zip(arguments, pair, strict=True))) for pair in _INPUTS]


def code_of(text: str) -> str:
    """The Python in an answer: its first fenced block, or all of it."""
    fenced = re.search(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", text, re.DOTALL | re.IGNORECASE)
    return fenced[1] if fenced else text


def _function(text: str, name: str) -> ast.FunctionDef:
    source = code_of(text)
    if len(source) > 2000:
        raise _NotUnderstood("too long")
    try:
        tree = ast.parse(source.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _NotUnderstood("not Python") from None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not functions:
        raise _NotUnderstood(f"no function {name}")
    return functions[-1]


def _evaluate(node: ast.expr, scope: Mapping[str, Number], depth: int = 0) -> Number:
    if depth > 20:
        raise _NotUnderstood("too deep")
    if isinstance(node, ast.Name) and node.id in scope:
        return scope[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) < _LARGE:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, scope, depth + 1)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _evaluate(node.left, scope, depth + 1), _evaluate(node.right, scope, depth + 1)
        if abs(left) > _LARGE or abs(right) > _LARGE:
            raise _NotUnderstood("too large")
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        sides = _evaluate(node.left, scope, depth + 1), _evaluate(node.comparators[0], scope, depth + 1)
        return _COMPARE[type(node.ops[0])](*sides)
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test, scope, depth + 1) else node.orelse, scope, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        call = _CALLS.get(node.func.id)
        width = 2 if node.func.id in ("max", "min") else 1
        if call and len(node.args) == width:
            return call(*(_evaluate(argument, scope, depth + 1) for argument in node.args))
    raise _NotUnderstood(f"{type(node).__name__} is not evaluated here")


def draw(rng: random.Random) -> Example:
    operation, function = pick(rng, tuple(OPERATIONS)), pick(rng, FUNCTIONS)
    x, y = pick(rng, ARGUMENTS)
    number = int(rng.random() * len(TEMPLATES))
    what, expression = (text.format(x=x, y=y) for text in OPERATIONS[operation])
    return Example(
        id=f"{operation}-{function}-{x}{y}-{number}",
        prompt=TEMPLATES[number].format(function=function, x=x, y=y, what=what),
        cluster=f"{function}-{x}-{y}",
        facts={
            "kind": operation,
            "function": function,
            "answer": f"def {function}({x}, {y}):\n    return {expression}",
        },
    )


CODE = Asked(
    "code",
    partial(distinct, draw, 680, "code"),
    judge,
    max_new_tokens=64,
    rule="a function that returns what was asked for",
)
"""One-line functions of two numbers."""
