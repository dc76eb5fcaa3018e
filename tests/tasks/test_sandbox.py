"""Escape attempts: each works outside, fails inside, and is reported. And forgeries: no program passes a test that its
functions do not pass.

If one fails: code that a model wrote reads files, uses the network or stays alive on the user's machine, or pass@1
counts programs that fail.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from editkit.errors import EditkitError
from editkit.tasks import sandbox
from editkit.tasks.sandbox import Limits
from tests.tasks.forgeries import FORGERIES

MISSING = sandbox._missing()
pytestmark = [
    pytest.mark.commit,
    pytest.mark.skipif(bool(MISSING), reason=f"no sandbox on this machine: {MISSING}"),
]

SHORT = Limits(seconds=3.0, memory=256 * 2**20)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No process of the sandbox outlives its run."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    after = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    gone, alive = psutil.wait_procs(after, timeout=5)
    assert not alive


def loads(program: str, limits: Limits | None = None) -> sandbox.Outcome:
    """Whether a program says that it reached its end: enough to see what it could do, and no verdict."""
    return sandbox.run(program, "", limits=limits or Limits())


def outside(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    "program",
    [
        "assert 1 + 1 == 2",
        "import math, re, json, collections, heapq, itertools\nassert math.gcd(12, 8) == 4",
        "from typing import List\ndef f(x: List[int]) -> int:\n    return sum(x)\nassert f([1, 2]) == 3",
        "print('to nobody')\nassert '\u00e9'.encode() == b'\\xc3\\xa9'",
        "class A:\n    pass\nassert A.__module__ == '__program__'",
    ],
)
def test_honest_programs_pass(program: str) -> None:
    assert loads(program) == sandbox.Outcome(True, "passed")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 + 1 == 3", "AssertionError"),
        ("def f(:", "SyntaxError"),
        ("import numpy", "ModuleNotFoundError"),
        ("input()", "EOFError"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import os; os._exit(0)", "ended early"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise ValueError('\\x1b[31m red\\n')", r"^ValueError: .\[31m red$"),
        ("\0", "SyntaxError|ValueError"),
        ("x = '\ud800'", "Unicode"),
        (
            "import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
            "ended early|RecursionError|MemoryError|stopped",
        ),
        ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E", "an error that cannot be shown"),
    ],
)
def test_failures_are_told(program: str, reason: str) -> None:
    outcome = loads(program, limits=Limits(1.5))
    assert not outcome.passed
    assert re.search(reason, outcome.reason), outcome
    assert outcome.reason.isprintable()


def test_network(tmp_path: Path) -> None:
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local:
        tcp.bind(("127.0.0.1", 0))
        local.bind("\0editkit-test-abstract-socket")
        tcp.listen()
        local.listen()
        dial = f"import socket; socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 2)"
        abstract = "import socket; socket.socket(socket.AF_UNIX).connect('\\0editkit-test-abstract-socket')"
        for attempt in (dial, abstract):
            assert outside(attempt).returncode == 0
            outcome = loads(attempt)
            assert not outcome.passed and ("refused" in outcome.reason or "unreachable" in outcome.reason)
    for attempt in (
        "import socket; socket.create_connection(('1.1.1.1', 53), 2)",
        "import socket; socket.getaddrinfo('example.org', 80)",
    ):
        assert not loads(attempt).passed


def test_home_directory_and_files(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hf_secret")
    read = f"assert open({str(secret)!r}).read() == 'hf_secret'"
    assert outside(read).returncode == 0
    assert loads(read).reason.startswith("FileNotFoundError")
    for path in (
        Path.home(),
        Path(__file__).parent,
        Path("/etc"),
        Path("/proc"),
        Path("/sys"),
        Path("/tmp"),
        Path("/root"),
    ):
        assert loads(f"import os; os.listdir({str(path)!r})").reason.startswith("FileNotFoundError"), path
    assert loads("import os; assert sorted(os.listdir('/dev')) == ['null']").passed


def test_the_token_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert outside("import os; assert 'hf_secret' in str(os.environ)").returncode == 0
    assert loads("import os; assert 'hf_secret' not in str(os.environ) and 'HOME' not in os.environ").passed
    assert not loads("import os; open(f'/proc/{os.getppid()}/environ')").passed


def test_nothing_can_be_written() -> None:
    program = """
        import os
        places = ["/", "/dev", "/dev/shm", "/usr", "/usr/lib", "/python", "/python/lib", "/python/bin", "/tmp", "."]
        written = []
        for place in places:
            try:
                open(place + "/editkit-escape", "w")
                written.append(place)
            except OSError:
                pass
        assert not written, written
    """
    assert loads(textwrap.dedent(program)) == sandbox.Outcome(True, "passed")


def test_killing_the_parent() -> None:
    me = os.getpid()
    for attempt in (f"os.kill({me}, 9)", "os.kill(os.getppid(), 9)", "os.kill(-1, 9)", "os.killpg(0, 9)"):
        outcome = loads(f"import os, time\n{attempt}\ntime.sleep(0.1)\nassert os.getppid() <= 1", limits=SHORT)
        # Process 1 in there is bubblewrap's; nothing outside has a number. To kill itself is to fail.
        assert outcome.passed or outcome.reason.startswith(("ProcessLookupError", "ended early")), (attempt, outcome)
    assert psutil.pid_exists(me)
    assert loads("assert True").passed


BOMBS = [
    ("fork", "import os\nwhile True: os.fork()", "PermissionError"),
    ("threads", "import threading\nwhile True: threading.Thread(target=input).start()", "can't start new thread"),
    ("subprocess", "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])", "PermissionError"),
    ("posix_spawn", "import os, sys; os.posix_spawn(sys.executable, [sys.executable], {})", "PermissionError"),
    ("memory", "x = []\nwhile True: x.append(bytearray(10**7))", "MemoryError"),
    ("shared memory", "import mmap\nx = [mmap.mmap(-1, 2**24) for _ in range(99)]", "OSError|MemoryError"),
    ("file in memory", "import os\nf = os.memfd_create('x')\nwhile True: os.write(f, b'x' * 4096)", "OSError|ended"),
    ("open files", "import os\nx = [os.memfd_create(str(i)) for i in range(99)]", "Too many open files"),
    ("endless loop", "while True: pass", "stopped after 1"),
    ("endless sleep", "import time\nwhile True: time.sleep(99)", "stopped after 1"),
    ("catches all", "while True:\n    try:\n        while True: pass\n    except BaseException: pass", "stopped"),
    ("message", "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E", "stopped after 1"),
    ("signals", "import signal\nfor s in (2, 14, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: pass", "stopped"),
    ("long message", "raise ValueError('x' * 10**6)", "^ValueError: x{280}"),
]


@pytest.mark.parametrize(("program", "reason"), [bomb[1:] for bomb in BOMBS], ids=[bomb[0] for bomb in BOMBS])
def test_bombs(program: str, reason: str) -> None:
    outcome = loads(program, limits=Limits(1.0 if "stopped" in reason else 10.0, SHORT.memory))
    assert not outcome.passed
    assert re.search(reason, outcome.reason), outcome
    assert len(outcome.reason) <= 300


TESTS = """
import math
def check(candidate):
    values = [2, 2]
    assert candidate(2) == 4 and candidate(3) == 6
    assert not candidate(2) != 4
    assert abs(candidate(2) - 4) < 1e-6 and math.isclose(candidate(2), 4)
    assert all(map(lambda value: value == 4, map(candidate, values)))
    assert type(candidate(2)) is int and candidate(2) in {4}
