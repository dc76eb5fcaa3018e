"""The edit inside a GGUF file: exact zeros where it should be, the base's bytes everywhere else, and the way back.

If one fails: a quantized file that people run holds another edit than the one that was measured.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from click.testing import CliRunner

from editkit.checkpoints.gguf import BLOCKS, read, sites
from editkit.cli import main
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError, UsageError
from editkit.units import Head, Neuron, parse_all
from editkit.writing.bake import bake
from editkit.writing.export import gguf as export
from editkit.writing.gguf_blocks import ZEROING
from editkit.writing.gguf_pieces import piece_of
from editkit.writing.undo import undo
from editkit.writing.verify import verify
from tests.gguf_files import LAYERS, ROWS, write, write_llama
from tests.small_checkpoints import in_memory

WIDTHS = (32, 64, 80, 96, 128, 256)
HEADS = 16
"""So that every width makes a whole number of blocks of 256."""

UNITS = (Head(0, 0), Head(0, 3), Head(0, 4), Head(1, HEADS - 1))

REFUSED = {
    **dict.fromkeys(("Q4_1", "Q5_1", "IQ4_NL", "Q4_K", "Q5_K", "IQ4_XS"), {80}),
    **dict.fromkeys(
        ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "TQ1_0"), {32, 64, 80, 96, 128}
    ),
}
"""Type -> the widths whose heads do not end where its blocks, or their parts, end."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with in_memory() as folder:
        yield folder


def dequantized(path: Path) -> dict[str, np.ndarray]:
    """What the gguf package makes of each tensor, as float32 or float64."""
    found = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = tensor.data if tensor.tensor_type.name == "F64" else gguf.dequantize(tensor.data, tensor.tensor_type)
        found[tensor.name] = np.array(values).reshape(tensor.shape[::-1])
    return found


def test_the_table_of_types_is_that_of_the_gguf_package() -> None:
    known = {kind.value: (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: known[number] for number in BLOCKS} == dict(BLOCKS)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ZEROING)
def test_the_slices_are_zero_and_the_rest_is_the_base(kind: str, width: int, tmp_path: Path) -> None:
    base, out = write(tmp_path / "base.gguf", kind, heads=HEADS, width=width), tmp_path / "out.gguf"
    if width in REFUSED.get(kind, ()):
        with pytest.raises(EditkitError, match=r"blk\.0\.attn_output\.weight cannot be edited in place: \d+ is inside"):
            bake(base, UNITS, out=out)
        assert not list(tmp_path.glob("*out*"))
        return
    bake(base, UNITS, out=out)
    before, after = dequantized(base), dequantized(out)
    for name, weights in before.items():
        gone = np.zeros(weights.shape, dtype=bool)
        for unit in UNITS:
            if name == f"blk.{unit.layer}.attn_output.weight":
                gone[:, unit.index * width : (unit.index + 1) * width] = True
        assert np.isfinite(weights).all() and (not gone.any() or (weights[gone] != 0).mean() > 0.3), (
            "there was something"
        )
        assert (after[name][gone] == 0).all(), name
        assert np.array_equal(after[name][~gone], weights[~gone]), name
    _only_the_slices_differ(base, out, kind, width)
    assert verify(out, base).tensors == LAYERS
    assert undo(out, tmp_path / "back.gguf").directory.read_bytes() == base.read_bytes()


def _only_the_slices_differ(base: Path, out: Path, kind: str, width: int) -> None:
    one, other = (np.fromfile(path, np.uint8) for path in (base, out))
    changed = set(np.flatnonzero(one != other).tolist())
    values, size = next((values, size) for name, values, size in BLOCKS.values() if name == kind)
    allowed = set()
    for unit in UNITS:
        tensor = read(base).tensors[f"blk.{unit.layer}.attn_output.weight"]
        row_bytes = (tensor.end - tensor.start) // ROWS
        first, last = unit.index * width // values * size, -(-(unit.index + 1) * width // values) * size
        for row in range(ROWS):
            start = tensor.start + row * row_bytes
            allowed |= set(range(start + first, start + last))
    assert changed and changed <= allowed


