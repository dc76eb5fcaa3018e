"""Both sides of the pipe on which a test asks a program: what runs inside the two sandboxes of ``sandbox.py``.

    judge                                            worker
    {"program": "def f(x): return (x, {x})"}    ->   runs the program
                                                <-   ["value", null]
    ["f", [2], []]                              ->   calls f(2)
                                                <-   ["value", ["tuple", [2, ["set", [2]]]]]
    assert f(2) == (2, {2})

The judge holds the tests and never runs a line of the program; the worker runs the program and never sees a test. Only
data passes between them: None, booleans, numbers, text, bytes, and lists, tuples, sets and dicts of these, as JSON
that is made anew on the other side. Such a value has no method of the program's, so it cannot lie about what it is
equal to. What is not data (an object of a class, a function, a generator), an answer over ``SIZE``, or a worker that
ends, ends the judgement: failed. An exception passes as the name of a built-in class and a text.

This module is read as text and run by an interpreter that sees nothing but the standard library.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import IO, Any, NoReturn

SIZE = 2**20
"""Bytes of one message."""
DEPTH = 100
"""Containers within containers of one value."""
WORDS = 300
"""Characters of a reason."""

ERRORS = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError)
} | {"StopIteration": RuntimeError, "StopAsyncIteration": RuntimeError, "ExceptionGroup": Exception}
"""What the judge raises for what the program raised. Stopping an iteration is no error: within ``all(map(f, ...))`` it
would end the test and pass it, so it is a RuntimeError, as in a generator. Classes that need more than a text go by
the next class they derive from."""


def packed(value: Any, depth: int = 0) -> Any:
    """A value as JSON's own types. A value of a derived class (a Counter, a named tuple) goes as what it derives from.

    Raises:
        TypeError: it is not data, or is nested deeper than ``DEPTH``.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):  # Python writes no number of over 4,300 digits; of these, hexadecimal ones
        return int(value) if abs(value) < 2**1024 else ["int", hex(value)]
    for kind in (float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, bytes | bytearray):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if depth == DEPTH:
        raise TypeError(f"a value is nested deeper than {DEPTH}")
    if isinstance(value, dict):
        return ["dict", [[packed(key, depth + 1), packed(item, depth + 1)] for key, item in value.items()]]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, [packed(item, depth + 1) for item in value]]
    raise TypeError(f"a {type(value).__name__} is not data: only numbers, text and collections of them can be compared")


def unpacked(value: Any) -> Any:
    """The value that was packed, of built-in types only.

    Raises:
        ValueError, TypeError: nothing that ``packed`` makes.
    """
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "int":
        return int(content, 16)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "complex":
        real, imaginary = content
        return complex(float(real), float(imaginary))
    if kind == "dict":
        return {unpacked(key): unpacked(item) for key, item in content}
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](unpacked(item) for item in content)


def worker() -> None:
    """Runs the program that arrives on stdin, then answers calls until nobody asks."""
    asked, told = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    job = json.loads(asked.readline())
    limited(job)
    names: dict[str, Any] = {"__name__": "__program__"}
    send(told, answer(lambda: exec(compile(job["program"], "program", "exec"), names)))
    for line in asked:
        name, arguments, keywords = json.loads(line)
        send(told, answer(lambda: named(names, name)(*unpacked(arguments), **unpacked(keywords))))  # noqa: B023


def named(names: dict[str, Any], name: str) -> Callable[..., Any]:
    if name not in names:
        raise NameError(f"name {name!r} is not defined")
    return names[name]


def answer(work: Callable[[], Any]) -> list[Any]:
    """What the work gave: a value, no data, or an error."""
    try:
        value = work()
    except BaseException as error:
        try:
            said = str(error)[:WORDS]
        except BaseException:
            said = "an error that cannot be shown"
        return ["error", [kind.__name__ for kind in type(error).__mro__], said]
    try:
        return ["value", packed(value)]
    except BaseException as error:
        return ["no data", str(error)[:WORDS]]


def judge(asking: int, telling: int) -> None:
    """Runs the tests, asking the worker for what the program defines; one byte on stdout, then why.

    Args:
        asking, telling: the ends of the pipes to the worker and back.
    """
    result = os.dup(1)
    job = json.loads(sys.stdin.buffer.read())
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    limited(job)
    asked, told = os.fdopen(asking, "wb"), os.fdopen(telling, "rb")

    def end(passed: bool, reason: str) -> NoReturn:
        """At once: no test can catch it."""
        os.write(result, (b"1" if passed else b"0") + reason[:WORDS].encode("utf-8", "replace"))
        os._exit(0)

    def ask(message: Any) -> Any:
        try:
            send(asked, message)
            line = told.readline(SIZE + 1)
        except OSError:
            line = b""
        if not line:
            end(False, "ended early")
        if len(line) > SIZE:
            end(False, f"an answer of more than {SIZE} bytes")
        try:
            kind, *content = json.loads(line)
            if kind == "value":
                (value,) = content
                return unpacked(value)
            if kind == "error":
                classes, said = content
                known = next(ERRORS[name] for name in classes if name in ERRORS)
                name, said = str(classes[0]), str(said)
            else:
                end(False, str(content[0]))
        except StopIteration:  # SystemExit, KeyboardInterrupt
            end(False, f"{classes[0]}: {said}")
        except Exception as error:
            end(False, f"an answer that is no data ({type(error).__name__})")
        raise known(said if known.__name__ == name else f"{name}: {said}")

    def asker(name: str) -> Callable[..., Any]:
        def ask_for(*arguments: Any, **keywords: Any) -> Any:
            try:
                message = [name, packed(arguments), packed(keywords)]
            except TypeError as error:
                end(False, f"a test that cannot be asked: {error}")
            return ask(message)

        return ask_for

    class Program:
        """``__program__.f`` is the program's ``f`` where the tests have an ``f`` of their own."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            return asker(name)

    try:
        ask({key: job[key] for key in ("program", "memory", "cpu")})
        code = compile(job["tests"], "tests", "exec")
        own = {name: asker(name) for name in used(code) if not hasattr(builtins, name)}
        exec(code, own | {"__name__": "__tests__", "__program__": Program()})
    except BaseException as error:
        end(False, f"{type(error).__name__}: {error}")
    end(True, "")


def used(code: CodeType) -> Iterator[str]:
    """Every name that a code uses, in its functions too: what the tests do not define is the program's."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from used(constant)


def send(pipe: IO[bytes], message: Any) -> None:
    pipe.write(json.dumps(message).encode() + b"\n")
    pipe.flush()


def limited(job: dict[str, Any]) -> None:
    """Limits of the kernel; the bytes of a file are those of the verdict, as nothing else can be written."""
    import resource

    for name, value in (("AS", job["memory"]), ("CPU", job["cpu"]), ("FSIZE", 4096), ("NOFILE", 32), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


if __name__ == "__main__":
    judge(*map(int, sys.argv[1:])) if len(sys.argv) > 1 else worker()
