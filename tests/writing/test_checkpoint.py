"""What the writer does with files: formats, other copies of the weights, links, crashes, and the way back.

If one fails: a kill leaves half a checkpoint that looks whole, other weights are changed, or there is no way back.
"""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editkit.checkpoints import headers
from editkit.checkpoints.source import Source, resolve
from editkit.checkpoints.staging import beside, check_free
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.units import Head
from editkit.writing import copying, manifest, slices
from editkit.writing.export import EXPORTS, checkpoint
from editkit.writing.slices import Runs, by_file, zero
from editkit.writing.undo import undo
from editkit.writing.verify import verify
from tests import small_checkpoints as checkpoints

HEADS = frozenset({Head(0, 1), Head(0, 3), Head(2, 2)})


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with checkpoints.in_memory() as folder:
        yield folder


def edit_of(source: Source) -> Edit:
    return Edit(source.base, HEADS)


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16", "F64", "F8_E4M3", "F8_E5M2"])
def test_exactly_the_slices_are_zero_in_every_float_format(tmp_path: Path, dtype: str, shards: int) -> None:
    base = checkpoints.write(tmp_path / "base", dtype=dtype, shards=shards)
    source = resolve(base)
    written = checkpoint.write(edit_of(source), source, tmp_path / "out")
    assert written.directory == tmp_path / "out"
    size = headers.BITS[dtype] // 8
    changed = sum(
        one != other
        for name in headers.read(base).files
        for one, other in zip((base / name).read_bytes(), (tmp_path / "out" / name).read_bytes(), strict=True)
    )
    assert changed == 3 * checkpoints.HIDDEN * checkpoints.WIDTH * size, (
        "the weights have no zero bytes: all are counted"
    )
    assert verify(tmp_path / "out", source).tensors == 2
    undo(tmp_path / "out", tmp_path / "back")
    assert checkpoints.files(tmp_path / "back") == checkpoints.files(base)


