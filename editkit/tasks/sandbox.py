"""Runs Python that a model wrote where it can reach nothing: bubblewrap, a system-call filter and hard limits.

    run("def add(a, b): return a + b\\nassert add(2, 3) == 5")   -> Outcome(passed=True, reason="passed")
    run("open('/etc/passwd')")                                  -> Outcome(False, "FileNotFoundError: ...")
    run("while True: pass")                                     -> Outcome(False, "stopped after 10 s")

Inside there is one process without capabilities in its own namespaces: no network, an empty environment, and a
read-only view of the Python installation, the shared libraries and /dev/null; nothing can be written anywhere. It can
make no process or thread, and memory, processor time and output are limited by the kernel. Programs may take input from
nobody. Where this cannot be had, nothing runs: there is no fallback.

A program passes if it reaches its end. It cannot end early and pass: the last step writes a number that it was never
given. Code that searches the interpreter's memory for it could cheat its own score, but not leave the sandbox.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from editkit.errors import EditkitError


@dataclass(frozen=True)
class Limits:
    """Seconds by the clock, and bytes of address space."""

    seconds: float = 10.0
    memory: int = 512 * 2**20


@dataclass(frozen=True)
class Outcome:
    """Whether the program reached its end; else the error it died of, or the limit it met."""

    passed: bool
    reason: str


OUTPUT = 4096
"""Bytes that may be written to any one file: the result, and nothing else is writable."""

RUNNER = f"""
import os, resource, sys
import json
job = json.loads(sys.stdin.buffer.read())
result = os.dup(1)
null = os.open("/dev/null", os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
for limit, value in (("AS", job["memory"]), ("CPU", job["cpu"]), ("FSIZE", {OUTPUT}), ("NOFILE", 32), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + limit), (value, value))
nonce, text, names = job["nonce"], job["program"], {{"__name__": "__program__"}}
del job
try:
    exec(compile(text, "program", "exec"), names)
    verdict = "passed"
except BaseException as error:
    try:
        verdict = (type(error).__name__ + ": " + str(error))[:300]
    except BaseException:
        verdict = "an error that cannot be shown"
os.write(result, (nonce + verdict).encode("utf-8", "replace"))
os._exit(0)
"""

# Numbers of the system calls that are answered with "not permitted", from the kernel's tables. First the ways to make
# a process or thread, then memory that no limit counts (shmget), then doors that a pure program has no need for.
_ARCHES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "clone": 56, "fork": 57, "vfork": 58, "clone3": 435, "shmget": 29, "ptrace": 101, "unshare": 272,
            "setns": 308, "mount": 165, "bpf": 321, "io_uring_setup": 425, "add_key": 248, "request_key": 249,
            "keyctl": 250, "perf_event_open": 298, "userfaultfd": 323,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "clone": 220, "clone3": 435, "shmget": 194, "ptrace": 117, "unshare": 97, "setns": 268, "mount": 40,
            "bpf": 280, "io_uring_setup": 425, "add_key": 217, "request_key": 218, "keyctl": 219,
            "perf_event_open": 241, "userfaultfd": 282,
        },
    ),
}  # fmt: skip


def run(program: str, *, limits: Limits = Limits()) -> Outcome:
    """Run ``program`` to its end, or to a limit.

    Raises:
        EditkitError: if this machine has no sandbox; nothing has run then.
    """
    require()
    return _run(program, limits)


def require() -> None:
    """Raises EditkitError, with what to do, unless a sandbox works on this machine."""
    if reason := _missing():
        raise EditkitError(
            f"Code that a model wrote runs only in a sandbox, and there is none here: {reason} Nothing was run. "
            "Install bubblewrap on Linux (apt-get install bubblewrap), or leave out the tasks that run code."
        )


def _run(program: str, limits: Limits) -> Outcome:
    nonce = secrets.token_hex(16)
    job = {"program": program, "nonce": nonce, "memory": limits.memory, "cpu": int(limits.seconds) + 2}
    with tempfile.TemporaryFile() as task, tempfile.TemporaryFile() as result, _filter() as syscalls:
        task.write(json.dumps(job).encode())
        task.seek(0)
        with subprocess.Popen(
            _command(syscalls.fileno()),
            stdin=task,
            stdout=result,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            pass_fds=(syscalls.fileno(),),
            start_new_session=True,
        ) as process:
            try:
                process.wait(limits.seconds)
            except subprocess.TimeoutExpired:
                return Outcome(False, f"stopped after {limits.seconds:g} s")
            finally:
                # bwrap dies, and with it (--die-with-parent, own process namespace) everything inside.
                process.kill()
        result.seek(0)
        text = result.read(OUTPUT).decode("utf-8", "replace")
    if not text.startswith(nonce):
        return Outcome(False, f"ended early, exit status {process.returncode}")
    # The model chose the words of its error: no control characters into terminals and reports.
    verdict = "".join(character if character.isprintable() else " " for character in text[len(nonce) :]).strip()
    return Outcome(verdict == "passed", verdict)


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
    return [bwrap, *apart, *sealed, *shown, *end, "--", python, "-I", "-S", "-B", "-c", RUNNER]


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
    steps += [(equal, len(listed) - place, 0, number) for place, number in enumerate(listed)]
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
        command = _command(syscalls.fileno())[:-1] + ["pass"]
        tried = subprocess.run(
            command, stdin=nothing, capture_output=True, env={}, pass_fds=(syscalls.fileno(),), timeout=60
        )
    if tried.returncode:
        return f"bwrap fails ({tried.stderr.decode(errors='replace').strip()[:200]}); user namespaces may be forbidden."
    return ""
