"""The hostile checkpoints: each is a small change to an honest one, made when the test runs.

    CASES["header: length beyond the file"](directory)     breaks the checkpoint in ``directory`` in that way

Every one must end in one clear error: nothing executed, nothing written outside the output directory.
"""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import small_checkpoints as checkpoints

Case = Callable[[Path], object]
WEIGHTS = "model.safetensors"
SHARD = "model-00001-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
O_PROJ = "model.layers.0.self_attn.o_proj.weight"
UNDO = "editkit/undo.safetensors"
SECRET = "secret.safetensors"
"""A file beside the checkpoint that it has no business with."""


def parts(directory: Path, file: str = WEIGHTS) -> tuple[dict[str, Any], bytes]:
    raw = (directory / file).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def raw_header(text: bytes, *, length: int | None = None) -> Case:
    """The honest data under another header text."""

    def make(directory: Path) -> None:
        _, data = parts(directory)
        size = len(text) if length is None else length
        (directory / WEIGHTS).write_bytes(size.to_bytes(8, "little") + text + data)

    return make


def header(change: Callable[[dict[str, Any]], object]) -> Case:
    """The honest data under a changed header."""

    def make(directory: Path) -> None:
        value, data = parts(directory)
        change(value)
        text = json.dumps(value).encode("utf-8", "surrogatepass")
        (directory / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + data)

    return make


def tensor(**changes: Any) -> Case:
    """One tensor of the header claims something else."""
    return header(lambda value: value[O_PROJ].update(changes))


def shifted(begin: int, end: int) -> Case:
    def change(value: dict[str, Any]) -> None:
        first, last = value[O_PROJ]["data_offsets"]
        value[O_PROJ]["data_offsets"] = [first + begin, last + end]

    return header(change)


def renamed(name: str) -> Case:
    def change(value: dict[str, Any]) -> None:
        value[name] = value.pop("model.norm.weight")

    return header(change)


def twice(directory: Path) -> None:
    """The same name twice: one reader takes the first, another the last."""
    value, data = parts(directory)
    text = json.dumps(value)[:-1] + f', "{O_PROJ}": {json.dumps(value[O_PROJ])}}}'
    (directory / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text.encode() + data)


def swapped(value: dict[str, Any]) -> None:
    """Two tensors on the same bytes, and a hole where one of them was."""
    value["model.layers.1.self_attn.o_proj.weight"]["data_offsets"] = value[O_PROJ]["data_offsets"]


def gone(*patterns: str) -> Case:
    def make(directory: Path) -> None:
        for path in [path for pattern in patterns for path in directory.glob(pattern)]:
            path.unlink()

    return make


def truncated(count: int, file: str = WEIGHTS) -> Case:
    return lambda directory: os.truncate(directory / file, max((directory / file).stat().st_size - count, 0))


def whole(raw: bytes, file: str = WEIGHTS) -> Case:
    def make(directory: Path) -> None:
        (directory / file).write_bytes(raw)

    return make


def index(change: Callable[[dict[str, Any]], object]) -> Case:
    """A sharded checkpoint whose index says something else."""

    def make(directory: Path) -> None:
        sharded(directory)
        value = json.loads((directory / INDEX).read_text())
        change(value["weight_map"])
        (directory / INDEX).write_text(json.dumps(value))

    return make


def index_text(text: str) -> Case:
    def make(directory: Path) -> None:
        sharded(directory)
        (directory / INDEX).write_text(text)

    return make