@pytest.mark.parametrize("dtype", ["I8", "U8", "I32", "F8_E8M0", "F4"])
def test_packed_weights_are_refused_with_the_remedy(tmp_path: Path, dtype: str) -> None:
    source = resolve(checkpoints.write(tmp_path / "base", dtype=dtype))
    with pytest.raises(EditkitError, match="unquantized"):
        checkpoint.write(edit_of(source), source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@given(
    first=st.integers(0, 40),
    length=st.integers(1, 9),
    gap=st.integers(0, 9),
    count=st.integers(0, 6),
    place=st.integers(0, 120),
    size=st.integers(1, 60),
)
def test_a_window_is_zeroed_as_the_whole_file_would_be(
    first: int, length: int, gap: int, count: int, place: int, size: int
) -> None:
    whole = np.ones(200, np.uint8)
    for number in range(count):
        begin = first + number * (length + gap)
        whole[begin : begin + length] = 0
    window = np.ones(size, np.uint8)
    zero(window, place, [Runs(first, length, length + gap, count)])
    assert np.array_equal(window, whole[place : place + size])


@given(
    first=st.integers(0, 40),
    length=st.integers(1, 4),
    gaps=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    count=st.integers(0, 5),
    place=st.integers(0, 120),
    size=st.integers(1, 60),
    chunk=st.sampled_from([1, 1000]),
)
def test_runs_of_several_offsets_cover_what_they_say(
    first: int, length: int, gaps: list[int], count: int, place: int, size: int, chunk: int
) -> None:
    """Neurons: several runs in each stride. If this fails, other columns than the edit's are zeroed."""
    offsets = tuple(int(each) for each in np.cumsum([0, *(gap + length for gap in gaps[:-1])]))
    stride = offsets[-1] + length + gaps[-1]
    runs, whole = Runs(first, length, stride, count, offsets), np.zeros(400, bool)
    for number in range(count):
        for offset in offsets:
            whole[first + number * stride + offset :][:length] = True
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(slices, "CHUNK", chunk)
        assert np.array_equal(runs.covered(place, size), whole[place : place + size])
    assert runs.before(place) == whole[:place].sum()
    assert runs.bytes == whole.sum()
    assert not count or runs.end == np.flatnonzero(whole)[-1] + 1


def test_other_copies_of_the_weights_are_left_out_and_named(tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base")
    stale = ["pytorch_model.bin", "model.gguf", "original/consolidated.00.pth", "tf_model.h5", "flax_model.msgpack"]
    stale += ["onnx/model.onnx", "consolidated.safetensors", "model.fp16.safetensors", "optimizer.pt", "rng.pkl"]
    for name in [*stale, ".git/config", "chat_template.jinja", "LICENSE"]:
        (base / name).parent.mkdir(exist_ok=True)
        (base / name).write_bytes(b"x")
    source = resolve(base)
    written = checkpoint.write(edit_of(source), source, tmp_path / "out")
    assert {row.file for row in written.left_out} == {*stale, ".git/config"}
    assert all(name in " ".join(written.notes) for name in stale)
    kept = checkpoints.files(tmp_path / "out")
    assert {"LICENSE", "chat_template.jinja", "modeling_custom.py"} <= kept.keys()
    assert not kept.keys() & {*stale, ".git/config"}
    assert kept["editkit/base/README.md"] == (base / "README.md").read_bytes() != kept["README.md"]


SECRETS = (
    *(".env", ".ssh/id_rsa", ".aws/credentials", ".netrc", ".git-credentials", "server.pem", "token", "hf_token.txt"),
    *("wandb/run-1/config.yaml", "code/.git/config", ".git", "credentials.json", ".docker/config.json", "notes.md"),
)
"""What lies beside weights on somebody's disk."""


@pytest.mark.parametrize("form", EXPORTS)
def test_only_what_a_checkpoint_is_made_of_goes_along_and_the_rest_is_named(tmp_path: Path, form: str) -> None:
    base = checkpoints.write(tmp_path / "base")
    for name in SECRETS:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("a private line of SECRETS")
    source = resolve(base)
    written = EXPORTS[form](edit_of(source), source, tmp_path / "out")
    kept = checkpoints.files(tmp_path / "out")
    assert not {name for name, raw in kept.items() if b"a private line" in raw}
    told = " ".join(written.notes)
    assert form == "lora" or all(name.split("/")[0] in told for name in SECRETS if name != ".git"), told
    assert not any(b"id_rsa" in raw or b"credentials" in raw for raw in kept.values()), "nor are their names published"
    assert verify(tmp_path / "out", source).against_base


def test_code_goes_along_only_where_the_checkpoint_runs_on_it(tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base", config={"auto_map": {}})
    (base / "config.json").write_text((base / "config.json").read_text().replace('"auto_map": {}', '"x": 1'))
    source = resolve(base)
    written = checkpoint.write(edit_of(source), source, tmp_path / "out")
    assert not (tmp_path / "out" / "modeling_custom.py").exists() and "modeling_custom.py" in " ".join(written.notes)
    assert verify(tmp_path / "out", source).against_base


def test_an_edited_checkpoint_can_be_edited_again_and_undone_step_by_step(tmp_path: Path) -> None:
    base = resolve(checkpoints.write(tmp_path / "base"))
    checkpoint.write(edit_of(base), base, tmp_path / "first")
    first = resolve(tmp_path / "first")
    checkpoint.write(Edit(first.base, frozenset({Head(1, 0)})), first, tmp_path / "second")
    assert verify(tmp_path / "second", first).tensors == 1
    undo(tmp_path / "second", tmp_path / "one")
    assert checkpoints.files(tmp_path / "one") == checkpoints.files(tmp_path / "first")
    undo(tmp_path / "one", tmp_path / "none")
    assert checkpoints.files(tmp_path / "none") == checkpoints.files(tmp_path / "base")


def test_unchanged_shards_may_be_linked(tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base", shards=6)
    before = checkpoints.files(base)
    source = resolve(base)
    written = checkpoint.write(edit_of(source), source, tmp_path / "out", link=True)
    checkpoint.write(edit_of(source), source, tmp_path / "copied")
    edited = {row.file for row in written.edited}
    shared = {name for name in headers.read(base).files if os.path.samefile(base / name, tmp_path / "out" / name)}
    assert not shared & edited and checkpoints.files(base) == before
    assert shared == set(headers.read(base).files) - edited or not shared  # none where the file system has reflinks
    one, other = checkpoints.files(tmp_path / "out"), checkpoints.files(tmp_path / "copied")
    assert one == other, "linked or copied, the bytes are the same"
    assert verify(tmp_path / "out", source).against_base


def test_out_must_be_new_and_outside_the_base(tmp_path: Path) -> None:
    source = resolve(checkpoints.write(tmp_path / "base"))
    for name in ("base/out", "base"):
        with pytest.raises(EditkitError):
            checkpoint.write(edit_of(source), source, tmp_path / name)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("full", "file", "dangling"):
        with pytest.raises(EditkitError, match="already exists"):
            checkpoint.write(edit_of(source), source, tmp_path / name)
    (tmp_path / "empty").mkdir()
    checkpoint.write(edit_of(source), source, tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "dangling", "empty", "file", "full"]


@pytest.mark.parametrize("form", EXPORTS)
@pytest.mark.parametrize("name", ["base/out", "base", "base/a/b"])
def test_no_form_is_written_inside_the_base(tmp_path: Path, form: str, name: str) -> None:
    source = resolve(checkpoints.write(tmp_path / "base"))
    before = checkpoints.files(source.directory)
    with pytest.raises(EditkitError, match="inside the base"):
        EXPORTS[form](edit_of(source), source, tmp_path / name)
    assert checkpoints.files(source.directory) == before


@pytest.mark.parametrize("place", ["the current directory", "a mount point"])
def test_a_directory_that_cannot_be_replaced_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    source = resolve(checkpoints.write(tmp_path / "base"))
    (tmp_path / "out").mkdir()
    if place == "a mount point":
        monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "out")
    else:
        monkeypatch.chdir(tmp_path / "out")
    for out in (Path(), tmp_path / "out") if place == "the current directory" else (tmp_path / "out",):
        with pytest.raises(EditkitError, match="Name a new directory inside it"):
            check_free(out)
        with pytest.raises(EditkitError, match="Name a new directory inside it"):
            checkpoint.write(edit_of(source), source, out)
    checkpoint.write(edit_of(source), source, tmp_path / "out" / "new")
    assert os.path.samefile(tmp_path / "out", Path.cwd()) == (place == "the current directory")


def test_a_mount_that_shows_only_at_the_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a folder bound to another one of the same disk."""

    def busy(path: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(path))

    (tmp_path / "out").mkdir()
    monkeypatch.setattr(Path, "rmdir", busy)
    with pytest.raises(EditkitError, match="mounted on it.*choose a directory inside it"), beside(tmp_path / "out"):
        pass


def test_threads_that_write_the_same_output_do_not_touch_each_other(tmp_path: Path) -> None:
    def second() -> Path:
        with beside(tmp_path / "out") as place:
            (place / "second").touch()
        return place

    with pytest.raises(EditkitError, match="filled by somebody else"), beside(tmp_path / "out") as first:
        (first / "first").touch()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(second).result() != first
        assert (first / "first").exists()
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["out", "out/second"]


def test_a_base_with_a_file_called_editkit_is_written_and_undone(tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base")
    (base / "editkit").write_text("a file, not a folder")
    source = resolve(base)
    checkpoint.write(edit_of(source), source, tmp_path / "out")
    assert verify(tmp_path / "out", source).against_base
    undo(tmp_path / "out", tmp_path / "back")
    assert checkpoints.files(tmp_path / "back").keys() == checkpoints.files(base).keys() - {"editkit"}


def test_an_edit_for_other_weights_or_heads_is_refused(tmp_path: Path) -> None:
    source = resolve(checkpoints.write(tmp_path / "base"))
    other = Edit(Base(source.base.model, "sha256:" + "0" * 64), HEADS)
    with pytest.raises(EditkitError, match="other weights"):
        checkpoint.write(other, source, tmp_path / "out")
    commit = Edit(Base("owner/name", "0" * 40), HEADS)
    checkpoint.write(commit, source, tmp_path / "local")
    assert manifest.read(tmp_path / "local").base == source.base, "what was read is on record, not what was meant"
    with pytest.raises(EditkitError, match="L9H0"):
        checkpoint.write(Edit(source.base, frozenset({Head(9, 0)})), source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_stage_takes_evidence_and_vanishes_on_an_error(tmp_path: Path) -> None:
    source = resolve(checkpoints.write(tmp_path / "base"))
    with checkpoint.stage(edit_of(source), source, tmp_path / "out", seeds={"localize": 7}) as written:
        assert not (tmp_path / "out").exists()
        (written.directory / "README.md").write_text("# My card\n")
        (written.directory / "editkit" / "report.json").write_text("{}\n")
    record = manifest.read(tmp_path / "out")
    assert record.seeds == {"localize": 7} and "editkit/report.json" in record.files
    assert (tmp_path / "out" / "README.md").read_text() == "# My card\n"
    with pytest.raises(ZeroDivisionError), checkpoint.stage(edit_of(source), source, tmp_path / "other"):
        raise ZeroDivisionError
    with (
        pytest.raises(IntegrityError, match=r"model\.safetensors"),
        checkpoint.stage(edit_of(source), source, tmp_path / "other") as written,
    ):
        (written.directory / "model.safetensors").write_bytes(b"resaved")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "out"]


@pytest.mark.parametrize("edited", [True, False])
def test_a_byte_that_did_not_arrive_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: bool) -> None:
    source = resolve(checkpoints.write(tmp_path / "base", shards=2))
    edit, honest = Edit(source.base, frozenset({Head(0, 1)})), copying._write
    touched = by_file(checkpoint.plan_of(edit, source).slices)

    def torn(file: Any, data: bytearray) -> None:
        honest(file, data)
        name = Path(file.name).name
        if name.endswith(".safetensors") and (name in touched) == edited:
            os.pwrite(file.fileno(), bytes([data[-1] ^ 1]), file.tell() - 1)

    monkeypatch.setattr(copying, "_write", torn)
    with pytest.raises(IntegrityError, match="read back"):
        checkpoint.write(edit, source, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


@pytest.mark.parametrize("change", ["a byte", "longer", "shorter"])
def test_a_base_that_changes_while_it_is_copied_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    source = resolve(checkpoints.write(tmp_path / "base"))
    file, honest = source.directory / "model.safetensors", copying._write

    def meanwhile(target: Any, data: bytearray) -> None:
        honest(target, data)
        if target.name.endswith(".safetensors"):
            with open(file, "r+b") as other:
                other.seek(-1 if change == "a byte" else 0, os.SEEK_END)
                other.truncate(100) if change == "shorter" else other.write(b"x")
            os.utime(file)

    monkeypatch.setattr(copying, "_write", meanwhile)
    with pytest.raises(IntegrityError, match=r"model\.safetensors: changed while it was copied"):
        checkpoint.write(edit_of(source), source, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


def test_a_base_that_changed_after_it_was_looked_up_is_noticed(tmp_path: Path) -> None:
    source = resolve(checkpoints.write(tmp_path / "base", shards=2))
    assert source.stamps.keys() == source.digests.keys()
    file = source.directory / headers.read(source.directory).files[1]
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    os.utime(file, (0, 0))
    with pytest.raises(IntegrityError, match="changed since the model was looked up"):
        checkpoint.write(edit_of(source), source, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


@given(size=st.integers(0, 300), chunk=st.integers(1, 97), data=st.data())
def test_a_copy_is_the_base_with_the_runs_zeroed_whatever_the_chunks(
    size: int, chunk: int, data: st.DataObject
) -> None:
    raw = data.draw(st.binary(min_size=size, max_size=size))
    runs = [
        Runs(first, length, length + gap, count)
        for first, length, gap, count in data.draw(
            st.lists(st.tuples(*(st.integers(0, most) for most in (40, 30, 9, 3))), max_size=3)
        )
        if length and first + count * (length + gap) <= size
    ]
    expected = bytearray(raw)
    for run in runs:
        for number in range(run.count):
            start = run.first + number * run.stride
            expected[start : start + run.length] = bytes(run.length)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as smaller:
        smaller.setattr(copying, "CHUNK", chunk)
        base, out = Path(folder, "base"), Path(folder, "out")
        base.write_bytes(raw)
        before = hashlib.sha256(raw).hexdigest()
        copied = copying.copy(base, out, runs, known=data.draw(st.sampled_from([None, before])))
        assert out.read_bytes() == expected
        assert copied == copying.Copied(before, hashlib.sha256(expected).hexdigest())
        assert copying.differences(base, out, runs) == ()
        place = data.draw(st.integers(0, max(0, size - 1)))
        if size:
            expected[place] ^= 1
            out.write_bytes(expected)
            assert len(copying.differences(base, out, runs)) == 1
            assert copying.differences(base, out, runs)[0] == place
        out.write_bytes(expected[:-1] if size else b"x")
        assert copying.differences(base, out, runs)


_BAKE = """
import sys, time
from pathlib import Path
from editkit.edit import Edit
from editkit.writing.export import checkpoint
from editkit.writing import copying
from editkit.checkpoints.source import resolve
from editkit.units import Head
fast = copying.copy
copying.copy = lambda *args, **options: (time.sleep(0.02), fast(*args, **options))[1]
source = resolve(Path(sys.argv[1]))
print("start", flush=True)
checkpoint.write(Edit(source.base, frozenset({Head(0, 1)})), source, Path(sys.argv[2]))
"""


@pytest.mark.commit
def test_a_kill_at_any_instant_leaves_nothing_or_the_whole(tmp_path: Path) -> None:
    base, out = checkpoints.write(tmp_path / "base", shards=8), tmp_path / "out"
    outcomes = set()
    for delay in (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, None):
        process = subprocess.Popen([sys.executable, "-c", _BAKE, base, out], stdout=subprocess.PIPE, cwd=Path.cwd())
        assert process.stdout is not None and process.stdout.readline() == b"start\n"
        if delay is not None:
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        outcomes.add(out.exists())
        if out.exists():
            assert verify(out).form == "checkpoint"
            break
    assert outcomes == {False, True}, "some runs were killed, the last one was let through"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "out"], (
        "a later run clears what a dead one left"
    )
