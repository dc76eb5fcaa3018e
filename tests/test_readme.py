"""What the README shows is what happens.

If one fails: the first thing that a newcomer copies does not work.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from editkit.cli import main
from editkit.removal import recipe
from tests.conftest import Removed

ROOT = Path(__file__).resolve().parents[1]
README, PYTHON = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/python.md"))


@pytest.mark.commit
@pytest.mark.usefixtures("undrawn")
def test_the_python_example_runs(
    removed: Removed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With few examples, most of them measured already by the same removal."""
    [code] = re.findall(r"```python\n(.*?)```", PYTHON, flags=re.DOTALL)
    removed("quick")
    quick = removed.recipe.read_text()
    monkeypatch.setattr(recipe, "text", lambda name: quick)
    monkeypatch.setenv("EDITKIT_CACHE", str(removed.cache))
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code, "docs/python.md", "exec"), names)
    assert names["result"].report.verdict.met
    [target] = [row for row in names["report"].rows if row.task == "swear"]
    assert target.after.mean < 0.15 * target.before.mean
    assert (tmp_path / "no-swear" / "model.safetensors").is_file()
    assert "bus" in capsys.readouterr().out


def test_every_command_exists() -> None:
    shell = "".join(re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL))
    for command in re.findall(r"^editkit ([a-z-]+)", shell, flags=re.MULTILINE):
        assert command in main.commands