def test_a_scale_and_a_minimum_are_all_that_changes_of_a_block(tmp_path: Path) -> None:
    base = write(tmp_path / "base.gguf", "Q4_1", heads=HEADS, width=64)
    bake(base, [Head(1, 2)], out=tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf.undo").stat().st_size == ROWS * 2 * 4


def test_part_of_a_block_without_a_finite_scale_is_refused(tmp_path: Path) -> None:
    base = write(tmp_path / "base.gguf", "Q6_K", heads=HEADS, width=64)
    start = read(base).tensors["blk.1.attn_output.weight"].start
    data = bytearray(base.read_bytes())
    data[start + 208 : start + 210] = np.float16(np.inf).tobytes()
    base.write_bytes(data)
    with pytest.raises(EditkitError, match=r"blk\.1\.attn_output\.weight has a block whose scale is not finite"):
        bake(base, [Head(1, 2)], out=tmp_path / "out.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.gguf"]
    bake(base, [Head(1, index) for index in range(4)], out=tmp_path / "out.gguf")  # the block goes as a whole
    assert verify(tmp_path / "out.gguf").tensors == 1


@pytest.fixture
def baked(tmp_path: Path) -> tuple[Path, Path]:
    base = write(tmp_path / "base.gguf", "Q4_K", heads=HEADS, width=96)
    bake(base, UNITS, out=tmp_path / "out.gguf")
    return base, tmp_path / "out.gguf"


@pytest.mark.parametrize("suffix", ["", ".undo", ".editkit.json"])
def test_every_changed_byte_is_noticed(suffix: str, baked: tuple[Path, Path], tmp_path: Path) -> None:
    path = baked[1].with_name(baked[1].name + suffix)
    honest = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in {0, len(honest) - 1, *rng.integers(0, len(honest), 20).tolist()}:
        path.write_bytes(honest[:place] + bytes([honest[place] ^ 0x10]) + honest[place + 1 :])
        with pytest.raises(IntegrityError):
            verify(baked[1])
    for changed in (honest[:-1], honest + b"\0", b""):
        path.write_bytes(changed)
        with pytest.raises(IntegrityError):
            verify(baked[1])
        with pytest.raises(IntegrityError):
            undo(baked[1], tmp_path / "back.gguf")
    path.unlink()
    with pytest.raises(EditkitError):
        verify(baked[1])
    assert not (tmp_path / "back.gguf").exists()


def test_a_record_that_was_written_anew_is_found_out_by_the_zeros(baked: tuple[Path, Path]) -> None:
    """Bits beside those that are cleared, in bytes that both files hold: only their comparison can tell."""
    base, out = baked
    record = export.read(out)
    piece = export.pieces_of(record.edit, read(out))[0]
    place = int(np.flatnonzero(piece.zeros.keep)[0])
    data = bytearray(out.read_bytes())
    data[piece.tensor.start + int(piece.zeros.touched[place])] ^= int(piece.zeros.keep[place])
    out.write_bytes(data)
    proof = export._proved(out, export.pieces_of(record.edit, read(out)))
    forged = export.Record(record.edit, proof.out, record.undo, proof.edited)
    out.with_name(out.name + export.RECORD).write_text(forged.to_json())
    with pytest.raises(IntegrityError, match="not the base's with the removed slices zeroed"):
        verify(out)


def test_another_base_is_told(baked: tuple[Path, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other.gguf", "Q4_K", heads=HEADS, width=96, seed=1)
    with pytest.raises(IntegrityError, match="expected the base"):
        verify(baked[1], other)
    edit = export.read(baked[1]).edit
    (tmp_path / "edit.json").write_text(edit.to_json())
    with pytest.raises(EditkitError, match="these are other weights"):
        bake(other, tmp_path / "edit.json", out=tmp_path / "again.gguf")
    bake(None, tmp_path / "edit.json", out=tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == baked[1].read_bytes()


def test_heads_of_a_model_on_the_hub_go_from_its_quantizations(baked: tuple[Path, Path], tmp_path: Path) -> None:
    edit = Edit(Base("owner/name", "0" * 40), frozenset(UNITS))
    (tmp_path / "edit.json").write_text(edit.to_json())
    bake(baked[0], tmp_path / "edit.json", out=tmp_path / "again.gguf")
    assert export.read(tmp_path / "again.gguf").edit == export.read(baked[1]).edit


@pytest.mark.parametrize("suffix", ["", ".undo", ".editkit.json"])
def test_nothing_is_written_over(suffix: str, tmp_path: Path) -> None:
    base = write(tmp_path / "base.gguf", "F16", heads=HEADS, width=32)
    (tmp_path / f"out.gguf{suffix}").write_text("mine")
    with pytest.raises(EditkitError, match="already exists"):
        bake(base, UNITS, out=tmp_path / "out.gguf")
    assert (tmp_path / f"out.gguf{suffix}").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_companion_may_move_along(baked: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for path in tmp_path.glob("out.gguf*"):
        shutil.move(path, tmp_path / "elsewhere" / path.name.replace("out", "new"))
    assert verify(tmp_path / "elsewhere" / "new.gguf", baked[0]).form == "gguf"


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the bundled model is none"):
        bake(None, UNITS, out=tmp_path / "out.gguf")
    base = write(tmp_path / "base.gguf", "F16", heads=HEADS, width=32)
    with pytest.raises(EditkitError, match="expected the name of a file that ends in .gguf"):
        bake(base, UNITS, out=tmp_path / "out", format="gguf")
    with pytest.raises(EditkitError, match="L7H0: this llama has no such head"):
        bake(base, [Head(7, 0)], out=tmp_path / "out.gguf")


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "CHUNK", 1000)
    base = write(tmp_path / "base.gguf", "Q5_K", heads=HEADS, width=64)
    bake(base, UNITS, out=tmp_path / "out.gguf")
    pieces = export.pieces_of(Edit(Base(""), frozenset(UNITS)), read(base))
    chunks = export._rewritten(base, pieces, lambda *_: None, hashlib.sha256())
    assert max(map(len, chunks)) <= 1000
    assert undo(tmp_path / "out.gguf", tmp_path / "back.gguf").directory.read_bytes() == base.read_bytes()


def test_the_commands(tmp_path: Path) -> None:
    base = write(tmp_path / "base.gguf", "Q8_0", heads=HEADS, width=80)
    out, back = tmp_path / "out.gguf", tmp_path / "back.gguf"
    run = CliRunner()
    for words, said in (
        (["bake", base, "--heads", "L0H1,L1H2", "-o", out], "gguf, 2 tensors edited"),
        (["verify", out, "--base", base], "2 tensors zero where edited; every other byte is the base's"),
        (["undo", out, "-o", back], "the base, bit for bit"),
    ):
        done = run.invoke(main, list(map(str, words)))
        assert done.exit_code == 0 and said in done.output, done.output
    assert back.read_bytes() == base.read_bytes()
    done = run.invoke(main, ["bake", str(base), "--heads", "L0H1", "-o", str(tmp_path / "j.gguf"), "--json"])
    assert json.loads(done.stdout)["tensors"] == ["blk.0.attn_output.weight"]
    out.write_bytes(base.read_bytes())
    assert run.invoke(main, ["verify", str(out)]).exit_code == 5


def test_units_are_named_in_refusals(tmp_path: Path) -> None:
    base = write(tmp_path / "base.gguf", "Q4_1", heads=HEADS, width=80)
    with pytest.raises(EditkitError, match=r"L1H1, L1H3: blk\.1\.attn_output\.weight cannot be edited in place: 80 is"):
        bake(base, parse_all("L1H3,L1H1"), out=tmp_path / "out.gguf")
    bake(base, parse_all("L1H0,L1H1"), out=tmp_path / "out.gguf")  # both together end where a block ends


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q8_0", "Q4_1", "Q5_1"])
def test_neurons_go_as_columns_or_as_rows_of_the_map_before(kind: str, tmp_path: Path) -> None:
    """If this fails: another neuron goes, or a part of one stays. Compared with the gguf package's own numbers."""
    base, out = write_llama(tmp_path / "base.gguf", kind=kind), tmp_path / "out.gguf"
    neurons = [Neuron(0, 3), Neuron(0, 4), Neuron(1, 63)]
    bake(base, [*neurons, Head(1, 2)], out=out)
    before, after = dequantized(base), dequantized(out)
    down = kind not in ("Q4_1", "Q5_1")
    for name, weights in before.items():
        gone = np.zeros(weights.shape, dtype=bool)
        for layer, index in ((unit.layer, unit.index) for unit in neurons):
            if down and name == f"blk.{layer}.ffn_down.weight":
                gone[:, index] = True
            if not down and name == f"blk.{layer}.ffn_up.weight":
                gone[index] = True
        if name == "blk.1.attn_output.weight":
            gone[:, 64:96] = True
        assert not gone.any() or (weights[gone] != 0).any(), "there was something"
        assert (after[name][gone] == 0).all() and np.array_equal(after[name][~gone], weights[~gone]), name
    assert verify(out, base).tensors == 3
    data = bytearray(out.read_bytes())
    tensor = read(out).tensors["blk.1.ffn_down.weight" if down else "blk.1.ffn_up.weight"]
    data[tensor.end - 1] ^= 0xFF
    out.write_bytes(data)
    with pytest.raises(IntegrityError):
        verify(out, base)
    data[tensor.end - 1] ^= 0xFF
    out.write_bytes(data)
    assert undo(out, tmp_path / "back.gguf").directory.read_bytes() == base.read_bytes()


def test_a_neuron_that_a_bias_would_wake_is_refused(tmp_path: Path) -> None:
    stored = read(write_llama(tmp_path / "base.gguf", kind="Q4_1"))
    site = sites(stored).neuron_sites[0]
    assert piece_of(stored, site, [5]).axis == 0
    up = stored.tensors["blk.0.ffn_up.weight"]
    biased = replace(stored, tensors={**stored.tensors, "blk.0.ffn_up.bias": up})
    with pytest.raises(EditkitError, match="inside a block.*ffn_up.bias a row of zeros does not"):
        piece_of(biased, site, [5])
    ungated = {name: tensor for name, tensor in stored.tensors.items() if "ffn_gate" not in name}
    with pytest.raises(EditkitError, match="activation"):
        piece_of(replace(stored, tensors=ungated), site, [5])
    fused = replace(stored, tensors={**stored.tensors, up.name: replace(up, shape=(128, 128))})
    with pytest.raises(EditkitError, match="no row for each neuron"):
        piece_of(fused, site, [5])
