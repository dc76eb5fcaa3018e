"""What kills leave behind: commands killed at random moments, run again, and compared with a run that nothing stopped.

    make kill N=100                       # writes benchmarks/results/kill.md
    python -m benchmarks.kill -n 12 --only bake --only push

Every second kill falls at any moment of the command; the others shortly after files begin to change, which is where
they are written. An output that is there after a kill must be whole. After the second run every file must be, byte for
byte, that of the run that nothing stopped, and nothing else may lie beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.hub.checkpoint import finish_measured, save_base
from tests.hub.running import ACCOUNTS, Server, environment, publish_base

RESULT = Path(__file__).parent / "results" / "kill.md"
SOON = 0.5
"""Seconds after the first change of a file in which every second kill falls."""
RECIPE = {
    "capability": "swear",
    "target": "swear",
    "retain": ["rhyme", "recall", "facts", "story"],
    "examples": {"locate": 40, "choose": 40, "report": 60},
    "universal_examples": 12,
    "random_sets": 19,
    "random_examples": 12,
    "max_heads": 5,
    "audits": "none",
}
STUDY = {
    "study": "small",
    "summary": "Swearing, by one method, with one head and with four.",
    "models": ["bundled"],
    "methods": ["halving"],
    "heads": [1, 4],
    "capabilities": [{"recipe": RECIPE | {"random_sets": 3, "random_examples": 4}}],
}
CASES = {
    "remove-capability": "remove-capability recipe.yaml --out out --work work",
    "bake": "bake --heads L1H3,L2H17,L3H8,L4H21 -o out",
    "undo": "undo given -o out",
    "audit": "audit out --only token-nats --only prefill --work work",
    "study": "study study.yaml --out out --work work",
    "push": "push given alice/x",
}
GIVEN = {"undo": ("bake", "given"), "audit": ("remove-capability", "out")}
"""What is there before: the result of another command, under a name."""
OURS = {"work", "cache", "home", "hub"}
"""Folders of measurements and downloads, which may differ."""


@dataclass
class Tally:
    """What became of a command's runs. ``there``: outputs that a kill left."""

    seconds: float = 0.0
    kills: int = 0
    late: int = 0
    there: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass
