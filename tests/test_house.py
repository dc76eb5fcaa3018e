"""The house: what imports what, how big a file is, what is installed, and that the docs show it as it is built."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture_table import summary

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for path in (ROOT / "editkit").rglob("*.py"))
DOCS = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def _room(path: Path) -> str:
    """The name under which the docs list a file: ``statistics.py``, or ``render/`` for a file of a folder."""
    parts = path.relative_to(ROOT / "editkit").parts
    return parts[0] if len(parts) == 1 else f"{parts[0]}/"


def _listed() -> list[str]:
    """The rooms in the order of the docs: the import order."""
    block = DOCS.split("```text\neditkit/\n", 1)[1].split("```", 1)[0]
    return re.findall(r"^  ([a-z_]+(?:\.py|/))", block, flags=re.MULTILINE)


def _imports(path: Path) -> set[str]:
    """Rooms imported when the file is imported: not those for types alone, not those inside functions."""
    tree = ast.parse(path.read_text("utf-8"))
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "editkit":
            parts = node.module.split(".")[1:]
            names = [parts[0]] if parts else [alias.name for alias in node.names]
            found |= {f"{name}.py" if (ROOT / "editkit" / f"{name}.py").is_file() else f"{name}/" for name in names}
    return found - {"__version__/"}


def test_the_docs_list_every_room_once() -> None:
    listed, rooms = _listed(), {_room(path) for path in FILES if path.name != "__main__.py"} | {"py.typed"}
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == rooms - {"py.typed", "__init__.py"} | {"__init__.py"} & set(listed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_from_rooms_above_it(path: Path) -> None:
    order, here = _listed(), _room(path)
    if path.name in {"__init__.py", "__main__.py"} and path.parent == ROOT / "editkit":
        return
    below = {room for room in _imports(path) if room != here and order.index(room) > order.index(here)}
    assert not below, f"{here} imports {sorted(below)}, which the docs list below it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_small_enough_to_read(path: Path) -> None:
    # Past about 300 lines a concept is missing a name; a little room is left for what is said in docstrings.
    assert len(path.read_text("utf-8").splitlines()) <= 360


@pytest.mark.parametrize("room", ["units", "errors", "edit", "design", "recover", "statistics", "evaluation", "task"])
def test_the_pure_rooms_import_no_torch(room: str) -> None:
    script = f"import sys, editkit.{room}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_readme_lists_the_architectures_that_the_tests_prove() -> None:
    expected = summary((ROOT / "docs" / "architectures.md").read_text("utf-8"))
    assert expected in (ROOT / "README.md").read_text("utf-8"), "copy architecture_table.summary into the README"


def test_every_package_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    packages = {".".join(path.parent.relative_to(ROOT).parts) for path in FILES if path.name == "__init__.py"}
    assert packages | {"editkit.recipes"} <= set(settings["packages"])


def test_the_text_names_no_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".yaml", ".toml", ".jinja", ".txt", ".cff"} and path.is_file():
            text = path.read_text("utf-8")
            assert "/" + "work/" not in text, name
            assert "/" + "root/" not in text, name
