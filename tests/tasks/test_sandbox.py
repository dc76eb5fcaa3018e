"""Escape attempts: each works outside, fails inside, and is reported.

If one fails: code that a model wrote reads files, uses the network or stays alive on the user's machine.
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

MISSING = sandbox._missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no sandbox on this machine: {MISSING}")

SHORT = Limits(seconds=3.0, memory=256 * 2**20)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No process of the sandbox outlives its run."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    after = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    gone, alive = psutil.wait_procs(after, timeout=5)
    assert not alive


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
    assert sandbox.run(program) == sandbox.Outcome(True, "passed")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 + 1 == 3", "AssertionError"),
        ("def f(:", "SyntaxError"),
        ("import numpy", "ModuleNotFoundError"),
        ("input()", "EOFError"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import os; os._exit(0)", "ended early, exit status 0"),
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
    outcome = sandbox.run(program, limits=Limits(1.5))
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
            outcome = sandbox.run(attempt)
            assert not outcome.passed and ("refused" in outcome.reason or "unreachable" in outcome.reason)
    for attempt in (
        "import socket; socket.create_connection(('1.1.1.1', 53), 2)",
        "import socket; socket.getaddrinfo('example.org', 80)",
    ):
        assert not sandbox.run(attempt).passed


def test_home_directory_and_files(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hf_secret")
    read = f"assert open({str(secret)!r}).read() == 'hf_secret'"
    assert outside(read).returncode == 0
    assert sandbox.run(read).reason.startswith("FileNotFoundError")
    for path in (
        Path.home(),
        Path(__file__).parent,
        Path("/etc"),
        Path("/proc"),
        Path("/sys"),
        Path("/tmp"),
        Path("/root"),
    ):
        assert sandbox.run(f"import os; os.listdir({str(path)!r})").reason.startswith("FileNotFoundError"), path
    assert sandbox.run("import os; assert sorted(os.listdir('/dev')) == ['null']").passed


def test_the_token_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert outside("import os; assert 'hf_secret' in str(os.environ)").returncode == 0
    assert sandbox.run("import os; assert 'hf_secret' not in str(os.environ) and 'HOME' not in os.environ").passed
    assert not sandbox.run("import os; open(f'/proc/{os.getppid()}/environ')").passed


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
    assert sandbox.run(textwrap.dedent(program)) == sandbox.Outcome(True, "passed")


def test_killing_the_parent() -> None:
    me = os.getpid()
    for attempt in (f"os.kill({me}, 9)", "os.kill(os.getppid(), 9)", "os.kill(-1, 9)", "os.killpg(0, 9)"):
        outcome = sandbox.run(f"import os, time\n{attempt}\ntime.sleep(0.1)\nassert os.getppid() <= 1", limits=SHORT)
        # Process 1 in there is bubblewrap's; nothing outside has a number. To kill itself is to fail.
        assert outcome.passed or outcome.reason.startswith(("ProcessLookupError", "ended early")), (attempt, outcome)
    assert psutil.pid_exists(me)
    assert sandbox.run("assert True").passed


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
    outcome = sandbox.run(program, limits=Limits(1.0 if "stopped" in reason else 10.0, SHORT.memory))
    assert not outcome.passed
    assert re.search(reason, outcome.reason), outcome
    assert len(outcome.reason) <= 300


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
    outcome = sandbox.run(textwrap.dedent(flood), limits=SHORT)
    assert not outcome.passed


CALLS = {"fork": 57, "vfork": 58, "shmget": 29, "unshare": 272, "mount": 165, "ptrace": 101, "bpf": 321, "keyctl": 250}


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
    assert sandbox.run(textwrap.dedent(program)) == sandbox.Outcome(True, "passed")


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
    assert sandbox.run(textwrap.dedent(program)) == sandbox.Outcome(True, "passed")


def test_without_a_sandbox_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    program = f"open({str(mark)!r}, 'w')"
    monkeypatch.setattr(sys, "platform", "darwin")
    sandbox._missing.cache_clear()
    with pytest.raises(EditkitError, match="it needs Linux, and this is darwin.*Nothing was run.*apt-get install"):
        sandbox.run(program)
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    sandbox._missing.cache_clear()
    with pytest.raises(EditkitError, match=r"bwrap\) is not installed"):
        sandbox.run(program)
    monkeypatch.undo()
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(broken))
    sandbox._missing.cache_clear()
    with pytest.raises(EditkitError, match="bwrap fails .No permissions.*user namespaces may be forbidden"):
        sandbox.run(program)
    monkeypatch.undo()
    sandbox._missing.cache_clear()
    assert not mark.exists()
    assert sandbox.run("assert True").passed