def sharded(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    other = checkpoints.write(directory / "sharded", shards=2)
    for path in other.glob("model*"):
        path.rename(directory / path.name)
    for path in other.iterdir():
        path.unlink()
    other.rmdir()


def duplicated(directory: Path) -> None:
    """The same tensor in two shards."""
    sharded(directory)
    checkpoints.write_tensors(directory / "model-extra.safetensors", {O_PROJ: ("F32", (16, 24))})
    value = json.loads((directory / INDEX).read_text())
    value["weight_map"]["extra"] = "model-extra.safetensors"
    (directory / INDEX).write_text(json.dumps(value))


def linked(target: str, file: str = WEIGHTS) -> Case:
    """A file of the checkpoint is a link; ``SECRET`` lies beside the checkpoint and is a good weights file."""

    def make(directory: Path) -> None:
        weights = (directory / WEIGHTS).read_bytes()
        (directory.parent / SECRET).write_bytes(weights)
        (directory / file).unlink(missing_ok=True)
        (directory / file).symlink_to(target)

    return make


def fake_cache(directory: Path) -> None:
    """A layout that looks like a Hub cache, whose blobs folder is a link to somewhere else."""
    elsewhere = directory.parents[2] / "elsewhere"
    elsewhere.mkdir()
    (directory / WEIGHTS).rename(elsewhere / SECRET)
    (directory.parents[1] / "blobs").symlink_to(elsewhere)
    (directory / WEIGHTS).symlink_to(f"../../blobs/{SECRET}")


def out_of_the_blobs(directory: Path) -> None:
    """A link that starts in the blobs folder of its cache and leaves it again."""
    (directory.parents[1] / "blobs").mkdir()
    (directory / WEIGHTS).rename(directory.parents[2] / SECRET)
    (directory / WEIGHTS).symlink_to(f"../../blobs/../../{SECRET}")


def pipe(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    os.mkfifo(directory / WEIGHTS)


class Bomb:
    """Unpickled, it would write a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.place}",))


def pickled(make: Callable[[Path], bytes]) -> Case:
    def write(directory: Path) -> None:
        (directory / WEIGHTS).unlink()
        (directory / "pytorch_model.bin").write_bytes(make(directory.parent / "executed"))

    return write


def zipped(directory: Path) -> None:
    """The newer form of torch.save, with the same bomb in it."""
    (directory / WEIGHTS).unlink()
    with zipfile.ZipFile(directory / "pytorch_model.bin", "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Bomb(directory.parent / "executed")))
        file.writestr("archive/version", "3\n")


def config(**changes: Any) -> Case:
    """A config that lies about the heads, or is none."""

    def make(directory: Path) -> None:
        (directory / "config.json").write_text(json.dumps(checkpoints.CONFIG | changes))

    return make


def named(name: str) -> Case:
    """A file whose name would do something in a terminal or a card."""

    def make(directory: Path) -> None:
        (directory / name).write_text("")

    return make


def directory_link(directory: Path) -> None:
    (directory / "assets").symlink_to("/etc")


_DEEP = b'{"a":' * 100_000
_NOT_HASHABLE = b'{"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}'


def record(change: Callable[[dict[str, Any]], object]) -> Case:
    """An output whose undo file says something else."""

    def make(directory: Path) -> None:
        value, data = parts(directory, UNDO)
        said = json.loads(value["__metadata__"]["editkit"])
        change(said)
        value["__metadata__"]["editkit"] = json.dumps(said)
        text = json.dumps(value).encode()
        (directory / UNDO).write_bytes(len(text).to_bytes(8, "little") + text + data)

    return make


def kept(**changes: Any) -> Case:
    """What the undo file says of one file of the base."""
    return record(lambda value: value["files"]["config.json"].update(changes))


def removed(**changes: Any) -> Case:
    """What the undo file says of one slice."""
    return record(lambda value: value["slices"][0].update(changes))


RECORDS: dict[str, Case] = {
    "files: none": record(lambda value: value.update(files={})),
    "files: a list": record(lambda value: value.update(files=[])),
    "files: missing": record(lambda value: value.pop("files")),
    "file: a number": record(lambda value: value["files"].update({"config.json": 5})),
    "at: a number": kept(at=5),
    "at: a list": kept(at=["config.json"]),
    "at: empty": kept(at=""),
    "sha256: a list": kept(sha256=["0" * 64]),
    "size: infinite": kept(size=float("inf")),
    "size: a list": kept(size=[1]),
    "slices: none": record(lambda value: value.update(slices=[])),
    "slices: missing": record(lambda value: value.pop("slices")),
    "slice: text": record(lambda value: value.update(slices=["L0H1"])),
    "key: a list": removed(key=[O_PROJ]),
    "key: of no slice": removed(key="x"),
    "tensor: a list": removed(tensor=[O_PROJ]),
    "tensor: another": removed(tensor="model.norm.weight"),
    "axis: negative": removed(axis=-1),
    "axis: too large": removed(axis=9),
    "start: negative": removed(start=-6),
    "stop: elsewhere": removed(stop=18),
    "base: a list": record(lambda value: value.update(base=[])),
    "model: a list": record(lambda value: value["base"].update(model=["x"])),
    "revision: a list": record(lambda value: value["base"].update(revision=["x"])),
    "left out: missing": record(lambda value: value.pop("left_out")),
    "left out: numbers": record(lambda value: value.update(left_out=[1])),
    "left out: without a name": record(lambda value: value.update(left_out=[{"reason": "x"}])),
}
"""Undo files made to mislead or crash whoever verifies or undoes a download."""

CASES: dict[str, Case] = {
    "header: empty file": whole(b""),
    "header: seven bytes": whole(b"\x08\0\0\0\0\0\0"),
    "header: length of 2**63": raw_header(b"{}", length=2**63),
    "header: length of 2**64 - 1": raw_header(b"{}", length=2**64 - 1),
    "header: length over the limit": raw_header(b"{}", length=100_000_001),
    "header: length beyond the file": raw_header(b"{}", length=10_000_000),
    "header: length of zero": raw_header(b"{}", length=0),
    "header: an array": raw_header(b"[1, 2]"),
    "header: not JSON": raw_header(b"{'a': 1}"),
    "header: not UTF-8": raw_header(b'{"\xff\xfe": 1}'),
    "header: nested too deep": raw_header(_DEEP),
    "header: NaN": raw_header(b'{"a": NaN}'),
    "header: a number of 9000 digits": raw_header(b'{"a": ' + b"1" * 9000 + b"}"),
    "header: dtype is a list": raw_header(_NOT_HASHABLE),
    "header: a name twice": twice,
    "header: metadata is a list": header(lambda value: value.update(__metadata__=[1])),
    "header: metadata holds a number": header(lambda value: value.update(__metadata__={"a": 1})),
    "header: text after the JSON": raw_header(b"{} {}"),
    "header: a pickle": whole(b"\x80\x04\x95" + b"\0" * 64),
    "tensor: unknown dtype": tensor(dtype="F33"),
    "tensor: negative shape": tensor(shape=[-16, -24]),
    "tensor: shape of floats": tensor(shape=[16.0, 24.0]),
    "tensor: shape of booleans": tensor(shape=[True, 384]),
    "tensor: shape too large": tensor(shape=[2**40, 2**40]),
    "tensor: shape that wraps 64 bits": tensor(shape=[2**32, 2**32 + 1]),
    "tensor: shape and bytes disagree": tensor(shape=[16, 23]),
    "tensor: a missing field": header(lambda value: value[O_PROJ].pop("shape")),
    "tensor: an extra field": tensor(strides=[1, 16]),
    "tensor: not an object": header(lambda value: value.update({O_PROJ: 7})),
    "offsets: backwards": tensor(data_offsets=[400, 16]),
    "offsets: negative": tensor(data_offsets=[-1536, 0]),
    "offsets: beyond the file": shifted(10**9, 10**9),
    "offsets: beyond 64 bits": shifted(2**64, 2**64),
    "offsets: overlap": shifted(-4, -4),
    "offsets: a gap": shifted(4, 4),
    "offsets: two tensors on the same bytes": header(swapped),
    "offsets: three of them": tensor(data_offsets=[0, 4, 8]),
    "offsets: a tensor removed, its bytes left": header(lambda value: value.pop("model.norm.weight")),
    "name: empty": renamed(""),
    "name: a line break and YAML": renamed("x\nlicense: mit"),
    "name: a terminal escape": renamed("\x1b[2Jx"),
    "name: Markdown": renamed("[x](http://example.com)"),
    "name: HTML": renamed("<script>"),
    "name: right-to-left": renamed("model\u202ethgiew"),
    "name: a lone surrogate": renamed("\ud800"),
    "name: 5000 characters": renamed("a" * 5000),
    "file: truncated by a byte": truncated(1),
    "file: truncated by half": truncated(8000),
    "file: bytes behind the end": lambda directory: os.truncate(
        directory / WEIGHTS, (directory / WEIGHTS).stat().st_size + 8
    ),
    "file: a pipe": pipe,
    "index: ..": index(lambda names: names.update({O_PROJ: "../secret.safetensors"})),
    "index: an absolute path": index(lambda names: names.update({O_PROJ: "/etc/passwd.safetensors"})),
    "index: another folder": index(lambda names: names.update({O_PROJ: "other/model.safetensors"})),
    "index: a backslash": index(lambda names: names.update({O_PROJ: "..\\secret.safetensors"})),
    "index: a null byte": index(lambda names: names.update({O_PROJ: "model\0.safetensors"})),
    "index: a pickle": index(lambda names: names.update({O_PROJ: "pytorch_model.bin"})),
    "index: a missing shard": index(lambda names: names.update({O_PROJ: "model-00003-of-00002.safetensors"})),
    "index: the wrong shard": index(lambda names: names.update({O_PROJ: "model-00002-of-00002.safetensors"})),
    "index: a tensor that is nowhere": index(lambda names: names.update({"lm_head.weight": SHARD})),
    "index: a tensor left out": index(lambda names: names.pop(O_PROJ)),
    "index: a number": index(lambda names: names.update({O_PROJ: 1})),
    "index: empty": index(lambda names: names.clear()),
    "index: a list": index_text("[]"),
    "index: not JSON": index_text("{"),
    "index: nested too deep": index_text("[" * 100_000),
    "index: a name twice": index_text('{"weight_map": {"a": "model-1.safetensors", "a": "model-2.safetensors"}}'),
    "index: a truncated shard": lambda directory: (sharded(directory), truncated(100, SHARD)(directory))[0],
    "index: a tensor in two shards": duplicated,
    "index: gone, one shard left": lambda directory: (sharded(directory), gone(INDEX, "model-00001*")(directory))[0],
    "link: the weights lie outside": linked(f"../{SECRET}"),
    "link: absolute": linked("/etc/passwd"),
    "link: to itself": linked(WEIGHTS),
    "link: to nowhere": linked("gone"),
    "link: a device": linked("/dev/zero"),
    "link: config.json lies outside": linked("/etc/hostname", "config.json"),
    "link: a small file lies outside": linked("/etc/passwd", "tokenizer.json"),
    "link: the index lies outside": lambda directory: (
        linked("/etc/passwd", INDEX)(directory),
        (directory / WEIGHTS).unlink(),
    ),
    "link: a folder": directory_link,
    "link: a made-up cache": fake_cache,
    "link: out of the cache's blobs": out_of_the_blobs,
    "pickle: code that runs": pickled(lambda place: pickle.dumps(Bomb(place))),
    "pickle: code in a dict": pickled(lambda place: pickle.dumps({O_PROJ: Bomb(place)})),
    "pickle: code in a zip": zipped,
    "pickle: no tensors": pickled(lambda place: pickle.dumps([1, 2, 3])),
    "pickle: noise": pickled(lambda place: b"\x80\x02" + bytes(range(256))),
    "pickle: empty": pickled(lambda place: b""),
    "config: more heads than the weights": config(num_attention_heads=5),
    "config: heads that do not divide": config(num_attention_heads=7, head_dim=None),
    "config: no heads": config(num_attention_heads=0),
    "config: negative heads": config(num_attention_heads=-4),
    "config: heads in words": config(num_attention_heads="four"),
    "config: heads beyond counting": config(num_attention_heads=10**30),
    "config: another width": config(head_dim=12),
    "config: more layers than the weights": config(num_hidden_layers=10**9),
    "config: an unknown type": config(model_type="../../etc"),
    "config: no type": config(model_type=None),
    "config: heads in a list": config(num_attention_heads=[4]),
    "config: weights of its own": config(transformers_weights="other.safetensors"),
    "config: not JSON": whole(b"{", "config.json"),
    "config: a list": whole(b"[]", "config.json"),
    "config: nested too deep": whole(b'{"a":' * 100_000, "config.json"),
    "file name: a line break": named("a\nlicense: apache-2.0\n.txt"),
    "file name: a terminal escape": named("\x1b]0;owned\x07.txt"),
    "file name: right-to-left": named("gnp\u202etxt.exe"),
    "file name: a backslash": named("..\\..\\x.txt"),
    "weights: packed integers": lambda directory: checkpoints.write_tensors(
        directory / WEIGHTS, {name: ("I32", shape) for name, shape in checkpoints.shapes().items()}
    ),
    "weights: a variant alone": lambda directory: (directory / WEIGHTS).rename(directory / "model.fp16.safetensors"),
    "weights: an adapter beside": lambda directory: (directory / "adapter_config.json").write_text("{}"),
}
