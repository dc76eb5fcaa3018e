"""Rendering again seals what editkit wrote and nothing else.

If one fails: a file that somebody put into an output passes as editkit's own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from editkit.errors import IntegrityError
from editkit.render import evidence_folder
from editkit.writing import manifest
from editkit.writing.manifest import Manifest
from tests.made_evidence import evidence


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "name", ["payload.py", "README.md: payload.py", "editkit/report.html: x", "editkit/heads.png/x"]
)
def test_a_strangers_file_is_not_sealed(tmp_path: Path, name: str) -> None:
    evidence_folder.write(tmp_path, evidence())
    manifest.write(tmp_path, Manifest("checkpoint", evidence().edit.base, {}))
    evidence_folder.render_again(tmp_path)
    (tmp_path / "editkit" / "heads.png").unlink()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("payload")
    before = (tmp_path / manifest.NAME).read_bytes()
    with pytest.raises(IntegrityError, match="not in the manifest"):
        evidence_folder.render_again(tmp_path)
    assert (tmp_path / manifest.NAME).read_bytes() == before


@pytest.mark.usefixtures("undrawn")
def test_evidence_that_does_not_hold_together_is_one_clear_error(tmp_path: Path) -> None:
    """Each value is of its kind, but one lacks what another promises."""
    good = evidence()
    evidence_folder.write(tmp_path, good)
    localization = replace(good.localization, diagnostics={"together": {"units": 3}})
    (tmp_path / "editkit" / "localization.json").write_text(localization.to_json())
    manifest.write(tmp_path, Manifest("checkpoint", good.edit.base, {}))
    before = (tmp_path / "README.md").read_bytes()
    with pytest.raises(IntegrityError, match="does not hold together"):
        evidence_folder.render_again(tmp_path)
    assert (tmp_path / "README.md").read_bytes() == before
