"""The way back: OUT's files with the removed slices put in their places again.

undo(Path("no-swear"), Path("base")).describe()     "base: the base, bit for bit"

OUT is verified first. What comes back is called the base only where it was compared with the base itself: OUT's own
records say what was meant, and whoever can change OUT can change them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editkit.checkpoints import gguf
from editkit.checkpoints.files import digest_of, inside, printable
from editkit.checkpoints.source import Source, at_hand, recorded, resolve
from editkit.checkpoints.staging import beside, check_apart, check_free
from editkit.edit import Base
from editkit.errors import IntegrityError
from editkit.progress import Stages, silent
from editkit.writing import undo_file
from editkit.writing.export import gguf as in_blocks
from editkit.writing.undo_file import Undo, put_back
from editkit.writing.verify import verify


@dataclass(frozen=True)
class Undone:
    """A base that was restored.

    Args:
        compared: every file is the base's, which was at hand, byte for byte.
        proved: the weights hash to the revision that the edit names.
        left_out: files of the base that OUT never held, and why.
    """

    directory: Path
    base: Base
    compared: bool
    proved: bool
    left_out: tuple[Mapping[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        base = {"model": self.base.model, "revision": self.base.revision}
        told = {"out": str(self.directory), "base": base, "compared": self.compared, "proved": self.proved}
        return {**told, "left_out": [dict(row) for row in self.left_out]}

    def describe(self) -> str:
        """One sentence for the terminal."""
        directory, name = printable(str(self.directory)), printable(self.base.model)
        if self.compared:
            return f"{directory}: the base, bit for bit"
        told = f"its weights are those of {self.base.revision}. " if self.proved else ""
        return (
            f"{directory}: what was recorded as {name}; {told}{'The rest' if told else 'It'} was not compared with "
            "the base: --base MODEL does that"
        )


def undo(
    out: str | Path,
    directory: str | Path,
    *,
    base: Source | str | Path | None = None,
    stages: Stages = silent,
) -> Undone:
    """Restore the base of OUT into a new ``directory``: its own file names, every file that OUT keeps.

    Files that OUT left out (other formats of the weights) are not restored.

    Args:
        base: the unedited model, or its name: then OUT is compared with it first. None: with the one that the edit
            names, where it is on this machine and still what it was.
        stages: told while a base is converted.

    Raises:
        IntegrityError: OUT is not what editkit wrote, is no edit of ``base``, or a restored file does not hash to what
            the base's did; nothing is written then.
    """
    out, directory = Path(out), Path(directory)
    if (file := gguf.file_of(out)) is not None:
        if base is not None:
            verify(out, base)
        restored = in_blocks.undo(file, directory)  # whose hash is the revision that the edit names
        return Undone(restored, in_blocks.read(file).edit.base, compared=True, proved=True)
    verify(out)
    record = undo_file.read(out)
    check_apart(directory, [out], "the output that is to be undone")
    check_free(directory, needed=sum(kept.size for kept in record.files.values()))
    if not any(kept.at for kept in record.files.values()):  # an adapter: the base itself is unchanged
        if base is None or isinstance(base, str | Path):
            base = resolve(base or record.base.model, record.base.revision, stages=stages)
        check_apart(directory, base.folders, "the base checkpoint")
        _restore(record, out, base.directory, directory)
        return Undone(directory, record.base, True, True, record.left_out)
    compared = _compared(out, record, base, stages)
    _restore(record, out, out, directory)
    return Undone(directory, record.base, compared, record.revision is not None, record.left_out)


def _compared(out: Path, record: Undo, base: Source | str | Path | None, stages: Stages) -> bool:
    """Whether OUT is an edit of the base, to the byte; only a base that was asked for must be."""
    if base is not None:
        given = base if isinstance(base, Source) else resolve(base, recorded(base, record.base), stages=stages)
        return verify(out, given).against_base
    there = at_hand(record.base, record.files)
    try:
        return there is not None and verify(out, there).against_base
    except IntegrityError:  # it has changed since: then OUT's copy is what it was
        return False


def _restore(record: Undo, out: Path, origin: Path, directory: Path) -> None:
    with beside(directory) as target:
        wrong = []
        for name, kept in sorted(record.files.items()):
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(inside(origin, kept.at or name), path)
            put_back(record, kept.at or name, path)
            if digest_of(path) != kept.sha256:
                wrong.append(name)
        if wrong:
            cause = "Its removed slices are not the base's."
            if origin != out:
                cause = f"Changed since in the base, {printable(str(origin))}: bring back there what it was."
            listed = ", ".join(wrong)
            raise IntegrityError(
                f"{printable(str(out))}: cannot restore {listed}: the result is not what the base was. {cause}"
            )
