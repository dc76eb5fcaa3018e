"""GGUF files as input: the header's reader against hostile files, and the conversion to an ordinary checkpoint.

If one fails: a crafted file exhausts the machine, or what is measured is not what the file holds.
"""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from editkit.checkpoints import dequantize
from editkit.checkpoints.base_card import base_model
from editkit.checkpoints.gguf import file_of, read, sites
from editkit.checkpoints.source import resolve
from editkit.errors import EditkitError
from editkit.models.knockout import knocked_out
from editkit.models.loading import load_source
from editkit.planning.inspection import inspect
from editkit.units import Head, parse_all
from editkit.writing import manifest
from editkit.writing.bake import bake
from editkit.writing.verify import verify
from tests import smollm2
from tests.gguf_files import write, write_llama
from tests.small_checkpoints import in_memory


@contextmanager
def stages(told: list[str], title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """What people are told: the title before the work, ``done`` after it."""
    told.append(title)
    yield lambda count: None
    told.append("done")


@pytest.fixture
def tmp_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with in_memory() as folder:
        monkeypatch.setenv("EDITKIT_CACHE", str(folder / "cache"))
        yield folder


def _text(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + value


def _row(name: str | bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


KEYS = (
    _key("general.architecture", 8, _text("llama")),
    _key("llama.block_count", 4, struct.pack("<I", 1)),
    _key("llama.embedding_length", 4, struct.pack("<I", 64)),
    _key("llama.attention.head_count", 4, struct.pack("<I", 2)),
)
TENSORS = (_row("blk.0.attn_output.weight", (64, 64), 0, 0), _row("blk.0.attn_q.weight", (64, 64), 0, 16384))


def _file(
    keys: tuple[bytes, ...] = KEYS, tensors: tuple[bytes, ...] = TENSORS, *, head: bytes = b"", data: int = 32768
) -> bytes:
    head = head or b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    table = head + b"".join(keys) + b"".join(tensors)
    return table + bytes(-len(table) % 32 + data)


def _keys(*more: bytes) -> bytes:
    return _file((*KEYS, *more))


def _table(*rows: bytes) -> bytes:
    return _file(tensors=rows)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "found the end of the file"),
    "another format": (b"PK\3\4" + bytes(100), "begins with the letters GGUF"),
    "version 1": (_file(head=b"GGUF" + struct.pack("<IQQ", 1, 2, 4)), "expected version 2 or 3, found 1"),
    "big-endian": (_file(head=b"GGUF" + struct.pack(">IQQ", 3, 2, 4)), "found a big-endian file"),
    "tensors without end": (_file(head=b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 4)), "the number of tensors"),
    "keys without end": (_file(head=b"GGUF" + struct.pack("<IQQ", 3, 2, 1 << 60)), "the number of metadata keys"),
    "more keys than there are": (_file(head=b"GGUF" + struct.pack("<IQQ", 3, 2, 60000)), "at byte"),
    "a giant name": (_keys(struct.pack("<Q", 1 << 62) + bytes(50)), "the length of the name"),
    "a name that does not end": (_file((*KEYS, struct.pack("<Q", 250)), (), data=0), "the name of a metadata key"),
    "an empty name": (_keys(_key("", 4, bytes(4))), "no name for a metadata key"),
    "a name that is no text": (_keys(_key(b"\xff\xfe", 4, bytes(4))), "is not UTF-8"),
    "a name that a terminal obeys": (_keys(_key("a\x1b[2J", 4, bytes(4))), "is no name"),
    "a giant text": (_keys(_key("a", 8, struct.pack("<Q", 1 << 40))), "the length of the value of a"),
    "a value of no type": (_keys(_key("a", 99, bytes(4))), "of type 99"),
    "a key twice": (_keys(KEYS[0]), "two metadata keys are called general.architecture"),
    "a giant array": (_keys(_key("a", 9, struct.pack("<IQ", 4, 1 << 61))), "more elements of arrays"),
    "an array that does not end": (_keys(_key("a", 9, struct.pack("<IQ", 4, 1 << 20))), "of 4194304 bytes"),
    "many giant arrays": (
        _file((*KEYS, *(_key(f"a{n}", 9, struct.pack("<IQ", 0, 1 << 21) + bytes(1 << 21)) for n in range(3)))),
        "expected at most 0 more elements",
    ),
    "an array of arrays": (_keys(_key("a", 9, struct.pack("<IQ", 9, 1) + bytes(20))), "an array of type 9"),
    "no architecture": (_file(KEYS[1:]), "expected general.architecture"),
    "an architecture of control characters": (
        _file((_key("general.architecture", 8, _text("a\x07")),)),
        "no name there",
    ),
    "part of a model": (_keys(_key("split.count", 2, struct.pack("<H", 3))), "one of 3 parts"),
    "an alignment of 0": (_keys(_key("general.alignment", 4, bytes(4))), "expected a power of 2"),
    "an alignment of 3": (_keys(_key("general.alignment", 4, struct.pack("<I", 3))), "expected a power of 2"),
    "an alignment of a gigabyte": (_keys(_key("general.alignment", 4, struct.pack("<I", 1 << 30))), "a power of 2"),
    "no axes": (_table(_row("a", (), 0, 0)), "expected 1 to 4 axes, found 0"),
    "axes without end": (_table(_text("a") + struct.pack("<I", 1 << 31)), "expected 1 to 4 axes"),
    "a shape that overflows": (_table(_row("a", (1 << 32, 1 << 32), 0, 0)), "does not fit blocks"),
    "a shape of nothing": (_table(_row("a", (64, 0), 0, 0)), "does not fit blocks"),
    "half a block": (_table(_row("a", (40, 2), 2, 0)), "does not fit blocks of 32"),
    "a type that is none": (_table(_row("a", (64,), 99, 0)), "of type 99"),
    "an offset between": (_table(_row("a", (64,), 0, 8)), "a multiple of 32, found 8"),
    "an offset behind the end": (_table(_row("a", (64,), 0, 1 << 40)), "ends behind the file"),
    "an offset that overflows": (_table(_row("a", (64,), 0, (1 << 64) - 32)), "ends behind the file"),
    "bytes that are missing": (_file(data=20000), "blk.0.attn_q.weight: its bytes"),
    "two tensors in one place": (_table(TENSORS[0], _row("b", (64, 64), 0, 32)), "overlaps the one before"),
    "two tensors of one name": (
        _table(TENSORS[0], _row("blk.0.attn_output.weight", (64,), 0, 16384)),
        "have this name",
    ),
}

