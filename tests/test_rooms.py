"""The rooms: what imports what, what is installed, and that the docs show the code layout as it is.

If one fails: the code no longer reads in one direction, or the docs show a house that is not there.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tiny import TYPES

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for path in (ROOT / "editkit").rglob("*.py"))
DOCS = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def _room(module: str) -> str:
    """``editkit.tasks.find`` is in ``tasks/``, ``editkit.units`` in ``units.py``."""
    parts = module.split(".")[1:] or ["__init__"]
    return f"{parts[0]}/" if (ROOT / "editkit" / parts[0]).is_dir() else f"{parts[0]}.py"


def _order() -> list[str]:
    """The rooms in the order of the docs: the import order."""
    block = DOCS.split("```text\neditkit/\n", 1)[1].split("```", 1)[0]
    return re.findall(r"^  ([a-z_]+(?:\.py|/))", block, flags=re.MULTILINE)


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> set[str]:
    """All modules of editkit that a file imports, at its top, inside functions and for types alone."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: name what you import in full"
            named |= {f"{node.module}.{alias.name}" for alias in node.names}
        called = getattr(node, "func", None)
        if isinstance(called, ast.Name) and called.id == "import_module":
            named |= {str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)}
    return {name for name in named if name.startswith("editkit.") and name != "editkit.__version__"}


def test_the_docs_list_every_room_once() -> None:
    rooms = {_room(_module(path)) for path in FILES} - {"__init__.py", "__main__.py"}
    assert sorted(_order()) == sorted(rooms)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_from_rooms_above_it(path: Path) -> None:
    order, here = _order(), _room(_module(path))
    if here in {"__init__.py", "__main__.py"}:
        return
    below = {name for name in _imports(path) if order.index(_room(name)) > order.index(here)}
    assert not below, f"{here} imports {sorted(below)}, which the docs list below it"


@pytest.mark.parametrize(
    "room", ["units", "edit", "tasks.find", "evidence.report", "localizers", "checkpoints.source", "render.card"]
)
def test_rooms_without_a_live_model_import_no_torch(room: str) -> None:
    script = f"import sys, editkit.{room}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_file_that_the_docs_name_is_there() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "tests" / "README.md"]:
        for name in re.findall(
            r"`((?:editkit|tests|benchmarks|recipes)/[\w/-]+\.(?:py|yaml))`", page.read_text("utf-8")
        ):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_the_readme_says_how_many_model_types_the_tests_prove() -> None:
    assert f"{len(TYPES)} model types are proved by the tests" in (ROOT / "README.md").read_text("utf-8")


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
