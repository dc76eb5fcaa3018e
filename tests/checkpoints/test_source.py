"""What a user may name as a model, and what becomes of it.

If one fails: another model than the one that was named is edited, or a user's folder is changed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from editkit.checkpoints import convert, headers
from editkit.checkpoints.base_card import front_matter
from editkit.checkpoints.source import resolve
from editkit.checkpoints.staging import check_free
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, UsageError
from editkit.planning.inspection import inspect
from editkit.units import Head
from editkit.writing.export import checkpoint
from editkit.writing.verify import verify
from tests import small_checkpoints as checkpoints
from tests import tiny

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with checkpoints.in_memory() as folder:
        yield folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's caches, and no network."""
    monkeypatch.setenv("EDITKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def in_hub_cache(cache: Path, name: str = "models--owner--name") -> Path:
    """A snapshot as huggingface_hub leaves it: links into blobs."""
    real = checkpoints.write(cache / "real", shards=2)
    snapshot = cache / name / "snapshots" / COMMIT
    (cache / name / "blobs").mkdir(parents=True)
    (cache / name / "refs").mkdir()
    (cache / name / "refs" / "main").write_text(COMMIT)
    snapshot.mkdir(parents=True)
    for path in real.iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(cache / name / "blobs" / digest)
        (snapshot / path.name).symlink_to(f"../../blobs/{digest}")
    return snapshot


def test_a_local_directory_is_known_by_its_weights(tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base", shards=3)
    source = resolve(base)
    listed = subprocess.run("sha256sum *.safetensors | sha256sum", shell=True, cwd=base, capture_output=True, text=True)
    assert source.base == Base(str(base), "sha256:" + listed.stdout.split()[0])
    assert source.digests.keys() == set(headers.read(base).files) and not source.bundled
    (base / "README.md").write_text("another card")
    assert resolve(str(base)).base == source.base, "only the weights count"
    with open(base / headers.read(base).files[0], "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    assert resolve(base).base.revision != source.base.revision
    with pytest.raises(EditkitError, match="other weights"):
        resolve(base, source.base.revision)
    with pytest.raises(UsageError, match="no revision"):
        resolve(base, "main")


def test_a_local_directory_may_be_identified_by_the_copying(tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base", shards=3)
    known, open_ = resolve(base), resolve(base, identify=False)
    assert open_.base == Base(str(base), None) and not open_.digests
    assert resolve(base, known.base.revision, identify=False).base == known.base, "what is expected is checked"
    written = []
    for place, (source, link) in enumerate(product((known, open_), (False, True))):
        out = tmp_path / f"out-{place}"
        checkpoint.write(Edit(source.base, frozenset({Head(0, 1)})), source, out, link=link)
        assert verify(out, known).against_base
        written.append(checkpoints.files(out))
    assert all(found == written[0] for found in written), "the same bytes, revision and hashes too"


def test_a_hub_model_is_found_in_the_cache_without_a_network(cache: Path, tmp_path: Path) -> None:
    snapshot = in_hub_cache(cache)
    for name in ("owner/name", "hf://owner/name"):
        source = resolve(name)
        assert source.base == Base("owner/name", COMMIT) and source.directory.samefile(snapshot)
    assert resolve(snapshot).base == Base("owner/name", COMMIT), "the cached directory is the same model"
    checkpoint.write(Edit(source.base, frozenset({Head(0, 1)})), source, tmp_path / "out")
    assert verify(tmp_path / "out", source).against_base
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("owner/absent", "cannot be reached"),
        ("../absent/model", "no such directory"),
        ("./nowhere", "no such directory"),
        ("a/b/c", "no such directory"),
        ("owner/na\nme", r"no such directory.*"),
        ("owner/..", "no such directory"),
        ("", "no such directory"),
        ("~nobody-of-that-name/x", "no such directory"),
        ("x" * 300, "no such directory"),
    ],
)
def test_unknown_models_get_one_clear_sentence(name: str, message: str) -> None:
    for find in (resolve, inspect):
        with pytest.raises(EditkitError, match=message if find is resolve else None) as caught:
            find(name or "-")
        assert "\n" not in str(caught.value)


def test_a_model_without_an_owner_is_known_by_its_name_in_the_cache_too(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--gpt2" / "snapshots" / COMMIT
    checkpoints.write(snapshot)
    assert resolve(snapshot).base == Base("gpt2", COMMIT)


def test_the_bundled_model_has_a_name() -> None:
    assert inspect("organism") == inspect() and resolve("organism").bundled


def test_a_base_that_was_a_directory_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    base = resolve(checkpoints.write(tmp_path / "base"))
    with pytest.raises(EditkitError, match="no such directory here. Run the command where it lies"):
        resolve("base", base.base.revision)


def test_a_folder_that_cannot_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, listed = checkpoints.write(tmp_path / "base"), os.scandir
    (base / "locked").mkdir()

    def scandir(place: Any) -> Any:
        if str(place).endswith("locked"):
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        return listed(place)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(EditkitError, match=r"locked: this folder cannot be read \(Permission denied\)"):
        checkpoint.write(Edit(Base("base", None), frozenset()), resolve(base, identify=False), tmp_path / "out")


def test_an_output_with_a_name_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EditkitError, match="File name too long"):
        check_free(tmp_path / ("x" * 300))


def test_a_revision_must_look_like_one() -> None:
    with pytest.raises(UsageError, match="no revision"):
        resolve("owner/name", "../../etc")


def test_directories_without_weights_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EditkitError, match=r"config\.json"):
        resolve(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text("{}")
    with pytest.raises(EditkitError, match="found none"):
        resolve(tmp_path / "empty")
    (tmp_path / "empty" / "model.onnx").write_text("")
    with pytest.raises(EditkitError, match=r"found only model\.onnx"):
        resolve(tmp_path / "empty")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter" / "adapter_model.safetensors").write_text("")
    with pytest.raises(EditkitError, match="merge_and_unload"):
        resolve(tmp_path / "adapter")


@pytest.mark.parametrize(
    "name", ["a|b", "a\x1b[31m", "[x](http://e.x)", "a: b", "<b>", "`id`", "a\u202eb", "#x", "*x*"]
)
def test_names_that_mean_something_in_a_card_are_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name.split("/")[0]).mkdir()
    checkpoints.write(tmp_path / name / "base")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EditkitError, match="model card") as caught:
        resolve(f"{name}/base")
    assert "\x1b" not in str(caught.value) and "\u202e" not in str(caught.value)


PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", headers.INDEX)
PICKLED_PARTS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", convert.PICKLE_INDEX)
LAYOUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "one file, other shards": ((headers.SINGLE,), PARTS, ""),
    "one file, an index alone": ((headers.SINGLE,), PARTS, "model-*"),
    "one file, a pickle": ((headers.SINGLE,), (convert.PICKLE,), ""),
    "shards, a pickle": (PARTS, (convert.PICKLE,), ""),
    "a pickle, other pickled shards": ((convert.PICKLE,), PICKLED_PARTS, ""),
    "a pickle, a pickled index alone": ((convert.PICKLE,), PICKLED_PARTS, "pytorch_model-*"),
    "a pickle, a variant": ((convert.PICKLE,), ("model.fp16.safetensors",), ""),
    "a pickle, a shard": ((convert.PICKLE,), PARTS, "model-00002-*|*.index.json"),
    "pickled shards, a variant": (PICKLED_PARTS, ("model.fp16.safetensors",), ""),
}
"""What is loaded, what lies beside it, and what of that is gone."""


def save(directory: Path, tensors: dict[str, torch.Tensor], files: tuple[str, ...]) -> None:
    """The weights in these files; the last of several is the index."""
    names = sorted(tensors)
    parts = files[:-1] or files
    weight_map = {name: parts[place * len(parts) // len(names)] for place, name in enumerate(names)}
    for file in parts:
        part = {name: tensors[name].clone() for name in names if weight_map[name] == file}
        torch.save(part, directory / file) if file.endswith(".bin") else save_file(part, directory / file)
    if len(files) > 1:
        (directory / files[-1]).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_two_models_in_one_directory_the_one_that_transformers_loads_is_edited(tmp_path: Path, layout: str) -> None:
    from transformers import AutoModelForCausalLM

    model, config = tiny.build("llama")
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path / "base")
    weights = model.state_dict()
    loaded, beside, gone = LAYOUTS[layout]
    save(tmp_path / "base", {name: tensor + 1 for name, tensor in weights.items()}, beside)
    for pattern in gone.split("|") if gone else ():
        for path in (tmp_path / "base").glob(pattern):
            path.unlink()
    lying = {path.name for path in (tmp_path / "base").iterdir()} & {*beside}
    save(tmp_path / "base", weights, loaded)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path / "base").state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in reference.items())
    source = resolve(tmp_path / "base")
    stored: dict[str, torch.Tensor] = {}
    for file in headers.read(source.directory).files:
        stored |= load_file(source.directory / file)
    assert stored.keys() <= weights.keys() and all(torch.equal(stored[name], weights[name]) for name in stored)
    written = checkpoint.write(Edit(source.base, frozenset({Head(0, 1)})), source, tmp_path / "out")
    assert lying <= {row.file for row in written.left_out} and not lying & checkpoints.files(tmp_path / "out").keys()
    assert verify(tmp_path / "out", source).against_base
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


