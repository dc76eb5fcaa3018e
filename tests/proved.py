"""Whether all tests passed on this tree already: tests/proved.json holds what they passed on, and is committed.

    python -m tests.proved             says what is new since, and exits 1; silent where nothing is
    python -m tests.proved --record    at the end of `make test-all`

Only what the thorough tests protect counts: model types, hooks, writers, searches and removals.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "proved.json"
LIBRARIES = ("transformers", "torch", "peft", "safetensors")
PROTECTED = ("editkit/checkpoints", "editkit/models", "editkit/writing", "editkit/edit.py", "editkit/units.py")
PROTECTED += (
    "editkit/localizers",
    "editkit/removal",
    "docs/architectures.md",
    "tests/test_every_type.py",
    "tests/tiny.py",
    "tests/architecture_table.py",
)


def state() -> dict[str, str]:
    """What the tests depend on -> its version or digest."""
    versions = {name: version(name).partition("+")[0] for name in LIBRARIES}
    return versions | {path: digest(ROOT / path) for path in PROTECTED}


def digest(path: Path) -> str:
    """SHA-256 over the names and bytes of a file or of all files below a folder, caches apart."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    whole = hashlib.sha256()
    for file in files:
        if "__pycache__" not in file.parts:
            whole.update(f"{file.relative_to(ROOT).as_posix()}\0".encode())
            whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def new() -> list[str]:
    """What is not as it was when all tests passed."""
    proved = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    return [name for name, value in state().items() if proved.get(name) != value]


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        RECORD.write_text(json.dumps(state(), indent=2) + "\n", "utf-8")
    elif changed := new():
        sys.exit(f"All tests must run: {', '.join(changed)} changed since they passed.")
