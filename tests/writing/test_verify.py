"""Verification: any changed byte is caught, and so is a forgery that hashes correctly but is not the edit.

If one fails: a changed or forged checkpoint passes for the edit that its evidence describes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from editkit.checkpoints import headers
from editkit.checkpoints.files import digest_of
from editkit.checkpoints.source import Source, resolve
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.units import Head
from editkit.writing import manifest
from editkit.writing import undo_file as undone
from editkit.writing.export import EXPORTS, checkpoint, lora
from editkit.writing.undo import undo
from editkit.writing.verify import verify
from tests import small_checkpoints as checkpoints

Forgery = Callable[[Path], object]
UNITS = frozenset({Head(0, 1), Head(0, 2), Head(2, 3)})


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with checkpoints.in_memory() as folder:
        yield folder


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return resolve(checkpoints.write(tmp_path / "base", shards=2))


@pytest.fixture
def out(tmp_path: Path, source: Source) -> Path:
    checkpoint.write(Edit(source.base, UNITS), source, tmp_path / "out")
    return tmp_path / "out"


def flipped(path: Path, place: int, bits: int) -> bytes:
    """Flip bits of one byte of a file; returns what it was."""
    whole = path.read_bytes()
    raw = bytearray(whole)
    raw[place] ^= bits
    path.write_bytes(raw)
    return whole


@pytest.mark.commit
def test_any_changed_byte_of_any_file_is_caught(out: Path) -> None:
    """Every byte of every file under 1 KB and of the manifest; 40 places of each larger file, its ends among them."""
    rng = np.random.default_rng(0)
    assert verify(out).files == len(checkpoints.files(out))
    for name, raw in checkpoints.files(out).items():
        places = np.arange(len(raw))
        if len(raw) > 1000 and name != manifest.NAME:
            places = np.unique([0, len(raw) - 1, *rng.integers(0, len(raw), 38)])
        for place in places:
            whole = flipped(out / name, int(place), int(rng.integers(1, 256)))
            with pytest.raises(IntegrityError, match=r"[a-z]") as caught:
                verify(out)
            assert caught.value.exit_code == 5 and name in str(caught.value), (name, place)
            (out / name).write_bytes(whole)
    verify(out)


def test_an_adapter_is_guarded_too(tmp_path: Path, source: Source) -> None:
    place = tmp_path / "lora"
    lora.write(Edit(source.base, UNITS), source, place)
    found = verify(place, source)
    assert found.form == "lora" and "zero" not in found.describe(), "an adapter zeroes no tensor itself"
    for name, raw in checkpoints.files(place).items():
        for byte in np.random.default_rng(0).integers(0, len(raw), 12):
            whole = flipped(place / name, int(byte), 16)
            with pytest.raises(IntegrityError):
                verify(place)
            (place / name).write_bytes(whole)
    flipped(place / lora.WEIGHTS, -3, 1)
    reseal(place)
    with pytest.raises(IntegrityError):
        verify(place)


@pytest.mark.parametrize(
    "name",
    [".git/HEAD", ".cache/huggingface/x.metadata", ".gitattributes", ".DS_Store", "editkit/.DS_Store", "Thumbs.db"],
)
def test_what_servers_clones_and_file_managers_add_is_neither_taken_along_nor_sealed(
    tmp_path: Path, source: Source, name: str
) -> None:
    (source.directory / name).parent.mkdir(parents=True, exist_ok=True)
    (source.directory / name).write_text("the base's")
    out = checkpoint.write(Edit(source.base, UNITS), source, tmp_path / "out").directory
    assert not (out / name).exists()
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("one")
    reseal(out)
    (out / name).write_text("another")
    verify(out)
    verify(out, source)


def test_missing_and_extra_files_are_listed_sorted(out: Path) -> None:
    (out / "tokenizer.json").unlink()
    (out / "config.json").unlink()
    (out / "zzz.safetensors").write_bytes(b"")
    (out / "editkit" / "more.txt").write_text("")
    with pytest.raises(IntegrityError) as caught:
        verify(out)
    lines = [line.strip() for line in str(caught.value).splitlines()[1:]]
    assert lines == [
        "config.json: missing",
        "editkit/more.txt: not in the manifest",
        "tokenizer.json: missing",
        "zzz.safetensors: not in the manifest",
    ]


def test_what_the_hub_adds_is_no_offence(out: Path, tmp_path: Path) -> None:
    (out / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (out / ".cache" / "huggingface").mkdir(parents=True)
    (out / ".cache" / "huggingface" / "x.metadata").write_text("")
    verify(out)
    snapshot, blobs = tmp_path / "models--o--n" / "snapshots" / ("0" * 40), tmp_path / "models--o--n" / "blobs"
    for name, raw in checkpoints.files(out).items():
        blob = blobs / name.replace("/", "-")
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(raw)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blob)
    assert verify(snapshot).files == verify(out).files, "a downloaded snapshot, links and all"


def reseal(out: Path, **changes: object) -> None:
    """Write the manifest again over changed files: what a forger would do."""
    record = replace(manifest.read(out), **changes)  # type: ignore[arg-type]
    manifest.write(out, record)


def test_a_forger_who_hashes_again_must_still_show_zeros(out: Path, source: Source) -> None:
    edited = manifest.read(out).edited[0]
    tensor = headers.read(out).tensors[edited.tensor]
    width = checkpoints.HEADS * checkpoints.WIDTH * 4
    inside_slice = tensor.start + width + edited.spans[0][0] * 4
    flipped(out / tensor.file, inside_slice, 1)
    reseal(out)
    with pytest.raises(IntegrityError, match=r"\[6:12\] of axis 1 is not zero"):
        verify(out)


def test_a_change_elsewhere_shows_against_the_base(out: Path, source: Source) -> None:
    tensor = headers.read(out).tensors["model.layers.1.mlp.up_proj.weight"]
    flipped(out / tensor.file, tensor.start + 5, 1)
    reseal(out)
    assert not verify(out).against_base
    with pytest.raises(
        IntegrityError, match=rf"differs from the base at byte {tensor.start + 5}, in model.layers.1.mlp"
    ):
        verify(out, source)


def another_place(name: str, at: str | None) -> Forgery:
    """The undo record says that OUT keeps a file elsewhere, or not at all."""

    def forge(out: Path) -> None:
        path = out / undone.NAME
        record = json.loads(headers.metadata(path)["editkit"])
        record["files"][name]["at"] = at
        rewrite_metadata(path, record)

    return forge


def overwritten(out: Path) -> None:
    tensor = headers.read(out).tensors["model.layers.1.mlp.up_proj.weight"]
    flipped(out / tensor.file, tensor.start + 5, 1)
    another_place(tensor.file, None)(out)


def replaced(out: Path) -> None:
    shutil.copy(out / "config.json", out / "editkit" / "base" / "config.json")
    config = json.loads((out / "config.json").read_text()) | {"auto_map": {"AutoModelForCausalLM": "modeling_custom.X"}}
    (out / "config.json").write_text(json.dumps(config))
    another_place("config.json", "editkit/base/config.json")(out)


def another_unit(units: frozenset[Head]) -> Forgery:
    def forge(out: Path) -> None:
        base = Edit.from_json((out / "editkit" / "edit.json").read_text()).base
        (out / "editkit" / "edit.json").write_text(Edit(base, units).to_json())

    return forge


def scaled(out: Path) -> None:
    """The adapter and the slices that it is said to be built of, sevenfold."""
    for name in (lora.WEIGHTS, undone.NAME):
        stored = {key: 7 * each if "lora_A" not in key else each for key, each in load_file(out / name).items()}
        save_file(stored, out / name, metadata=headers.metadata(out / name))


def another_module(out: Path) -> None:
    stored = {key.replace("layers.0.", "layers.1."): each for key, each in load_file(out / lora.WEIGHTS).items()}
    save_file(stored, out / lora.WEIGHTS, metadata={"format": "pt"})


def another_strength(out: Path) -> None:
    config = json.loads((out / lora.CONFIG).read_text())
    (out / lora.CONFIG).write_text(json.dumps(config | {"lora_alpha": 7 * config["r"]}, indent=2) + "\n")


def said_twice(out: Path) -> None:
    path = out / "editkit" / "edit.json"
    path.write_text(path.read_text().replace('"units"', '"units": ["L2H0"],\n  "units"'))


def another_base(out: Path) -> None:
    edit = Edit.from_json((out / "editkit" / "edit.json").read_text())
    renamed = Edit(replace(edit.base, model="meta-llama/Llama-3.2-1B"), edit.units)
    (out / "editkit" / "edit.json").write_text(renamed.to_json())


def smuggled(out: Path) -> None:
    """Code and a config that names it, which undo would lay out as the base's."""
    (out / "editkit" / "evil.py").write_text("print('evil')")
    record = json.loads(headers.metadata(out / undone.NAME)["editkit"])
    record["files"]["evil.py"] = {"at": "editkit/evil.py", "sha256": digest_of(out / "editkit" / "evil.py"), "size": 13}
    rewrite_metadata(out / undone.NAME, record)


