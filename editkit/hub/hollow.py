"""A remote weights file as its header and a hole of the right size: enough for all that reads metadata, and no weights.

save(lambda start, end: read_bytes(api, repo, commit, "model.safetensors", start, end), size, folder / name)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from editkit.checkpoints import headers
from editkit.checkpoints.files import printable
from editkit.errors import EditkitError


def save(fetch: Callable[[int, int], bytes], size: int, place: Path) -> None:
    """Lay out a safetensors file of ``size`` bytes at ``place``; ``fetch(start, end)`` gives its bytes.

    Raises:
        EditkitError: the header claims what no file of this size can hold.
    """
    first = fetch(0, min(8, size))
    end = 8 + int.from_bytes(first, "little")
    if end > min(size, headers.LARGEST_HEADER):
        raise EditkitError(f"{printable(place.name)}: {size} bytes with a header of {end - 8}: not safetensors.")
    with open(place, "wb") as file:
        file.write(first + fetch(8, end))
        file.truncate(size)