class Place:
    """A folder in which a command runs."""

    folder: Path
    words: list[str]
    hub: Server | None = None

    @property
    def contents(self) -> dict[str, str]:
        """Each file and what is in it: of the folder, or of the repository."""
        if self.hub is not None:
            listed = self.hub.api().list_repo_tree("alice/x", recursive=True)
            return {file.path: file.blob_id for file in listed if hasattr(file, "blob_id")}
        return {str(path.relative_to(self.folder)): digest(path) for path in self.files()}

    def files(self) -> Iterator[Path]:
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.relative_to(self.folder).parts[0] not in OURS:
                yield path

    def start(self, *words: str) -> subprocess.Popen[str]:
        mine = {"EDITKIT_CACHE": str(self.folder / "cache"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        known = os.environ | mine if self.hub is None else environment(self.hub, self.folder / "home")
        command = [sys.executable, "-m", "editkit", *(words or self.words)]
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            command, cwd=self.folder, env=known | {"PYTHONPATH": path}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip

    def killed(self, delay: float, *, late: bool) -> bool:
        """Whether it was still at work when the kill came: after so many seconds, or so many after the first change."""
        process, before = self.start(), self.state()
        while late and process.poll() is None and self.state() == before:
            time.sleep(0.005)
        time.sleep(delay)
        running = process.poll() is None
        process.kill()
        process.communicate()
        return running

    def state(self) -> list[tuple[str, int]]:
        if self.hub is not None:
            return [("requests", len(self.hub.requests()))]
        try:
            return [(str(path), path.stat().st_mtime_ns) for path in self.files()]
        except FileNotFoundError:  # gone between the two
            return []

    def said(self, *words: str) -> str:
        """The last line of a command that failed; empty: it did not."""
        process = self.start(*words)
        text, _ = process.communicate()
        return "" if process.returncode == 0 else (text.strip().splitlines() or ["no message"])[-1]


def digest(path: Path) -> str:
    """Of the file without the seconds that audits took, and without what follows from them."""
    text = path.read_bytes()
    if path.name in ("attacks.json", "manifest.json"):
        known = json.loads(text)
        known.get("files", {}).pop("editkit/attacks.json", None)
        text = repr({key: value for key, value in known.items() if key not in ("seconds", "digest")}).encode()
    return hashlib.sha256(text).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", type=int, default=100, help="Kills in all.")
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # the server here speaks plain LFS
    names = options.only or list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        tallies = {name: tried(name, Path(folder), -(-options.n // len(names)), options.seed) for name in names}
    text = page(tallies, options.seed)
    print(text)
    if not options.only:
        RESULT.write_text(text, "utf-8")
    sys.exit(any(tally.faults for tally in tallies.values()))


def tried(name: str, root: Path, runs: int, seed: int) -> Tally:
    """The command once undisturbed, then as often killed and run again."""
    tally, rng = Tally(), random.Random(f"{seed} {name}")
    wanted, tally.seconds = undisturbed(name, root)
    for number in range(runs):
        print(f"{name}: run {number + 1} of {runs}", file=sys.stderr, flush=True)
        late = number % 2 == 1
        with prepared(name, root, f"{name}-{number}") as place:
            if not place.killed(rng.random() * (SOON if late else tally.seconds), late=late):
                continue
            tally.kills += 1
            tally.late += late
            if (place.folder / "out").exists():
                tally.there += 1
                tally.faults += [f"after the kill: {problem}" for problem in unsound(name, place, wanted)]
            error = place.said()
            differing = {path for path, _ in wanted.items() ^ place.contents.items()}
            if name == "audit":
                tally.faults += [
                    f"after the second run: {problem}" for problem in [place.said("verify", "out")] if problem
                ]
            if differing:
                tally.faults.append(f"after the second run {', '.join(sorted(differing))} differ: {error}")
    return tally


def undisturbed(name: str, root: Path) -> tuple[dict[str, str], float]:
    """What the command leaves where nothing stops it, and after how many seconds; its folder stays as ``root/name``."""
    with prepared(name, root, name) as place:
        start = time.monotonic()
        if error := place.said():
            raise SystemExit(f"{name}: {error}")
        taken = time.monotonic() - start
        contents = place.contents
        shutil.copytree(place.folder, root / f"{name}-kept")
    return contents, taken


def unsound(name: str, place: Place, wanted: dict[str, str]) -> list[str]:
    """What is wrong with an output that a kill left: it must verify, or be what was wanted.

    An audit changes the output in place: while its card is not that of its attacks, ``verify`` says so.
    """
    if name == "audit":
        return []
    if name in ("remove-capability", "bake"):
        return [problem for problem in [place.said("verify", "out")] if problem]
    return [] if {path: place.contents.get(path) for path in wanted} == wanted else ["the output is not whole"]


@contextmanager
def prepared(name: str, root: Path, label: str) -> Iterator[Place]:
    folder = root / label
    folder.mkdir()
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), "utf-8")
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY), "utf-8")
    place = Place(folder, CASES[name].split())
    if name in GIVEN:
        earlier, label = GIVEN[name]
        if not (root / f"{earlier}-kept").exists():
            undisturbed(earlier, root)
        shutil.copytree(root / f"{earlier}-kept" / "out", folder / label)
    if name == "push":
        if not (root / "published").exists():
            publish(root / "published")
        shutil.copytree(root / "published", folder, dirs_exist_ok=True)
        place.hub = Server(folder / "hub")
        place.hub.start()
    try:
        yield place
    finally:
        if place.hub is not None:
            place.hub.stop()
        shutil.rmtree(folder)


def publish(folder: Path) -> None:
    """A Hub of our own with the base in ``hub``, and an edit of it in ``given``."""
    hub = Server(folder / "hub")
    hub.data.mkdir(parents=True)
    (hub.data / "accounts.json").write_text(json.dumps(ACCOUNTS))
    hub.start()
    base = save_base(folder / "home" / "base")
    finish_measured(folder / "given", base, publish_base(hub, base))
    hub.stop()


def page(tallies: dict[str, Tally], seed: int) -> str:
    lines = [
        "# Killed and run again",
        "",
        f"`make kill`, seed {seed}; each command on the bundled model or less.",
        "",
        "- *Late*: killed within half a second after files began to change.",
        "- *There*: an output was there after the kill.",
        "- *Faults*: it was not whole, or after the second run a byte was not that of the run that nothing stopped, or",
        "  something was left beside it.",
        "",
        "| command | kills | late | there | faults |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, tally in tallies.items():
        lines.append(f"| `{name}` | {tally.kills} | {tally.late} | {tally.there} | {len(tally.faults)} |")
    lines += ["", *(f"- {name}: {fault}" for name, tally in tallies.items() for fault in tally.faults)]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
