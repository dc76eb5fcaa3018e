"""What must not be published by mistake: files that are no part of a checkpoint, and keys and tokens inside others.

found(Path("no-swear"), ["token", "tokenizer_config.json", "model.safetensors"])
["token: not part of the model", "tokenizer_config.json: a token of Hugging Face"]

Only forms that nothing else has are looked for: a tokenizer's vocabulary holds every short string there is. The text
that was found is never shown.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Collection
from pathlib import Path

from editkit.checkpoints.files import inside, printable
from editkit.checkpoints.unshipped import why

_KINDS = {
    "a token of Hugging Face": rb"hf_[A-Za-z0-9]{30,}",
    "a key of OpenAI or Anthropic": rb"sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{32,}",
    "an access key of AWS": rb"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "a token of GitHub": rb"gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,}",
    "a token of GitLab": rb"glpat-[A-Za-z0-9_-]{20,}",
    "a token of Slack": rb"xox[abprs]-[A-Za-z0-9-]{20,}",
    "a key of Google": rb"AIza[A-Za-z0-9_-]{35}",
    "a token of a package index": rb"npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{40,}",
    "a private key": rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY",
}
_PATTERNS = {kind: re.compile(rb"(?<![A-Za-z0-9_])(?:" + pattern + rb")") for kind, pattern in _KINDS.items()}
_ADAPTER = "adapter_config.json"


def found(out: Path, names: Collection[str]) -> list[str]:
    """One line for each file of ``out`` that should stay at home, and why."""
    weights = {name for name in names if name.endswith(".safetensors") and "/" not in name}
    lines = []
    for name in sorted(names):
        reason = why(name, {*weights, _ADAPTER})
        reasons = [reason] if reason else _kinds(inside(out, name))
        lines += [f"{printable(name)}: {each}" for each in reasons]
    return lines


def _kinds(path: Path) -> list[str]:
    """The kinds of secrets that a file holds; of weights, whose numbers look like anything, their metadata."""
    if not path.stat().st_size:
        return []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        end = len(content)
        if path.suffix == ".safetensors":
            end = min(end, 8 + int.from_bytes(content[:8], "little"))
        return [kind for kind, pattern in _PATTERNS.items() if pattern.search(content, 0, end)]