@pytest.mark.parametrize("shards", [1, 2])
def test_pickled_weights_are_converted_name_by_name(tmp_path: Path, shards: int, cache: Path) -> None:
    from transformers import AutoModelForCausalLM

    model, config = tiny.build("gpt2")
    assert config.tie_word_embeddings
    weights = model.state_dict()
    (tmp_path / "base").mkdir()
    config.architectures = ["GPT2LMHeadModel"]
    config.save_pretrained(tmp_path / "base")
    names = sorted(weights)
    parts = [names] if shards == 1 else [names[::2], names[1::2]]
    for place, part in enumerate(parts):
        file = "pytorch_model.bin" if shards == 1 else f"pytorch_model-{place + 1:05}-of-{shards:05}.bin"
        torch.save({name: weights[name] for name in part}, tmp_path / "base" / file)
    source = resolve(tmp_path / "base")
    assert len(source.converted) == shards and source.base.model == str(tmp_path / "base")
    stored: dict[str, torch.Tensor] = {}
    for file in headers.read(source.directory).files:
        stored |= load_file(source.directory / file)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in stored.items())
    assert weights.keys() == stored.keys(), "a tied head too"
    assert resolve(tmp_path / "base").directory == source.directory
    checkpoint.write(Edit(source.base, frozenset({Head(0, 1)})), source, tmp_path / "out")
    assert verify(tmp_path / "out", source).against_base
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert loaded.lm_head.weight is loaded.transformer.wte.weight or torch.equal(
        loaded.lm_head.weight, weights["lm_head.weight"]
    )


def test_tensors_that_share_memory_are_written_apart(tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base", config={"tie_word_embeddings": False})
    tensors = load_file(base / "model.safetensors")
    (base / "model.safetensors").unlink()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors["model.norm.weight"] = tensors["model.embed_tokens.weight"][1]
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.arange(320.0).reshape(16, 20).T
    torch.save(tensors, base / "pytorch_model.bin")
    stored = load_file(resolve(base).directory / "model.safetensors")
    assert stored.keys() == tensors.keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in tensors.items())


def pickled(directory: Path, files: tuple[str, ...] = (convert.PICKLE,)) -> Path:
    """The checkpoint of ``checkpoints.write`` with its weights pickled."""
    checkpoints.write(directory)
    save(directory, load_file(directory / headers.SINGLE), files)
    (directory / headers.SINGLE).unlink()
    return directory


def change_index(change: Any) -> Any:
    def make(base: Path) -> None:
        value = json.loads((base / convert.PICKLE_INDEX).read_text())
        change(value["weight_map"])
        (base / convert.PICKLE_INDEX).write_text(json.dumps(value))

    return make


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda base: (base / PICKLED_PARTS[1]).unlink(), "missing from"),
        (lambda base: [(base / name).unlink() for name in PICKLED_PARTS[1:]], "expected pickled parts 1 to 2, found 1"),
        (change_index(lambda names: names.pop("model.norm.weight")), "1 tensors .*model.norm.weight"),
        (change_index(lambda names: names.update(more=PICKLED_PARTS[0])), "1 tensors .*more"),
    ],
)
def test_pickled_parts_that_are_no_whole_model_are_refused(tmp_path: Path, spoil: Any, message: str) -> None:
    base = pickled(tmp_path / "base", PICKLED_PARTS)
    assert len(headers.read(resolve(base).directory).tensors) == len(checkpoints.shapes())
    spoil(base)
    with pytest.raises(EditkitError, match=message):
        resolve(base)


def test_files_around_pickled_weights_are_those_of_today(tmp_path: Path) -> None:
    base = pickled(tmp_path / "base")
    first = resolve(base)
    (base / "tokenizer.json").write_text('{"version": "2.0"}')
    (base / "chat_template.jinja").write_text("{{ x }}")
    (base / "vocab.txt").write_text("x")
    source = resolve(base)
    written = checkpoint.write(Edit(source.base, frozenset({Head(0, 1)})), source, tmp_path / "out")
    for name in ("tokenizer.json", "chat_template.jinja", "vocab.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (base / name).read_bytes()
    assert [row.file for row in written.left_out] == [convert.PICKLE]
    assert verify(tmp_path / "out", base).against_base
    assert first.directory != source.directory and resolve(base).directory == source.directory, "once a state"
    with pytest.raises(EditkitError, match="inside the base checkpoint"):
        checkpoint.write(Edit(source.base, frozenset({Head(0, 1)})), source, base / "inner")


def test_a_full_disk_is_said_before_and_while_pickles_are_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = pickled(tmp_path / "base")
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    try:
        with pytest.raises(EditkitError, match="EDITKIT_CACHE.*the disk is full or a size limit was met"):
            resolve(base)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=20_000_000))
    resolve(base)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=16 << 20))
    (base / "config.json").write_text((base / "config.json").read_text() + " ")
    with pytest.raises(EditkitError, match="EDITKIT_CACHE.*of disk"):
        resolve(base)


def test_a_card_of_the_base_that_cannot_be_read_is_as_if_there_were_none() -> None:
    """The library of YAML raises errors of other kinds for characters that are none."""
    for text in ('license: "\\U00110000"', "license: [", "[" * 3000):
        assert front_matter(f"---\n{text}\n---\n") == {}