UNFIT: dict[str, tuple[bytes, str]] = {
    "an architecture that is not known": (
        _file((_key("general.architecture", 8, _text("plamo")), *KEYS[1:])),
        "a GGUF of architecture 'plamo'",
    ),
    "latent attention": (_keys(_key("llama.attention.kv_lora_rank", 4, bytes(4))), "latent attention"),
    "blocks without end": (
        _file((KEYS[0], _key("llama.block_count", 4, b"\xff" * 4), *KEYS[2:])),
        "block_count is 4294967295",
    ),
    "no number of blocks": (_file((KEYS[0], *KEYS[2:])), "llama.block_count: expected a count, found None"),
    "a number of blocks that is a text": (
        _file((KEYS[0], _key("llama.block_count", 8, _text("one")), *KEYS[2:])),
        "expected a count, found 'one'",
    ),
    "no heads": (_file(KEYS[:3]), "head_count: expected a count for 1 layers"),
    "heads that do not fit": (
        _file((*KEYS[:3], _key("llama.attention.head_count", 4, struct.pack("<I", 3)))),
        "expected 3 heads of width",
    ),
    "a width that does not fit": (
        _keys(_key("llama.attention.value_length", 4, struct.pack("<I", 128))),
        r"has the shape \[64, 64\], expected 2 heads of width 128",
    ),
    "a width that is a text": (_keys(_key("llama.attention.value_length", 8, _text("x"))), "of width unknown"),
    "heads for other layers": (
        _file((*KEYS[:3], _key("llama.attention.head_count", 9, struct.pack("<IQ2I", 4, 2, 2, 2)))),
        "expected a count for 1 layers, found",
    ),
    "no attention": (_table(_row("blk.0.ffn_up.weight", (64, 64), 0, 0)), "no block has an attn_output.weight"),
}


