"""Every form x every architecture x every kind of edit: what is on disk is the model whose weights were zeroed live."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from editkit import architecture, headers, manifest
from editkit.architecture import Architecture
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.export import EXPORTS, checkpoint, delta, lora
from editkit.export.slices import Runs, runs_of, slices_of, zero
from editkit.source import Source, resolve
from editkit.undo import undo
from editkit.units import Head
from editkit.verify import verify
from tests import tiny

CLOSE = 1e-4
"""Unmerged adapters in float32: W x - (W x)_slice rounds where W' x does not. Largest seen over all types: 4e-6."""


def unit_sets(found: Architecture) -> dict[str, frozenset[Head]]:
    """One head, two heads of a layer, a whole layer, nothing."""
    last = found.sites[-1]
    return {
        "one": frozenset({Head(found.sites[0].layer, found.sites[0].units - 1)}),
        "two": frozenset({Head(last.layer, 0), Head(last.layer, last.units - 2)}),
        "layer": frozenset(Head(last.layer, index) for index in range(last.units)),
        "nothing": frozenset(),
    }


@pytest.fixture
def ram() -> Iterator[Path]:
    """A folder in memory where there is one: every write is flushed to disk, and disks are slow."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize("model_type", tiny.TYPES)
def test_every_form_is_the_model_zeroed_live(model_type: str, ram: Path) -> None:
    """All four edits byte by byte in every form; logits of the reloaded files for each edit, adapters for two of them."""
    source, load = save(model_type, ram / "base")
    live = load(source.directory)
    found = architecture.join(architecture.read(source.directory), architecture.from_model(live))
    state = {name: weight.clone() for name, weight in live.state_dict().items()}
    before = logits(live)
    for name, units in unit_sets(found).items():
        edit, out = Edit(source.base, units), ram / name
        checkpoint.write(edit, source, out)
        assert verify(out, source).against_base
        assert_only_slices_changed(source.directory, out, edit)
        assert_delta_gives_the_same(edit, source, out, ram)
        zeroed = zero_live(live, found, units)
        assert torch.equal(logits(load(out)), zeroed)
        assert torch.equal(zeroed, before) == (not units), "there was something to remove"
        if name in ("two", "nothing"):
            adapted = adapt(edit, source, ram / f"{name}-lora", load)
            assert (logits(adapted) - zeroed).abs().max() < CLOSE
            assert_same_weights(adapted.merge_and_unload(), load(out))
        live.load_state_dict(state)
    undo(ram / "two", ram / "back")
    assert_same_files(source.directory, ram / "back")


def assert_only_slices_changed(base: Path, out: Path, edit: Edit) -> None:
    """By an independent reader: the reference implementation."""
    from safetensors import safe_open

    sites = {site.tensor: site for site in architecture.read(base).sites}
    zeroed: dict[str, list[slice]] = {}
    for unit in edit.units:
        site = architecture.read(base).site(unit)
        zeroed.setdefault(site.tensor, []).append(site.slice(unit.index))
    for file in headers.read(base).files:
        with safe_open(base / file, "np") as one, safe_open(out / file, "np") as other:
            assert list(one.keys()) == list(other.keys())
            for name in one.keys():  # noqa: SIM118
                expected = one.get_tensor(name).copy()
                for span in zeroed.get(name, []):
                    expected[span if sites[name].axis == 0 else (slice(None), span)] = 0
                assert expected.tobytes() == other.get_tensor(name).tobytes(), name


def assert_delta_gives_the_same(edit: Edit, source: Source, out: Path, folder: Path) -> None:
    made, baked = folder / f"{out.name}-delta", folder / f"{out.name}-baked"
    delta.write(edit, source, made)
    assert verify(made, source).tensors == len({unit.layer for unit in edit.units})
    delta.bake(made, source, baked)
    for path in out.iterdir():
        if path.is_file():
            assert path.read_bytes() == (baked / path.name).read_bytes(), path.name
    undo(made, folder / f"{out.name}-base")
    assert_same_files(source.directory, folder / f"{out.name}-base")


def adapt(edit: Edit, source: Source, made: Path, load: Load) -> Any:
    """The base with the edit's adapter on it."""
    from peft import PeftModel

    lora.write(edit, source, made, measured=False)
    assert verify(made, source).form == "lora"
    return PeftModel.from_pretrained(load(source.directory), str(made)).eval()


def assert_same_weights(merged: Any, baked: Any) -> None:
    """Merged, the adapter is the bake exactly."""
    expected = baked.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in merged.state_dict().items())


Load = Callable[[Path], Any]


def save(
    model_type: str, directory: Path, *, dtype: torch.dtype = torch.float32, shards: str = "40KB"
) -> tuple[Source, Load]:
    """A checkpoint of the type, and how to load one (some text models inside others have no Auto class)."""
    model, _ = tiny.build(model_type)
    model.to(dtype).save_pretrained(directory, max_shard_size=shards)
    kind: Any = type(model)
    return resolve(directory), lambda place: kind.from_pretrained(place, attn_implementation="eager").eval()


def logits(model: Any) -> torch.Tensor:
    tokens = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(tokens).logits


def zero_live(model: Any, found: Architecture, units: frozenset[Head]) -> torch.Tensor:
    for unit in units:
        site = found.site(unit)
        span = site.slice(unit.index)
        for module in (site.module, *site.twins):
            model.get_submodule(module).weight.data.narrow(site.axis, span.start, site.width).zero_()
    return logits(model)


def assert_same_files(one: Path, other: Path) -> None:
    names = [{path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} for folder in (one, other)]
    assert names[0] == names[1]
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names[0])