check(f)
"""


@pytest.mark.commit
@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES)
def test_no_program_passes_without_passing(program: str) -> None:
    outcome = sandbox.run(program, TESTS, limits=Limits(2.0, SHORT.memory))
    assert not outcome.passed, outcome
    assert outcome.reason and outcome.reason.isprintable() and len(outcome.reason) <= 300


@pytest.mark.parametrize("attempt", ["StopIteration", "GeneratorExit", "SystemExit(0)", "KeyboardInterrupt"])
@pytest.mark.parametrize("tests", ["assert all(map(f, [1, 2]))", "for _ in map(f, [1]): pass\nassert f(2) == 1"])
def test_what_ends_a_loop_does_not_end_a_test(attempt: str, tests: str) -> None:
    assert not sandbox.run(f"def f(x): raise {attempt}", tests).passed


@pytest.mark.parametrize(
    "program", ["import os\ndef f(x): os._exit(0)", "def f(x): return object()", "def f(x): raise SystemExit"]
)
def test_no_test_catches_an_answer_that_is_none(program: str) -> None:
    assert not sandbox.run(program, "try:\n    f(1)\nexcept BaseException:\n    pass").passed


def test_a_right_program_passes_these_tests() -> None:
    assert sandbox.run("def f(x): return x + x", TESTS) == sandbox.Outcome(True, "passed")


RIGHT = [
    ("def f(x): return x", f"for value in {values}:\n    assert f(value) == value and type(f(value)) is type(value)")
    for values in (
        "[None, True, 0, -7, 10**5000, -(2**1024), 0.1, -1e300, float('inf'), 2j, 'é\\ud800\\0', b'\\xff', '']",
        "[[], [1, [2, (3,)]], (), (1, 'a'), {1, 'a'}, set(), frozenset({(1, 2)}), {}, {'a': {1: [2]}, (1, 2): None}]",
    )
]
RIGHT += [
    ("from collections import *\ndef f(x): return Counter(x)", "assert f('aab') == {'a': 2, 'b': 1}"),
    ("from collections import *\nP = namedtuple('P', 'x y')\ndef f(x): return [P(x, 1)]", "assert f(2) == [(2, 1)]"),
    ("def half(x): return x / 2\ndef f(x): return half(half(x))", "assert abs(f(1) - .25) < 1e-9"),
    (
        "def f(x):\n    if x < 0: raise ValueError('below 0')",
        "try: f(-1)\nexcept ValueError as e: assert 'below' in str(e)\nelse: raise AssertionError\nassert f(1) is None",
    ),
    ("class Low(KeyError): pass\ndef f(x): raise Low(x)", "try: f(1)\nexcept LookupError: pass\nelse: assert False"),
    (
        "class S:\n    xs = []\ndef f(xs):\n    s = S()\n    s.xs = xs\n    return s.xs[-1]",
        "assert f([1, 2]) == 2",
    ),
    (
        "import math, re, heapq, itertools\ndef f(*a, key=1, **k): return [a, key, k]",
        "assert f(1, 2, key=3, z=4) == [(1, 2), 3, {'z': 4}]",
    ),
    (
        "def f(x): return x\ndef g(x): return x + 1",
        "assert g(f(1)) == f(g(1)) == 2 and [f(i) for i in [0, 1]] == [0, 1]",
    ),
    ("seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)", "f(1)\nassert f(1) == 2"),
    ("print('to nobody')\ndef f(x):\n    print(x)\n    return x", "print(f(1))\nassert f(1) == 1"),
]


@pytest.mark.parametrize(("program", "tests"), RIGHT)
def test_right_programs_pass(program: str, tests: str) -> None:
    assert sandbox.run(program, tests) == sandbox.Outcome(True, "passed")


@pytest.mark.parametrize(
    ("program", "tests", "reason"),
    [
        ("class A: pass\ndef f(): return A()", "f()", "a A is not data: only numbers, text and collections"),
        ("def f(): yield 1", "assert list(f()) == [1]", "a generator is not data"),
        ("def f(g): return g(1)", "assert f(lambda x: x) == 1", "a test that cannot be asked: a function is not data"),
        ("def f(x): x.append(1)", "a = []\nf(a)\nassert a == [1]", "AssertionError"),
        ("x = 1", "assert f(1) == 1", "NameError: name 'f' is not defined"),
        ("f = 1", "assert f(1) == 1", "TypeError: 'int' object is not callable"),
        ("def f(x): return 1", "assert f(1) == 2, 'one'", "AssertionError: one"),
        ("def f(x): return x", "assert f(", "SyntaxError"),
    ],
)
def test_what_cannot_be_asked_fails_and_says_so(program: str, tests: str, reason: str) -> None:
    outcome = sandbox.run(program, tests)
    assert not outcome.passed and outcome.reason.startswith(reason), outcome


def test_flooding_the_result_fills_nothing_and_forges_nothing() -> None:
    flood = """
        import os
        for place in range(3, 32):
            try:
                for _ in range(999):
                    os.write(place, b'passed' * 999)
            except OSError:
                pass
        os._exit(0)
    """
    outcome = loads(textwrap.dedent(flood), limits=SHORT)
    assert not outcome.passed


CALLS = {
    "fork": 57, "vfork": 58, "unshare": 272, "mount": 165, "ptrace": 101, "bpf": 321, "keyctl": 250,
    "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "mq_open": 240,
    "process_vm_writev": 311, "pidfd_getfd": 438,
}  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize(("number", "name"), [(number, name) for name, number in CALLS.items()])
def test_system_calls_made_by_hand(number: int, name: str) -> None:
    program = f"""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        answers = []
        for number in ({number}, {number} | 1 << 30):
            ctypes.set_errno(0)
            answer = libc.syscall(number, 0, 0, 0, 0, 0)
            answers.append((answer, ctypes.get_errno()))
        assert answers == [(-1, 1), (-1, 1)], answers
    """
    assert loads(textwrap.dedent(program)) == sandbox.Outcome(True, "passed")


def test_privileges() -> None:
    program = """
        import ctypes, os, resource
        assert os.getuid() == 65534 and os.geteuid() == 65534
        for attempt in (lambda: os.setuid(0), lambda: resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40)),
                        lambda: os.chroot("/"), lambda: os.mknod("/x")):
            try:
                attempt()
            except (OSError, ValueError):
                continue
            raise SystemExit("a privilege was there")
    """
    assert loads(textwrap.dedent(program)) == sandbox.Outcome(True, "passed")


def test_without_a_sandbox_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    program = f"open({str(mark)!r}, 'w')"
    monkeypatch.setattr(sys, "platform", "darwin")
    sandbox._missing.cache_clear()
    with pytest.raises(EditkitError, match="it needs Linux, and this is darwin.*Nothing was run.*apt-get install"):
        loads(program)
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    sandbox._missing.cache_clear()
    with pytest.raises(EditkitError, match=r"bwrap\) is not installed"):
        loads(program)
    monkeypatch.undo()
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(broken))
    sandbox._missing.cache_clear()
    with pytest.raises(EditkitError, match="bwrap fails .No permissions.*user namespaces may be forbidden"):
        loads(program)
    monkeypatch.undo()
    sandbox._missing.cache_clear()
    assert not mark.exists()
    assert loads("assert True").passed