def test_the_honest_file_is_read(tmp_path: Path) -> None:
    """So that the refusals below are refusals of what was changed."""
    (tmp_path / "a.gguf").write_bytes(_file())
    found = sites(read(tmp_path / "a.gguf"))
    assert found.heads == (Head(0, 0), Head(0, 1)) and found.sites[0].width == 32


@pytest.mark.parametrize("name", HOSTILE | UNFIT)
def test_each_hostile_file_ends_in_one_clear_error(name: str, tmp_path: Path) -> None:
    data, message = (HOSTILE | UNFIT)[name]
    (tmp_path / "a.gguf").write_bytes(data)
    looks: list[Callable[[], object]] = [
        lambda: inspect(tmp_path / "a.gguf"),
        lambda: resolve(tmp_path / "a.gguf"),
        lambda: bake(tmp_path / "a.gguf", [Head(0, 1)], out=tmp_path / "out.gguf"),
    ]
    if name in HOSTILE:
        looks.append(lambda: read(tmp_path / "a.gguf"))
    for look in looks:
        tracemalloc.start()
        with pytest.raises(EditkitError, match=message) as caught:
            look()
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()
        said = str(caught.value)
        assert 20 < len(said) < 800 and said.isprintable(), said
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


def test_mutated_files_end_in_facts_or_one_clear_error(tmp_path: Path) -> None:
    """Bytes of the header flipped or set high, and files cut short: never another error, never much time."""
    honest, path = write(tmp_path / "a.gguf", "Q4_K", heads=4, width=64).read_bytes(), tmp_path / "b.gguf"
    rng, began, refused = np.random.default_rng(0), time.monotonic(), 0
    end = honest.index(b"blk.1.odd.weight") + 60
    for trial in range(600):
        data = bytearray(honest)
        places = rng.integers(0, end, rng.integers(1, 4))
        if trial % 3 == 0:
            data = data[: int(rng.integers(0, len(data)))]
        elif trial % 3 == 1:
            for place in places:
                data[place] ^= 1 << int(rng.integers(0, 8))
        else:
            for place in places:
                data[place : place + 4] = b"\xff" * 4
        path.write_bytes(data)
        try:
            sites(read(path))
        except EditkitError as error:
            refused += 1
            assert 20 < len(str(error)) < 800 and str(error).isprintable(), str(error)
    assert refused > 300 and time.monotonic() - began < 30


def test_which_file_is_meant(tmp_path: Path) -> None:
    file = (
        write(tmp_path / "only" / "a.gguf", "F16", heads=2, width=32) if (tmp_path / "only").mkdir() is None else None
    )
    assert file is not None and file_of(file) == file == file_of(tmp_path / "only") == file_of(str(file))
    assert file_of(None) is None and file_of("owner/name") is None and file_of("x" * 5000) is None
    (tmp_path / "only" / "model.safetensors").touch()
    assert file_of(tmp_path / "only") is None, "the safetensors go first"
    (tmp_path / "two").mkdir()
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / "two" / name).touch()
    with pytest.raises(EditkitError, match=r"2 GGUF files \(a.gguf, b.gguf\): name the one"):
        file_of(tmp_path / "two")
    with pytest.raises(EditkitError, match="no such file"):
        file_of(tmp_path / "absent.gguf")


