"""All laws of one model type at once, on one small model of it: built, saved and loaded again once.

If one fails: on models of that type a removal zeroes bytes that are not the heads that were measured, and the card's
numbers are those of another model than the one that is published.

    pytest tests/test_every_type.py                     some types, each built in its own way
    pytest tests/test_every_type.py -m "" -k mytype     one of all
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from editkit.checkpoints import architecture, config_fields, headers
from editkit.checkpoints.architecture import Architecture, Site
from editkit.checkpoints.source import Source, resolve
from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.models.knockout import gated, knocked_out
from editkit.models.self_check import prove
from editkit.units import PLAIN, Head, Unit
from editkit.writing.export import checkpoint, lora
from editkit.writing.undo import undo
from editkit.writing.verify import verify
from tests import architecture_table, tiny
from tests import small_checkpoints as checkpoints

DOCS = Path(__file__).parents[1] / "docs" / "architectures.md"
READS_AHEAD = {"cpmant"}
WITHOUT_NEURONS = {"dbrx"}
EXPERTS = 1e-5
"""In models with experts a row moves by rounding when other rows change: the experts then add up in another order.
The largest difference seen over all types is 2e-6, at logits around 4."""
CLOSE = 1e-4
"""Unmerged adapters in float32: W x - (W x)_slice rounds where W' x does not. Largest seen: 8e-6 (minicpm3)."""

Load = Callable[[Path], Any]


@pytest.fixture
def folder() -> Iterator[Path]:
    with checkpoints.in_memory() as made:
        yield made


@pytest.mark.parametrize(
    "name", [name if name in tiny.DIFFERENT else pytest.param(name, marks=pytest.mark.commit) for name in tiny.TYPES]
)
def test_type(name: str, folder: Path) -> None:
    source, load = saved(name, folder / "base")
    live = load(source.directory)
    found = files_say_what_the_live_model_is(name, source, live)
    it_reads_from_left_to_right_or_is_refused(name, live, found)
    gates_of_one_change_nothing(live, found)
    every_head_matters_and_rows_are_independent(live, found)
    neurons_matter_and_rows_are_independent(live, found)
    experts = config_fields.has_experts(config_fields.from_config(live.config)) and bool(found.neuron_sites)
    for place, units in enumerate(edits(found, experts)):
        out = folder / f"edited-{place}"
        zeroed = hooked_is_zeroed_is_written(live, found, Edit(source.base, units), source, out, load)
        if place in ADAPTED:
            adapted_is_zeroed(zeroed, found, Edit(source.base, units), source, out, load)
        if place == 3:
            with pytest.raises(EditkitError, match="mixture of experts"):
                lora.write(Edit(source.base, units), source, folder / "refused")
            undo(out, folder / "again")
            assert checkpoints.files(source.directory) == checkpoints.files(folder / "again")
    undo(folder / "edited-0", folder / "back")
    assert checkpoints.files(source.directory) == checkpoints.files(folder / "back"), "undone, byte by byte"


def edits(found: Architecture, experts: bool) -> list[frozenset[Unit]]:
    """Single units of both kinds, neighbours and others in one layer; whole layers; nothing.

    The neurons of a mixture of experts go apart: no adapter takes them.
    """
    first, last = found.sites[0], found.sites[-1]
    some: set[Unit] = {Head(first.layer, first.units - 1), Head(last.layer, 0), Head(last.layer, last.units - 2)}
    whole: set[Unit] = {Head(last.layer, index) for index in range(last.units)}
    plain = [site for site in found.neuron_sites if site.expert == PLAIN]
    neurons = {site.unit(index) for site in found.neuron_sites for index in (0, 3, 4, site.units - 1)}
    whole |= {site.unit(index) for site in plain[-1:] for index in range(site.units)}
    if experts:
        return [frozenset(some), frozenset(whole), frozenset(), frozenset(neurons)]
    return [frozenset(some | neurons), frozenset(whole), frozenset()]


ADAPTED = (0, 2)
"""Of these edits, those that are written as an adapter too."""


