"""A store on a network disk belongs to the processes of one machine at a time: SQLite cannot share it between machines.

    with claimed(Path("runs/measurements.sqlite")):     # on NFS: runs/measurements.sqlite.used-by-node7-4711 meanwhile
        ...

On a disk of this machine there is nothing to claim.
What a killed process left is cleared by the next one on its machine.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from editkit.errors import EditkitError

NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.")
"""How the types of file systems begin that several machines may have mounted."""
LOCAL = ("fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.snapfuse")
"""Those that begin so, and are local."""


@contextmanager
def claimed(store: Path) -> Iterator[None]:
    """Hold the store while the block runs, if it lies on a network disk.

    Raises:
        EditkitError: another machine has it.
    """
    kind = kind_of(store.parent, _mounts())
    if not kind.startswith(NETWORK) or kind in LOCAL:
        yield
        return
    own = store.with_name(f"{store.name}.used-by-{platform.node()}-{os.getpid()}")
    own.touch()  # before others are looked for: of two that come at once both see each other
    try:
        for other in store.parent.glob(f"{store.name}.used-by-*"):
            _refuse(other, store, kind)
        yield
    finally:
        own.unlink(missing_ok=True)


def kind_of(folder: Path, mounts: str) -> str:
    """The type of the file system that a folder lies on; empty where nothing tells.

    Args:
        mounts: lines as in ``/proc/mounts``: device, place, type, ...
    """
    path, found = os.path.realpath(folder), ("", "")
    for line in mounts.splitlines():
        _, place, kind, *_ = [*line.split(), "", "", ""]
        place = place.replace("\\040", " ")
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if place and inside and len(place) >= len(found[0]):
            found = (place, kind)
    return found[1]


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text("utf-8", "replace")
    except OSError:  # not Linux
        return ""


def _refuse(claim: Path, store: Path, kind: str) -> None:
    host, _, process = claim.name.rpartition(".used-by-")[2].rpartition("-")
    if host == platform.node():
        if process.isdigit() and not psutil.pid_exists(int(process)):
            claim.unlink(missing_ok=True)
        return
    raise EditkitError(
        f"{store} lies on a network disk ({kind}), and a run on {host} (process {process}) has it: SQLite cannot share "
        f"a file between machines. Wait for that run, or choose another --work; if it is dead, delete {claim}."
    )
