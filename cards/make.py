"""Render the example cards again from their own evidence, and take in the evidence of further runs.

    python cards/make.py                     # every folder here: card, page and figures, from its JSON files
    python cards/make.py swear=build/demo    # first copy the evidence of a run into cards/swear

An example is a folder with what a run leaves in ``editkit/``, without the weights.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from editkit.render import evidence_folder

HERE = Path(__file__).parent
EVIDENCE = ("edit.json", "localization.json", "report.json", "provenance.json", "examples.jsonl.gz", "attacks.json")


def main(arguments: list[str]) -> None:
    for argument in arguments:
        name, _, run = argument.partition("=")
        take(name, Path(run))
    for example in examples():
        evidence_folder.render(example, evidence_folder.read(example))
        print(example / "README.md")


def examples() -> list[Path]:
    return sorted(path.parent.parent for path in HERE.glob("*/editkit/report.json"))


def take(name: str, run: Path) -> None:
    """Copy a run's evidence; nothing else of it."""
    evidence_folder.read(run)  # complete and readable, or an error that names the file
    folder = HERE / name / "editkit"
    folder.mkdir(parents=True, exist_ok=True)
    for file in EVIDENCE:
        (folder / file).unlink(missing_ok=True)
        if (run / "editkit" / file).exists():
            shutil.copyfile(run / "editkit" / file, folder / file)


if __name__ == "__main__":
    main(sys.argv[1:])
