"""GGUF files: a strict reader of the header, and where heads and neurons live. Tensor data are never read here.

    stored = read(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))
    stored.tensors["blk.20.attn_output.weight"]   Tensor(kind="Q4_1", shape=(576, 576), start=49270912, end=49478272)
    sites(stored).site(Head(20, 8)).slice(8)      slice(512, 576)

A file is a download: every count, length and offset is checked against the file's size before it is believed.
"""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from editkit.checkpoints.architecture import Architecture, Site, Unreachable
from editkit.checkpoints.files import inside, is_printable, printable
from editkit.errors import EditkitError

SUFFIX = ".gguf"

BLOCKS: Mapping[int, tuple[str, int, int]] = {
    **{0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 28: ("F64", 1, 8)},
    **{24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8)},
    **{2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34)},
    **{9: ("Q8_1", 32, 40), 15: ("Q8_K", 256, 292)},
    **{10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176)},
    **{14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 22: ("IQ2_S", 256, 82)},
    **{18: ("IQ3_XXS", 256, 98), 21: ("IQ3_S", 256, 110), 19: ("IQ1_S", 256, 50), 29: ("IQ1_M", 256, 56)},
    **{20: ("IQ4_NL", 32, 18), 23: ("IQ4_XS", 256, 136), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66)},
    **{39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18)},
}
"""Number of a type in the file -> its name, values in a block, bytes of a block. The numbers are ggml's."""

READABLE = frozenset(
    (
        *("bloom", "deci", "falcon", "gemma2", "gemma3", "gemma4", "gpt-oss", "gpt2", "lfm2", "llama", "minimax-m2"),
        *("nemotron", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "stablelm"),
        "starcoder2",
    )
)
"""Architectures with heads that transformers reads from GGUF, and whose conversion leaves the columns of
``attn_output`` in the order of the heads. Others may not: PLaMo's are shuffled, latent attention has its own widths."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a metadata type -> its ``struct`` format; 8 is a string, 9 an array."""
_STRING, _ARRAY = 8, 9

_MOST_KEYS = _MOST_TENSORS = 1 << 16
_MOST_ELEMENTS = 1 << 22
"""Elements of all arrays together: four vocabularies of a million words."""
_LONGEST_NAME, _LONGEST_TEXT = 256, 1 << 22
_KEPT = 4096
"""Numbers of an array that are kept: one a layer is what they are needed for."""
_WIDEST = 1 << 20
"""Inputs of an attention output projection."""


