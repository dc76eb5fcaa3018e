"""What is installed is whole: recipes, templates and the organism travel in the wheel.

If one fails: `pip install` gives a program that misses its files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from editkit.removal import recipe as recipes

pytestmark = pytest.mark.commit
ROOT = Path(__file__).parents[1]
SHORT = {
    "retain": ["rhyme", "recall", "facts", "story"],
    "examples": {"locate": 40, "choose": 20, "report": 20},
    "universal_examples": 12,
    "random_sets": 0,
    "audits": "none",
    "damage": {"each": 0.5, "mean": 0.5},
}
"""Enough to run every part of what is installed."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, far from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed: Path, *arguments: str) -> str:
    """What ``editkit ARGUMENTS`` prints, with the wheel's modules and no others."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(installed), "NO_COLOR": "1"}
    script = (
        f"import editkit; assert editkit.__file__.startswith({str(installed)!r}); from editkit.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, *arguments], cwd=installed.parent, env=environment, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_package_is_there(installed: Path) -> None:
    beside = {"editkit": "editkit", "recipes": "editkit/recipes"}
    for folder, there in beside.items():
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert files and not [
            path for path in files if not (installed / there / path.relative_to(ROOT / folder)).is_file()
        ]


def test_recipes_and_tasks_are_listed(installed: Path) -> None:
    assert "swear" in run(installed, "recipes") and "swear" in run(installed, "tasks")


def test_a_head_is_removed_from_the_bundled_model(installed: Path, tmp_path: Path) -> None:
    run(installed, "bake", "--heads", "L1H3", "-o", str(tmp_path / "out"))
    assert "every other byte is the base's" in run(installed, "verify", str(tmp_path / "out"), "--base", "organism")


@pytest.mark.thorough
def test_the_bundled_model_loses_a_capability(installed: Path, tmp_path: Path) -> None:
    short = recipes.read("swear").model_dump(mode="json") | SHORT
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(short), "utf-8")
    out = tmp_path / "out"
    run(installed, "remove-capability", str(tmp_path / "short.yaml"), "--out", str(out), "--work", str(tmp_path / "w"))
    assert (out / "editkit" / "report.html").is_file() and (out / "README.md").is_file()
    run(installed, "verify", str(out))
