"""Names of tasks and models as file names: whoever made the evidence chose them."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 100


def file_names(names: Iterable[str], *, unlike: str = r"[^\w.,=+ -]+", sign: str = "__") -> dict[str, str]:
    """A file name for each name: never a path, never hidden, never the same for two, whatever the case.

    Args:
        unlike: what is replaced by ``sign``.
    """
    taken: dict[str, str] = {}
    for name in dict.fromkeys(names):
        plain = stem = re.sub(unlike, sign, name, flags=re.ASCII).strip(". -")[:LONGEST] or sign
        number = 2
        while plain.casefold() in {each.casefold() for each in taken.values()}:
            plain, number = f"{stem}-{number}", number + 1
        taken[name] = plain
    return taken
