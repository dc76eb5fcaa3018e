"""A model that was unlearned: written once as a checkpoint, then loaded like any other.

peer = made(bench, "npo", npo.prepare, tuned)
peer.arm.scores(task, examples), peer.seconds, peer.changed
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.unlearning.bench import Bench
from benchmarks.unlearning.descent import Method, Pace, unlearned
from benchmarks.unlearning.tune import Setting, Tuned
from editkit.audits.subject import Arm
from editkit.audits.weights import slices
from editkit.checkpoints.source import resolve
from editkit.edit import Edit
from editkit.measuring.ledger import name_of
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source

WRITTEN = "unlearned.json"
"""Written last: a folder without it is not whole."""


@dataclass(frozen=True)
class Peer:
    """What is attacked.

    Args:
        setting: how it was made; None: by plain removal, which has none.
        edit: what plain removal took out; None: it is a peer.
        reached, within: whether the target was down on the examples that the setting was chosen on, and whether that
            was within the damage budget.
        seconds, tuning: of one CPU core, for making it and for finding its setting; None: not measured here.
        changed: share of the weights' bytes that are not the base's.
    """

    name: str
    arm: Arm
    setting: Setting | None
    edit: Edit | None
    reached: bool
    within: bool
    seconds: float
    tuning: float | None
    changed: float


def removed(bench: Bench, name: str) -> Peer:
    """Plain removal: the slices of the edit of this name are zero."""
    model, edit = bench.ledger.model, bench.edits[name]
    out = bench.ledger.knockout(edit.units)[0]
    started = time.process_time()
    zero = slices(model, out)

    def now(name: str, weight: torch.Tensor) -> torch.Tensor:
        return weight.masked_fill(zero[name], 0) if name in zero else weight

    after = {name: now(name, weight.detach()) for name, weight in model.network.named_parameters() if name in zero}
    seconds = time.process_time() - started
    changed = _changed(model, lambda name: after.get(name))
    return Peer(name, Arm("edited", bench.ledger, out), None, edit, True, True, seconds, None, changed)


def made(bench: Bench, name: str, method: Method, tuned: Tuned) -> Peer:
    """The model under the setting that was chosen."""
    model, setting = bench.ledger.model, tuned.setting
    key = f"{name}, {setting}, seed {bench.seed}, {bench.lessons.digest}, {name_of(model.source.base)}, {model.dtype}"
    folder = bench.folder / "models" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not (folder / WRITTEN).exists():
        _write(bench, method, setting, folder)
    known = json.loads((folder / WRITTEN).read_text("utf-8"))
    loaded = load_source(resolve(folder), replace(model.asked, dtype=model.dtype))
    weights = dict(loaded.network.named_parameters())
    arm = Arm("edited", replace(bench.ledger, model=loaded))
    changed = _changed(model, lambda each: weights[each].detach())
    return Peer(name, arm, setting, None, tuned.reached, tuned.within, known["seconds"], tuned.seconds, changed)


def _write(bench: Bench, method: Method, setting: Setting, folder: Path) -> None:
    model = bench.ledger.model
    shutil.rmtree(folder, ignore_errors=True)
    started = time.process_time()
    descent = method(model, bench.lessons, setting.own)
    with unlearned(model, descent, bench.lessons, Pace(setting.rate, setting.steps), seed=bench.seed):
        seconds = time.process_time() - started
        model.network.save_pretrained(folder)
    for file in sorted(model.source.directory.iterdir()):  # its tokenizer, and its config as its makers wrote it
        if file.suffix in {".json", ".jinja", ".txt"} and not file.name.endswith(".index.json"):
            shutil.copyfile(file, folder / file.name)
    (folder / WRITTEN).write_text(json.dumps({"seconds": seconds}), "utf-8")


def _changed(model: LanguageModel, now: Callable[[str], torch.Tensor | None]) -> float:
    """Share of bytes that differ; None: the parameter is as it was."""
    total = differing = 0
    for name, weight in model.network.named_parameters():
        total += weight.numel() * weight.element_size()
        after = now(name)
        if after is not None:
            differing += int(np.count_nonzero(_bytes(weight) != _bytes(after)))
    return differing / total


def _bytes(weight: torch.Tensor) -> np.ndarray:
    return weight.detach().cpu().contiguous().view(torch.uint8).numpy()