def files_say_what_the_live_model_is(name: str, source: Source, live: Any) -> Architecture:
    """If this fails: what is measured in memory and what is cut on disk are different bytes. Returns both, joined."""
    loaded, stored = architecture.from_model(live), architecture.read(source.directory)
    assert [_numbers(site) for site in stored.sites] == [_numbers(site) for site in loaded.sites]
    assert (stored.layers, stored.unreachable) == (loaded.layers, loaded.unreachable)
    assert stored.model_type == loaded.model_type
    assert stored.unreachable_neurons == loaded.unreachable_neurons
    joined = architecture.join(stored, loaded)
    assert [(site.key, site.units, site.shared) for site in joined.neuron_sites] == [
        (site.key, site.units, site.shared) for site in loaded.neuron_sites
    ], "the same neurons in the files and in memory"
    assert joined.neuron_sites or name in WITHOUT_NEURONS
    modules = dict(live.named_modules())
    for site, other in zip((*joined.sites, *joined.neuron_sites), (*stored.sites, *stored.neuron_sites), strict=True):
        assert site.module in modules and site.tensor == other.tensor
        assert site.units * site.width == site.shape[site.axis]
    assert architecture_table.row(name, stored) in DOCS.read_text().splitlines(), (
        "run: python -m tests.architecture_table > docs/architectures.md"
    )
    return joined


def it_reads_from_left_to_right_or_is_refused(name: str, live: Any, found: Architecture) -> None:
    """If this fails: a model that sees the answer before it gives it is scored as if it did not."""
    if name not in READS_AHEAD:
        assert prove(live, found) == found
        return
    with pytest.raises(EditkitError, match="depends on the tokens behind it"):
        prove(live, found)


def gates_of_one_change_nothing(live: Any, found: Architecture) -> None:
    """If this fails: the measured model is not the model."""
    plain = logits(live)
    with gated(live, found, torch.ones(len(found.heads))):
        assert torch.equal(logits(live), plain)


def every_head_matters_and_rows_are_independent(live: Any, found: Architecture) -> None:
    """If this fails: a head's measured effect is another head's, or its neighbour's in the batch.

    Compared within one batch size: kernels may round otherwise for another.
    """
    count = len(found.heads)
    plain = logits(live, count)
    with knocked_out(live, found, np.eye(count, dtype=bool)) as gates:
        each = logits(live, count)
        assert (each - plain).abs().flatten(1).amax(1).min() > 1e-5, "every head's knockout changes something"
        tolerance = EXPERTS if any("expert" in name for name, _ in live.named_parameters()) else 0.0
        for column in range(0, count, 3):
            gates.set([found.heads[column]])
            alone = logits(live, count)[column]
            assert (alone - each[column]).abs().max() <= tolerance, "a row does not depend on the masks of the others"