@dataclass(frozen=True)
class Tensor:
    """One tensor: ``shape`` as torch has it (rows first), its bytes at ``start:end`` of the file."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Gguf:
    """A header that holds together. ``metadata`` keeps scalars, texts and short arrays of numbers."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def architecture(self) -> str:
        return self.metadata["general.architecture"]

    @property
    def elements(self) -> int:
        """Weights in all tensors."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())

    @property
    def kinds(self) -> str:
        """How the tensors are quantized: ``Q4_1 x 210, F32 x 61, Q8_0 x 1``."""
        counted = Counter(tensor.kind for tensor in self.tensors.values())
        return ", ".join(f"{kind} x {count}" for kind, count in counted.most_common())


def file_of(model: str | Path | None) -> Path | None:
    """The GGUF file that the user's word names: the file, or the only one of a directory without other weights.

    Raises:
        EditkitError: a file that is not there, or a directory of several.
    """
    if model is None:
        return None
    try:
        path = Path(model).expanduser()
        if path.suffix.lower() == SUFFIX and not path.is_dir():
            if path.is_file():
                return path
            raise EditkitError(f"{printable(str(model))}: no such file. Check the spelling.")
        if not path.is_dir() or any(path.glob("*.safetensors*")) or any(path.glob("*.bin*")):
            return None
    except (OSError, RuntimeError, ValueError):  # longer than a name may be, a ~user who is not known, a zero byte
        return None
    files = sorted(each.name for each in path.glob(f"*{SUFFIX}"))
    if len(files) > 1:
        listed = printable(", ".join(files[:5]))
        raise EditkitError(f"{printable(str(model))}: {len(files)} GGUF files ({listed}): name the one that is meant.")
    if files:
        inside(path, files[0])
    return path / files[0] if files else None


def read(path: Path) -> Gguf:
    """Read and check a file's header.

    Raises:
        EditkitError: one line, for anything but a whole GGUF file of version 2 or 3, little endian.
    """
    try:
        with open(path, "rb") as file:
            return _read(path, _Walk(file, path.name, os.fstat(file.fileno()).st_size))
    except OSError as error:
        raise EditkitError(f"{printable(path.name)}: cannot be read ({error.strerror}).") from error


def sites(stored: Gguf) -> Architecture:
    """Where the heads live: slices of the inputs of each ``blk.N.attn_output.weight``; neurons: of ``ffn_down``.

    Raises:
        EditkitError: an architecture that is not ``READABLE``, or widths that do not fit its metadata.
    """
    kind = stored.architecture
    if kind not in READABLE:
        raise stored_error(
            stored.path,
            f"a GGUF of architecture {printable(kind)!r}, and transformers reads none of it or its heads are not "
            f"known to be slices of attn_output. Known: {', '.join(sorted(READABLE))}",
        )
    if f"{kind}.attention.kv_lora_rank" in stored.metadata:
        raise stored_error(stored.path, "latent attention (kv_lora_rank), whose heads are not known to be slices")
    layers = _count(stored, "block_count")
    present = {name.split(".")[1] for name in stored.tensors if name.startswith("blk.")}
    if not 0 < layers <= len(present):
        raise stored_error(
            stored.path, f"{kind}.block_count is {layers}, but tensors of {len(present)} blocks are there"
        )
    heads, groups = _per_layer(stored, "head_count", layers), _per_layer(stored, "head_count_kv", layers, heads=True)
    heads_of = {
        layer: _site(stored, layer, tensor, heads[layer], groups[layer])
        for layer in range(layers)
        if (tensor := stored.tensors.get(f"blk.{layer}.attn_output.weight")) and heads[layer] and groups[layer]
    }
    if not heads_of:
        raise stored_error(stored.path, "no block has an attn_output.weight: there are no heads to edit")
    absent = tuple(layer for layer in range(layers) if layer not in heads_of)
    unreachable = (Unreachable(absent, "no attention output projection"),) if absent else ()
    neurons = {
        layer: Site("neuron", layer, tensor.name, tensor.name.removesuffix(".weight"), tensor.shape, 1, inputs, 1)
        for layer in range(layers)
        if (tensor := stored.tensors.get(f"blk.{layer}.ffn_down.weight")) and len(tensor.shape) == 2
        for inputs in [tensor.shape[1]]
    }
    without: dict[str, list[int]] = {}
    for layer in range(layers):
        if layer not in neurons:
            routed = f"blk.{layer}.ffn_down_exps.weight" in stored.tensors
            without.setdefault("experts of a GGUF file" if routed else "no ffn_down", []).append(layer)
    missing = tuple(Unreachable(tuple(absent), reason) for reason, absent in without.items())
    return Architecture(kind, layers, tuple(heads_of.values()), unreachable, tuple(neurons.values()), missing)


def stored_error(path: Path, what: str) -> EditkitError:
    """An error about a file, by its name."""
    return EditkitError(f"{printable(path.name)}: {what}.")


def _site(stored: Gguf, layer: int, tensor: Tensor, heads: int, groups: int) -> Site:
    """A head's width is the inputs by the heads, and has to be a width that the metadata know."""
    metadata, kind = stored.metadata, stored.architecture
    names = ("value_length", "key_length", "value_length_swa", "key_length_swa")
    declared = [metadata[key] for name in names if (key := f"{kind}.attention.{name}") in metadata]
    widths = {
        width for width in declared or [_count(stored, "embedding_length") / heads] if isinstance(width, int | float)
    }
    inputs = tensor.shape[-1]
    if len(tensor.shape) != 2 or inputs % heads or inputs // heads not in widths or inputs > _WIDEST:
        known = " or ".join(f"{width:g}" for width in sorted(widths))
        raise stored_error(
            stored.path,
            f"{tensor.name} has the shape {list(tensor.shape)}, expected {heads} heads of width {known or 'unknown'}",
        )
    path = tensor.name.removesuffix(".weight")
    return Site("head", layer, tensor.name, path, tensor.shape, 1, units=heads, width=inputs // heads, groups=groups)


def _count(stored: Gguf, name: str) -> int:
    key = f"{stored.architecture}.{name}"
    value = stored.metadata.get(key)
    if type(value) is not int or value < 0:
        raise stored_error(stored.path, f"{printable(key)}: expected a count, found {printable(repr(value)[:60])}")
    return value


def _per_layer(stored: Gguf, name: str, layers: int, *, heads: bool = False) -> tuple[int, ...]:
    """A number for each layer: the file has one for all, or a list. Key/value heads default to the query heads."""
    key = f"{stored.architecture}.attention.{name}"
    value = stored.metadata.get(key)
    if value is None and heads:
        return _per_layer(stored, "head_count", layers)
    listed = value if isinstance(value, tuple) else (value,) * layers
    counts = tuple(each for each in listed if type(each) is int and 0 <= each <= _WIDEST)
    if not len(counts) == len(listed) == layers:
        raise stored_error(
            stored.path, f"{printable(key)}: expected a count for {layers} layers, found {printable(repr(value)[:60])}"
        )
    return counts


class _Walk:
    """Reads numbers and texts one after the other, never past the file's end; ``offset``: the bytes read so far."""

    def __init__(self, file: BinaryIO, name: str, size: int) -> None:
        self.file, self.name, self.size = file, name, size
        self.offset = 0
        self.elements = _MOST_ELEMENTS

    def error(self, what: str) -> EditkitError:
        return EditkitError(f"{printable(self.name)}: at byte {self.offset}: {what}.")

    def take(self, count: int, what: str) -> bytes:
        if count > self.size - self.offset:
            raise self.error(
                f"expected {what} of {count} bytes, found the end of the file {self.size - self.offset} on"
            )
        raw = self.file.read(count)
        if len(raw) != count:
            raise self.error(f"expected {what} of {count} bytes, and the file became shorter")
        self.offset += count
        return raw

    def number(self, form: str, what: str) -> Any:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form), what))[0]

    def count(self, form: str, most: int, what: str) -> int:
        count = self.number(form, what)
        if count > most:
            raise self.error(f"expected at most {most} for {what}, found {count}")
        return count

    def text(self, longest: int, what: str) -> str:
        raw = self.take(self.count("Q", longest, f"the length of {what}"), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8") from error

    def name_of(self, what: str) -> str:
        name = self.text(_LONGEST_NAME, f"the name of {what}")
        if not name or not is_printable(name):
            raise self.error(f"{printable(name)!r} is no name for {what}")
        return name

    def value(self, kind: int, key: str) -> Any:
        """A metadata value; None for texts in an array and for numbers of a long one, which are passed over."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], f"the value of {key}")
        if kind == _STRING:
            return self.text(_LONGEST_TEXT, f"the value of {key}")
        if kind != _ARRAY:
            raise self.error(f"{key} is of type {kind}, which GGUF does not have")
        of, count = self.number("I", f"the type of {key}"), self.number("Q", f"the length of {key}")
        if count > self.elements:
            raise self.error(f"expected at most {self.elements} more elements of arrays, found {count} in {key}")
        self.elements -= count
        if of == _STRING:
            for _ in range(count):
                self.take(self.count("Q", _LONGEST_TEXT, f"the length of a text in {key}"), f"a text in {key}")
            return None
        if of not in _SCALARS:
            raise self.error(f"{key} is an array of type {of}, expected numbers or texts")
        form = f"<{count}{_SCALARS[of]}"
        raw = self.take(struct.calcsize(form), key)
        return None if count > _KEPT else struct.unpack(form, raw)


def _read(path: Path, walk: _Walk) -> Gguf:
    magic = walk.take(4, "the letters GGUF")
    if magic != b"GGUF":
        raise walk.error(f"expected a GGUF file, which begins with the letters GGUF, found {magic!r}")
    version = walk.number("I", "the version")
    if version not in (2, 3):
        is_big = version in (2 << 24, 3 << 24)
        raise walk.error(f"expected version 2 or 3, found {'a big-endian file' if is_big else version}")
    tensors = walk.count("Q", _MOST_TENSORS, "the number of tensors")
    keys = walk.count("Q", _MOST_KEYS, "the number of metadata keys")
    metadata = _metadata(walk, keys)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 8 <= alignment <= 1 << 16 or alignment & (alignment - 1):
        raise walk.error(f"general.alignment: expected a power of 2 from 8 to 65536, found {alignment!r}")
    listed = [_tensor(walk, alignment) for _ in range(tensors)]
    start = -(-walk.offset // alignment) * alignment
    placed: dict[str, Tensor] = {}
    end = start
    for name, kind, shape, offset, size in sorted(listed, key=lambda row: row[3]):
        first = start + offset
        if first < end or first + size > walk.size:
            reason = "overlaps the one before" if first < end else f"ends behind the file's {walk.size}"
            raise stored_error(path, f"{name}: its bytes {first} to {first + size}: {reason}")
        if name in placed:
            raise stored_error(path, f"{name}: two tensors have this name")
        placed[name] = Tensor(name, kind, shape, first, first + size)
        end = first + size
    return Gguf(path, metadata, {row[0]: placed[row[0]] for row in listed})


def _metadata(walk: _Walk, keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(keys):
        key = walk.name_of("a metadata key")
        if key in metadata:
            raise walk.error(f"two metadata keys are called {key}")
        metadata[key] = walk.value(walk.number("I", f"the type of {key}"), key)
    kind = metadata.get("general.architecture")
    if not isinstance(kind, str) or not is_printable(kind) or not 0 < len(kind) < 64:
        raise walk.error("expected general.architecture among the metadata, found no name there")
    parts = metadata.get("split.count", 0)
    if parts not in (0, 1):
        raise walk.error(f"one of {parts!r} parts of a model: join them first (llama-gguf-split --merge)")
    return metadata


def _tensor(walk: _Walk, alignment: int) -> tuple[str, str, tuple[int, ...], int, int]:
    """Name, type, shape, offset, size in bytes: of one line of the table."""
    name = walk.name_of("a tensor")
    axes = walk.number("I", f"the number of axes of {name}")
    if not 1 <= axes <= 4:
        raise walk.error(f"{name}: expected 1 to 4 axes, found {axes}")
    lengths = struct.unpack(f"<{axes}Q", walk.take(8 * axes, f"the shape of {name}"))
    number, offset = walk.number("I", f"the type of {name}"), walk.number("Q", f"the offset of {name}")
    if number not in BLOCKS:
        raise walk.error(f"{name} is of type {number}, which is not known here")
    kind, values, size = BLOCKS[number]
    count = math.prod(lengths)
    if not 0 < count <= walk.size * values or lengths[0] % values:
        raise walk.error(
            f"{name}: a shape of {list(lengths)} does not fit blocks of {values} values in a file of {walk.size} bytes"
        )
    if offset % alignment:
        raise walk.error(f"{name}: expected an offset that is a multiple of {alignment}, found {offset}")
    return name, kind, lengths[::-1], offset, count // values * size
