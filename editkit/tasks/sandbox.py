"""Runs Python that a model wrote where it can reach nothing, and judges it from outside: bubblewrap, a system-call
filter and hard limits, twice.

    run("def add(a, b): return a + b", "assert add(2, 3) == 5")   -> Outcome(passed=True, reason="passed")
    run("def add(a, b): return 6", "assert add(2, 3) == 5")       -> Outcome(False, "AssertionError: ")
    run("open('/etc/passwd')", "assert True")                     -> Outcome(False, "FileNotFoundError: ...")
    run("while True: pass", "assert True")                        -> Outcome(False, "stopped after 10 s")

Inside a sandbox there is one process without capabilities in its own namespaces: no network, an empty environment, and
a read-only view of the Python installation, the shared libraries and /dev/null; nothing can be written anywhere. It can
make no process or thread, and memory, processor time and output are limited by the kernel. Programs may take input from
nobody. Where this cannot be had, nothing runs: there is no fallback.

The program runs in one sandbox and its tests in another. The tests ask for the program's functions over a pipe on which
only data passes (``two_sides.py``), and the verdict is one byte that the tests' process writes. A program cannot reach
that process, so whatever it does to its own interpreter, it passes only by answering what the tests expect. What cannot
be asked so fails, and the reason says it: objects of the program's own classes, functions as arguments or results,
generators; and an argument that the program changes in place is not changed for the tests.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from editkit.errors import EditkitError
from editkit.tasks import two_sides


@dataclass(frozen=True)
class Limits:
    """Seconds by the clock, and bytes of address space."""

    seconds: float = 10.0
    memory: int = 512 * 2**20


@dataclass(frozen=True)
class Outcome:
    """Whether the tests reached their end; else the error they or the program died of, or the limit that was met."""

    passed: bool
    reason: str


OUTPUT = 4096
"""Bytes of the verdict that are read."""

# Numbers of the system calls that are answered with "not permitted", from the kernel's tables. First the ways to make
# a process or thread, then System V's and POSIX's shared memory, semaphores and message queues, which no limit counts,
# then doors that a pure program has no need for.
_ARCHES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "clone": 56, "fork": 57, "vfork": 58, "clone3": 435,
            "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64, "semop": 65, "semctl": 66,
            "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240,
            "mq_unlink": 241, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_open": 434,
            "pidfd_getfd": 438, "unshare": 272, "setns": 308,
            "mount": 165, "bpf": 321, "io_uring_setup": 425, "add_key": 248, "request_key": 249,
            "keyctl": 250, "perf_event_open": 298, "userfaultfd": 323,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "clone": 220, "clone3": 435,
            "shmget": 194, "shmctl": 195, "shmat": 196, "shmdt": 197, "semget": 190, "semctl": 191,
            "semtimedop": 192, "semop": 193, "msgget": 186, "msgctl": 187, "msgrcv": 188, "msgsnd": 189,
            "mq_open": 180, "mq_unlink": 181, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
            "pidfd_open": 434, "pidfd_getfd": 438, "unshare": 97, "setns": 268, "mount": 40,
            "bpf": 280, "io_uring_setup": 425, "add_key": 217, "request_key": 218, "keyctl": 219,
            "perf_event_open": 241, "userfaultfd": 282,
        },
    ),
}  # fmt: skip


def run(program: str, tests: str, *, limits: Limits = Limits()) -> Outcome:
    """Run ``tests`` against ``program``, to the end or to a limit.

    Args:
        tests: Python that asserts. A name that it uses and neither defines nor is built in is the program's;
            ``__program__.name`` is so always.

    Raises:
        EditkitError: if this machine has no sandbox; nothing has run then.
    """
    require()
    job = {"program": program, "tests": tests, "memory": limits.memory, "cpu": int(limits.seconds) + 2}
    with ExitStack() as opened:
        task, result = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        task.write(json.dumps(job).encode())
        task.seek(0)
        calls, answers = os.pipe(), os.pipe()
        try:
            opened.enter_context(_started(calls[0], answers[1]))
            judge = opened.enter_context(_started(task, result, calls[1], answers[0]))
        finally:
            for end in (*calls, *answers):  # or neither side would see the other's end
                os.close(end)
        try:
            judge.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            return Outcome(False, f"stopped after {limits.seconds:g} s")
        result.seek(0)
        verdict = result.read(OUTPUT)
    # The program chose the words of its error: no control characters into terminals and reports.
    said = "".join(sign if sign.isprintable() else " " for sign in verdict[1:].decode("utf-8", "replace")).strip()
    passed = verdict[:1] == b"1"
    return Outcome(passed, "passed" if passed else said or f"the tests ended early, exit status {judge.returncode}")


def require() -> None:
    """Raises EditkitError, with what to do, unless a sandbox works on this machine."""
    if reason := _missing():
        raise EditkitError(
            f"Code that a model wrote runs only in a sandbox, and there is none here: {reason} Nothing was run. "
            "Install bubblewrap on Linux (apt-get install bubblewrap), or leave out the tasks that run code."
        )


@contextmanager
def _started(stdin: IO[bytes] | int, stdout: IO[bytes] | int, *pipes: int) -> Iterator[subprocess.Popen[bytes]]:
    """One sandbox with ``two_sides.py`` in it: the judge if it is given pipes to the worker, else the worker."""
    with _filter() as syscalls:
        process = subprocess.Popen(
            [*_command(syscalls.fileno()), *map(str, pipes)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            pass_fds=(syscalls.fileno(), *pipes),
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            # bwrap dies, and with it (--die-with-parent, own process namespace) everything inside.
            process.kill()


def _command(syscalls: int) -> list[str]:
    """bwrap with an empty root, the interpreter and its libraries read-only, and every namespace its own."""
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    prefix, interpreter = Path(sys.base_prefix).resolve(), Path(sys.executable).resolve()
    shown: list[str] = []
    for folder in ("/usr/lib", "/usr/lib64", "/lib", "/lib64"):
        if Path(folder).is_symlink():
            shown += ["--symlink", os.readlink(folder), folder]
        else:
            shown += ["--ro-bind-try", folder, folder]
    if prefix == Path("/usr"):
        shown += ["--ro-bind", str(interpreter), "/python/bin/python", "--setenv", "PYTHONHOME", "/usr"]
    else:
        # Under another name, because the installation's own path may show the user's.
        shown += ["--ro-bind", str(prefix), "/python", "--setenv", "PYTHONHOME", "/python"]
        shown += ["--setenv", "LD_LIBRARY_PATH", "/python/lib"]
    python = "/python/bin/python" if prefix == Path("/usr") else f"/python/{interpreter.relative_to(prefix)}"
    apart = ["--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"]
    sealed = ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    end = ["--dev-bind", "/dev/null", "/dev/null", "--chdir", "/", "--remount-ro", "/", "--seccomp", str(syscalls)]
    return [bwrap, *apart, *sealed, *shown, *end, "--", python, "-I", "-S", "-B", "-c", inspect.getsource(two_sides)]


def _filter() -> IO[bytes]:
    """A file with the system-call filter, as the kernel's BPF: refuse foreign calling conventions and listed calls."""
    machine, calls = _ARCHES[platform.machine()]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    kill, refuse, allow = 0x80000000, 0x00050000 | 1, 0x7FFF0000  # 1 is EPERM
    # execve stays allowed, because the interpreter itself starts by it. It makes no process, and there is nothing to
    # execute but the same interpreter.
    listed = list(calls.values())
    steps = [(load, 0, 0, 4), (equal, 1, 0, machine), (answer, 0, 0, kill), (load, 0, 0, 0)]
    # x86_64 has a second convention, x32, in numbers from 2**30 on; elsewhere no call has such a number.
    steps += [(at_least, len(listed) + 1, 0, 2**30)]
    steps += [(equal, len(listed) - at, 0, number) for at, number in enumerate(listed)]
    steps += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    file.write(b"".join(struct.pack("=HBBI", *step) for step in steps))
    file.seek(0)
    return file


@lru_cache(maxsize=1)
def _missing() -> str:
    """Why there is no sandbox, or ""; tried for real, once."""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}."
    if platform.machine() not in _ARCHES:
        return f"it knows {' and '.join(_ARCHES)} processors, and this is {platform.machine()}."
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed."
    with _filter() as syscalls, tempfile.TemporaryFile() as nothing:
        command = [*_command(syscalls.fileno())[:-1], "pass"]
        tried = subprocess.run(
            command, stdin=nothing, capture_output=True, env={}, pass_fds=(syscalls.fileno(),), timeout=60
        )
    if tried.returncode:
        return f"bwrap fails ({tried.stderr.decode(errors='replace').strip()[:200]}); user namespaces may be forbidden."
    return ""