def added(*names: str) -> Forgery:
    return lambda out: [(out / name).write_text("{}") for name in names]


FORGERIES: dict[str, tuple[str, Forgery, str]] = {
    "weights changed, said to be kept nowhere": ("checkpoint", overwritten, r"expected model-.* found nowhere"),
    "a config replaced, said to be kept elsewhere": (
        "checkpoint",
        replaced,
        "expected config.json of the base at conf",
    ),
    "code added": ("checkpoint", added("evil.py"), "evil.py: not in the base"),
    "an adapter added": ("checkpoint", added("adapter_config.json"), "adapter_config.json: not in the base"),
    "a pickle added": ("lora", added("pytorch_model.bin"), "pytorch_model.bin: not in the base"),
    "code among the records": ("checkpoint", added("editkit/evil.py"), "evil.py: not in the base"),
    "code among the records of an adapter": ("lora", added("editkit/evil.py"), "evil.py: not in the base"),
    "a file of the base that was none": ("checkpoint", smuggled, r"expected evil\.py of the base at evil\.py"),
    "a name twice in the edit": ("checkpoint", said_twice, "edit.json is not JSON: .*units.* appears twice"),
    "another base in the edit": ("checkpoint", another_base, "name different bases"),
    "another base in the edit of an adapter": ("lora", another_base, "name different bases"),
    "an adapter for another layer": ("lora", another_unit(frozenset({Head(1, 1), Head(1, 2), Head(2, 3)})), "undo"),
    "an adapter and its undo scaled alike": ("lora", scaled, "is not what the base holds there"),
    "an adapter on another module": ("lora", another_module, "is not what the edit makes of the base"),
    "an adapter loaded at another strength": ("lora", another_strength, "adapter_config.json: not the one"),
}
"""What a forger writes who hashes again: form, change, and what is said of it."""