def neurons_matter_and_rows_are_independent(live: Any, found: Architecture) -> None:
    """If this fails: a neuron's measured effect is another's. All neurons of each site in a row, and one of each."""
    sites = found.neuron_sites
    sets = [[site.unit(index) for index in range(site.units)] for site in sites] + [[site.unit(1)] for site in sites]
    out = [found.knockout(units) for units in sets]
    if not out:
        return
    plain = logits(live, len(out))
    with knocked_out(live, found, out) as gates:
        each = logits(live, len(out))
        moved = (each - plain).abs().flatten(1).amax(1)
        layers = {site.layer: float(moved[row]) for row, site in enumerate(sites) if moved[row] > 1e-5}
        assert layers.keys() == {site.layer for site in sites}, "every layer's neurons change something"
        tolerance = EXPERTS if any("expert" in name for name, _ in live.named_parameters()) else 0.0
        for row in range(0, len(out), max(1, len(out) // 6)):
            gates.set(out[row])
            alone = logits(live, len(out))[row]
            assert (alone - each[row]).abs().max() <= tolerance, "a row does not depend on the masks of the others"
    assert torch.equal(logits(live, len(out)), plain), "the weights are as they were"


def hooked_is_zeroed_is_written(
    live: Any, found: Architecture, edit: Edit, source: Source, out: Path, load: Load
) -> torch.Tensor:
    """If this fails: the published checkpoint does something else than the model that was measured.

    Bit for bit the same logits: heads switched off by hooks, their weights zeroed in memory, the checkpoint on disk
    loaded again. On disk nothing but the slices changed. Returns the logits; ``live`` is as it was.
    """
    plain = logits(live)
    with knocked_out(live, found, edit.units):
        hooked, spoken = logits(live), continued(live)
    assert torch.equal(logits(live), plain), "the hooks are gone"
    assert torch.equal(hooked, plain) == (not edit.units), "there was something to remove"
    kept = {name: weight.clone() for name, weight in live.state_dict().items()}
    zero(live, found, edit.units)
    assert torch.equal(logits(live), hooked), "hooked = zeroed"
    assert torch.equal(continued(live), spoken), "greedy continuations agree"
    live.load_state_dict(kept)
    checkpoint.write(edit, source, out)
    assert verify(out, source).against_base
    assert_only_slices_changed(source.directory, out, edit)
    assert torch.equal(logits(load(out)), hooked), "zeroed = written"
    return hooked


def assert_only_slices_changed(base: Path, out: Path, edit: Edit) -> None:
    """By an independent reader: the reference implementation."""
    from safetensors import safe_open

    found = architecture.read(base)
    zeroed: dict[str, list[tuple[slice | int, ...]]] = {}
    for unit in edit.units:
        site = found.site(unit)
        place: list[slice | int] = [slice(None)] * len(site.shape)
        place[site.axis] = site.slice(unit.index)
        zeroed.setdefault(site.tensor, []).append((*([] if site.part is None else [site.part]), *place[-2:]))
    for file in headers.read(base).files:
        with safe_open(base / file, "np") as one, safe_open(out / file, "np") as other:
            assert list(one.keys()) == list(other.keys())
            for name in one.keys():  # noqa: SIM118
                expected = one.get_tensor(name).copy()
                for index in zeroed.get(name, []):
                    expected[index] = 0
                assert expected.tobytes() == other.get_tensor(name).tobytes(), name


def adapted_is_zeroed(
    zeroed: torch.Tensor, found: Architecture, edit: Edit, source: Source, out: Path, load: Load
) -> None:
    """If this fails: the adapter that is published beside the checkpoint is another edit."""
    from peft import PeftModel

    made = out.with_name(f"{out.name}-lora")
    lora.write(edit, source, made)
    assert verify(made, source).form == "lora"
    adapted = PeftModel.from_pretrained(load(source.directory), str(made)).eval()
    assert float((logits(adapted) - zeroed).abs().max()) < CLOSE
    if not any(site.twins for site in found.sites):  # tied weights: peft would subtract once for each depth
        merged, baked = adapted.merge_and_unload().state_dict(), load(out).state_dict()
        assert all(torch.equal(weight, baked[name]) for name, weight in merged.items()), "merged, it is the bake"


def saved(model_type: str, directory: Path) -> tuple[Source, Load]:
    """A checkpoint in shards, and how to load one (some text models inside others have no Auto class)."""
    model, _ = tiny.build(model_type)
    model.save_pretrained(directory, max_shard_size="40KB")
    kind: Any = type(model)
    return resolve(directory), lambda place: kind.from_pretrained(place, attn_implementation="eager").eval()


def tokens(rows: int) -> torch.Tensor:
    return torch.randint(3, 90, (1, 12), generator=torch.Generator().manual_seed(1)).expand(rows, -1)


@torch.inference_mode()
def logits(model: Any, rows: int = 1) -> torch.Tensor:
    return model(input_ids=tokens(rows)).logits


def continued(model: Any) -> torch.Tensor:
    asked = tokens(1)
    kind = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    return model.generate(asked, attention_mask=torch.ones_like(asked), **kind)


@torch.no_grad()
def zero(model: Any, found: Architecture, units: Iterable[Unit]) -> None:
    """Zero the weights themselves: the reference for hooks and files."""
    for unit in units:
        site = found.site(unit)
        for module in (site.module, *site.twins):
            weight = getattr(model.get_submodule(module), site.weight)
            plane = weight if site.expert == PLAIN else weight[site.expert]
            plane.narrow(site.axis - len(site.shape), unit.index * site.width, site.width).zero_()


def _numbers(site: Site) -> tuple[Any, ...]:
    return (site.layer, site.shape, site.axis, site.units, site.width, site.groups, site.shared)
