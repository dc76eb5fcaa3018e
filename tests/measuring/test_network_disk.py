"""Two machines never write one store.

If one fails: measurements are torn, or a run on one machine waits for a process that died long ago.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from editkit.errors import EditkitError
from editkit.measuring import network_disk
from editkit.measuring.network_disk import claimed, kind_of
from editkit.measuring.store import opened

MOUNTS = """
/dev/sda1 / ext4 rw 0 0
filer:/home /home nfs4 rw 0 0
/dev/sdb1 /home/alice/scratch xfs rw 0 0
filer:/a /with\\040space cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var", "ext4"),
        ("/home", "nfs4"),
        ("/home/bob/.cache", "nfs4"),
        ("/homestead", "ext4"),
        ("/home/alice/scratch/x", "xfs"),
        ("/with space/x", "cifs"),
    ],
)
def test_the_disk_of_a_folder_is_the_nearest_one_that_is_mounted_above_it(folder: str, kind: str) -> None:
    """Else a local scratch disk below a network home is refused, or the home is not."""
    assert kind_of(Path(folder), MOUNTS) == kind
    assert kind_of(Path(folder), "") == ""


def test_another_machine_is_refused_and_this_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two drivers tear the store that they share, or a second process here is kept out."""
    store = tmp_path / "measurements.sqlite"
    monkeypatch.setattr(network_disk, "_mounts", lambda: "filer:/x / nfs4 rw 0 0")
    with opened(store), opened(store):
        assert [path.name for path in tmp_path.glob("*.used-by-*")] == [
            f"{store.name}.used-by-{network_disk.platform.node()}-{os.getpid()}"
        ]
    assert not list(tmp_path.glob("*.used-by-*"))
    other = tmp_path / f"{store.name}.used-by-node-7-4711"
    other.touch()
    with pytest.raises(EditkitError, match=r"nfs4.*on node-7 \(process 4711\).*delete"), opened(store):
        pass
    assert list(tmp_path.glob("*.used-by-*")) == [other]


def test_what_a_killed_process_left_here_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the same command cannot resume after kill -9."""
    store = tmp_path / "measurements.sqlite"
    monkeypatch.setattr(network_disk, "_mounts", lambda: "filer:/x / nfs4 rw 0 0")
    left = tmp_path / f"{store.name}.used-by-{network_disk.platform.node()}-{2**22 + 1}"
    left.touch()
    with claimed(store):
        assert not left.exists()


def test_a_local_disk_needs_no_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every run leaves files beside its store."""
    monkeypatch.setattr(network_disk, "_mounts", lambda: "/dev/sda1 / ext4 rw 0 0")
    with claimed(tmp_path / "measurements.sqlite"):
        assert not list(tmp_path.iterdir())