ONLY_THE_BASE_TELLS = {
    "an adapter and its undo scaled alike",
    "an adapter for another layer",
    "an adapter on another module",
    "an adapter loaded at another strength",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_every_forgery_shows_against_the_base(tmp_path: Path, source: Source, name: str) -> None:
    form, forge, message = FORGERIES[name]
    place = tmp_path / "forged"
    EXPORTS[form](Edit(source.base, UNITS), source, place)
    assert verify(place, source).against_base
    forge(place)
    reseal(place)
    if name in ONLY_THE_BASE_TELLS:
        assert not verify(place).against_base, "the hashes are right"
    else:
        with pytest.raises(IntegrityError, match=message):
            verify(place)
    with pytest.raises(IntegrityError, match=message):
        verify(place, source)


def test_the_units_of_an_edit_must_be_those_of_its_undo_file(tmp_path: Path, source: Source) -> None:
    lora.write(Edit(source.base, UNITS), source, tmp_path / "lora")
    another_unit(frozenset({Head(0, 1), Head(2, 3)}))(tmp_path / "lora")
    reseal(tmp_path / "lora")
    with pytest.raises(IntegrityError, match="does not hold the slices that"):
        verify(tmp_path / "lora")


def test_another_base_is_noticed(out: Path, tmp_path: Path, source: Source) -> None:
    flipped(source.directory / "tokenizer.json", 3, 1)
    with pytest.raises(IntegrityError, match=r"tokenizer\.json: differs from the base"):
        verify(out, source)
    flipped(source.directory / headers.read(source.directory).files[0], -1, 1)
    with pytest.raises(IntegrityError, match="other weights"):
        verify(out, resolve(source.directory))


def test_the_edit_the_undo_and_the_manifest_must_agree(out: Path, source: Source) -> None:
    fewer = Edit(source.base, frozenset({Head(0, 1)}))
    (out / "editkit" / "edit.json").write_text(fewer.to_json())
    reseal(out)
    with pytest.raises(IntegrityError, match="undo"):
        verify(out)


def test_an_unfinished_output_is_none(out: Path) -> None:
    (out / manifest.NAME).unlink()
    with pytest.raises(IntegrityError, match="found none"):
        verify(out)


def test_undo_refuses_what_would_not_be_the_base(out: Path, tmp_path: Path, source: Source) -> None:
    flipped(out / headers.read(out).files[1], -1, 1)
    with pytest.raises(IntegrityError, match=r"model-00002-of-00002\.safetensors: its bytes were changed"):
        undo(out, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("name", [name for name, (form, *_) in FORGERIES.items() if form == "checkpoint"])
def test_undo_believes_no_forger(tmp_path: Path, source: Source, name: str) -> None:
    _, forge, _ = FORGERIES[name]
    checkpoint.write(Edit(source.base, UNITS), source, tmp_path / "forged")
    forge(tmp_path / "forged")
    reseal(tmp_path / "forged")
    with pytest.raises(IntegrityError):
        undo(tmp_path / "forged", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def sign_bits(out: Path) -> None:
    """The removed slices with their signs changed, and a record in which all hashes are right again."""
    path, raw = out / undone.NAME, (out / undone.NAME).read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    path.write_bytes(raw[:start] + bytes(byte ^ 128 if at % 4 == 3 else byte for at, byte in enumerate(raw[start:])))
    record, back = json.loads(headers.metadata(path)["editkit"]), undone.read(out)
    for name in headers.read(out).files:
        restored = out.with_name("restored")
        shutil.copy(out / name, restored)
        undone.put_back(back, name, restored)
        record["files"][name]["sha256"] = digest_of(restored)
    rewrite_metadata(path, record)


def test_undo_checks_the_weights_against_the_revision(out: Path, tmp_path: Path, source: Source) -> None:
    sign_bits(out)
    with pytest.raises(IntegrityError, match=r"undo\.safetensors"):
        undo(out, tmp_path / "back")
    reseal(out)
    with pytest.raises(IntegrityError, match="are not those of sha256:"):
        undo(out, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_undo_says_bit_for_bit_only_of_what_was_compared(out: Path, tmp_path: Path, source: Source) -> None:
    whole = undo(out, tmp_path / "back")
    assert whole.compared and "bit for bit" in whole.describe()
    moved = source.directory.rename(tmp_path / "moved")
    alone = undo(out, tmp_path / "alone")
    assert not alone.compared and "--base" in alone.describe()
    again = undo(out, tmp_path / "again", base=moved)
    assert again.compared
    flipped(moved / "tokenizer.json", 3, 1)
    with pytest.raises(IntegrityError, match=r"tokenizer\.json: differs from the base"):
        undo(out, tmp_path / "never", base=moved)


def test_undo_does_not_swear_to_a_commit_that_nobody_looked_at(out: Path, tmp_path: Path, source: Source) -> None:
    base = replace(source, base=Base("nobody/nothing", "0" * 40))
    checkpoint.write(Edit(base.base, UNITS), base, tmp_path / "hub")
    found = undo(tmp_path / "hub", tmp_path / "back")
    assert not found.compared and "bit for bit" not in found.describe() and "--base" in found.describe()
    flipped(tmp_path / "hub" / "config.json", 1, 1)
    with pytest.raises(IntegrityError, match=r"config\.json: its bytes were changed"):
        undo(tmp_path / "hub", tmp_path / "never")


def test_a_base_of_another_name_contradicts_the_edit(tmp_path: Path, source: Source) -> None:
    base = replace(source, base=Base("one/model", "0" * 40))
    checkpoint.write(Edit(base.base, UNITS), base, tmp_path / "out")
    assert verify(tmp_path / "out", base).against_base
    with pytest.raises(IntegrityError, match=r"other/model.*one/model|one/model.*other/model"):
        verify(tmp_path / "out", replace(base, base=Base("other/model", "0" * 40)))


def test_undo_of_an_adapter_names_the_base_that_changed(tmp_path: Path, source: Source) -> None:
    lora.write(Edit(source.base, UNITS), source, tmp_path / "lora")
    flipped(source.directory / "README.md", -1, 1)
    verify(tmp_path / "lora")
    with pytest.raises(IntegrityError, match=r"cannot restore README\.md: .*Changed since in the base, .*base"):
        undo(tmp_path / "lora", tmp_path / "back")


@pytest.mark.parametrize("form", EXPORTS)
def test_undo_writes_neither_into_the_output_nor_into_the_base(tmp_path: Path, source: Source, form: str) -> None:
    out = EXPORTS[form](Edit(source.base, UNITS), source, tmp_path / form).directory
    for inside in (out / "base", out, *([source.directory / "back"] if form != "checkpoint" else [])):
        with pytest.raises(EditkitError, match="is inside the"):
            undo(out, inside)
    assert verify(out, source).form == form


def test_the_command_on_the_plain_card_gives_the_base_back(
    out: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(r"`editkit undo (\S+) -o (\S+)`", (out / "README.md").read_text())
    assert found is not None
    monkeypatch.chdir(out)
    undo(Path(found[1]), Path(found[2]))
    assert checkpoints.files(out / found[2]) == checkpoints.files(source.directory)
    verify(out)


@pytest.mark.parametrize("name", ["../stolen", "/etc/stolen", "a/../../stolen", "x\ny"])
def test_an_undo_file_cannot_write_elsewhere(out: Path, tmp_path: Path, name: str) -> None:
    path = out / "editkit" / "undo.safetensors"
    record = json.loads(headers.metadata(path)["editkit"])
    for field in ("key", "at"):
        files = dict(record["files"])
        kept = files.pop("config.json")
        files |= {name: kept} if field == "key" else {"config.json": kept | {"at": name}}
        rewrite_metadata(path, record | {"files": files})
        reseal(out)
        with pytest.raises(IntegrityError, match="no name of a file"):
            undo(out, tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "out"]


def rewrite_metadata(path: Path, record: object) -> None:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length]) | {"__metadata__": {"editkit": json.dumps(record)}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def test_a_moved_output_still_verifies(out: Path, tmp_path: Path, source: Source) -> None:
    shutil.move(out, tmp_path / "moved")
    assert verify(tmp_path / "moved", source).against_base