@pytest.mark.parametrize("kind", ["Q4_0", "F16"])
def test_a_gguf_file_is_a_model_like_any_other(kind: str, tmp_path: Path) -> None:
    """Knocked out, edited in blocks and as a checkpoint it gives the same to the bit; the record names the file."""
    file = write_llama(tmp_path / "tiny.gguf", kind=kind)
    source = resolve(file)
    assert (source.gguf, source.base.model) == (file, str(file)) and kind in source.quantization
    assert resolve(tmp_path).directory == source.directory, "a directory that holds it; converted once"
    model, heads = load_source(source), parse_all("L0H1,L1H3")
    assert model.dtype == ("float16" if kind == "F16" else "float32")
    ids = torch.arange(2, 22)[None]
    with torch.no_grad():
        before = model.network(ids).logits
        with knocked_out(model.network, model.architecture, heads):
            hooked = model.network(ids).logits
        bake(source, heads, out=tmp_path / "out.gguf")
        bake(source, heads, out=tmp_path / "out")
        baked = [load_source(resolve(tmp_path / name)).network(ids).logits for name in ("out.gguf", "out")]
    assert not torch.equal(before, hooked)
    assert all(torch.equal(hooked, logits) for logits in baked)
    assert verify(tmp_path / "out.gguf", source).against_base and verify(tmp_path / "out", file).against_base
    record = manifest.read(tmp_path / "out")
    assert (
        record.base == source.base and kind in record.left_out[0]["reason"] and record.left_out[0]["file"] == file.name
    )
    card = base_model(source, dtype=model.dtype)
    assert (card.license, card.quantization, card.source) == ("mit", source.quantization, "local")


def test_a_look_loads_nothing(tmp_path: Path) -> None:
    found = inspect(write_llama(tmp_path / "tiny.gguf"))
    assert found.quantization == "GGUF, Q4_0 x 15, F32 x 5" and len(found.architecture.heads) == 8
    assert found.parameters == read(tmp_path / "tiny.gguf").elements
    assert [(each.name, each.works) for each in found.formats] == [("checkpoint", True), ("lora", True), ("gguf", True)]
    narrow = inspect(write(tmp_path / "narrow.gguf", "Q4_1", heads=16, width=80))
    assert "80 is inside a block of 32 weights" in narrow.formats[2].note


def test_a_conversion_is_told_once_with_what_it_makes_and_where(tmp_path: Path) -> None:
    file, told = write_llama(tmp_path / "tiny.gguf"), list[str]()
    for _ in range(2):
        source = resolve(file, stages=partial(stages, told))
    title, done = told
    assert title.startswith("Converting to float32, once: tiny.gguf (0.") and done == "done"
    assert title.endswith(f", kept in {source.directory.parent}")


def test_weights_that_the_metadata_make_up_are_refused(tmp_path: Path) -> None:
    """A feed-forward of a billion, or a tensor that is not there: transformers would fill in random numbers."""
    data = write_llama(tmp_path / "a.gguf").read_bytes()
    at = data.index(b"llama.feed_forward_length") + len(b"llama.feed_forward_length") + 4
    (tmp_path / "a.gguf").write_bytes(data[:at] + struct.pack("<I", 1 << 30) + data[at + 4 :])
    with pytest.raises(EditkitError, match="its metadata describe 8246.* weights, its tensors hold"):
        resolve(tmp_path / "a.gguf")
    (tmp_path / "a.gguf").write_bytes(data.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))
    with pytest.raises(EditkitError, match="1 weights are missing or of another shape, .*up_proj"):
        resolve(tmp_path / "a.gguf")
    assert not list((tmp_path / "cache" / "converted").iterdir())


def test_without_the_gguf_package_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_llama(tmp_path / "tiny.gguf")
    monkeypatch.setattr(dequantize.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EditkitError, match=r"pip install 'editkit\[gguf\]'"):
        resolve(file)
    bake(file, [Head(0, 1)], out=tmp_path / "out.gguf")
    assert verify(tmp_path / "out.gguf", file).tensors == 1, "the edit in place needs no package"


def test_the_real_file(tmp_path: Path) -> None:
    file = smollm2.path()
    if file is None:
        pytest.skip("the package index is out of reach")
    bake(file, ["L20H8"], out=tmp_path / "out.gguf")
    one, other = (np.fromfile(path, np.uint8) for path in (file, tmp_path / "out.gguf"))
    assert 4500 < (one != other).sum() <= 2 * 576 * 4, "scale and minimum of two blocks a row; a few were zero"
    assert verify(tmp_path / "out.gguf", file).tensors == 1
