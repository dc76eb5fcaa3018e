"""What can be known of a model before any weight is read or downloaded: ``editkit inspect``.

inspect("meta-llama/Llama-3.2-1B-Instruct")
Inspection(name="meta-llama/Llama-3.2-1B-Instruct", architecture=<16 layers x 32 heads of width 64, 8 groups>,
           dtypes={"BF16": 2471645608}, files=1, quantization=None,
           formats=(Format("checkpoint", True, ...), Format("lora", True, "rank 64 ...")))
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from editkit.checkpoints import architecture, config_fields, convert, dequantize, gguf, headers
from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.config_fields import Fields
from editkit.checkpoints.headers import TensorInfo
from editkit.checkpoints.source import BUNDLED, cached, here, hub_id, is_bundled, weight_files
from editkit.errors import EditkitError, Unreachable
from editkit.writing.export import lora
from editkit.writing.gguf_blocks import row_zeros
from editkit.writing.slices import ZERO_IS_ZERO

_SAFETENSORS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""torch's names of dtypes -> those of safetensors."""

REMEDY = "edit the unquantized checkpoint, then quantize the result"


@dataclass(frozen=True)
class Format:
    """What one ``--format`` can do with this model."""

    name: str
    works: bool
    note: str


@dataclass(frozen=True)
class Inspection:
    """A model as its metadata describe it. ``dtypes`` counts bytes; ``quantization`` names the quantizer, if any."""

    name: str
    revision: str | None
    architecture: Architecture
    dtypes: Mapping[str, int]
    files: int
    quantization: str | None
    formats: tuple[Format, ...]
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(self.dtypes.values())

    @property
    def parameters(self) -> int:
        """Elements of all tensors."""
        return sum(8 * count // headers.BITS.get(dtype, 8) for dtype, count in self.dtypes.items())

    def facts(self) -> dict[str, str]:
        """What the terminal shows beside the table of layers: a name and a sentence each."""
        stored = ", ".join(f"{dtype} {count / 1e9:.2f} GB" for dtype, count in self.dtypes.items())
        facts = {"stored as": stored, "weights": f"{self.bytes / 1e9:.2f} GB in {self.files} file(s)"}
        facts |= {"quantized by": self.quantization} if self.quantization else {}
        facts |= {f"--format {each.name}": ("" if each.works else "no: ") + each.note for each in self.formats}
        return facts | {"note" if len(self.notes) == 1 else f"note {at}": note for at, note in enumerate(self.notes, 1)}

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        found = self.architecture
        sites = [
            {"layer": site.layer, "heads": site.units, "width": site.width, "groups": site.groups}
            | {"tensor": site.tensor, "shape": list(site.shape), "axis": site.axis, "shared_with": list(site.shared)}
            for site in found.sites
        ]
        return {
            "model": self.name,
            "revision": self.revision,
            "model_type": found.model_type,
            "layers": found.layers,
            "heads": len(found.heads),
            "sites": sites,
            "unreachable": [{"layers": list(part.layers), "reason": part.reason} for part in found.unreachable],
            "dtypes": dict(self.dtypes),
            "files": self.files,
            "bytes": self.bytes,
            "quantization": self.quantization,
            "formats": [asdict(format) for format in self.formats],
            "notes": list(self.notes),
        }


def inspect(model: str | Path | None = None, *, revision: str | None = None) -> Inspection:
    """Describe a model from its config and its safetensors headers; from the Hub, those alone are fetched.
    Where the Hub does not answer, a copy in the Hub's cache is described.
    A local directory of pickles is described from their tables, which are read without running anything in them.

    Args:
        model: a local directory, a Hub id, or None for the bundled organism.

    Raises:
        EditkitError: if the model cannot be found, or is of a type whose heads cannot be edited.
    """
    file = gguf.file_of(model)
    if file is not None:
        return of_gguf(file)
    directory = here(model)
    if directory is not None:
        return of_directory(directory, name=BUNDLED if is_bundled(model) else str(model))
    return _of_repository(hub_id(model), revision)


def of_directory(directory: Path, *, name: str, revision: str | None = None) -> Inspection:
    """Describe a checkpoint on this machine."""
    pickled = weight_files(directory)[0].endswith(".bin")
    config = config_fields.read_json(directory)
    stored = convert.described(directory) if pickled else headers.read(directory)
    fields = config_fields.from_json(config)
    shapes, packed = _linear_maps(stored.tensors, config, fields)
    found = architecture.describe(config["model_type"], fields, shapes)
    sites = tuple(replace(site, tensor=packed.get(site.module, site.tensor)) for site in found.sites)
    found = replace(found, sites=sites)
    dtypes = Counter[str]()
    for tensor in stored.tensors.values():
        dtypes[tensor.dtype] += tensor.end - tensor.start
    return Inspection(
        name=name,
        revision=revision,
        architecture=found,
        dtypes=dict(dtypes.most_common()),
        files=len(stored.files),
        quantization=_quantization(config),
        formats=_formats(
            found,
            {stored.tensors[site.tensor].dtype for site in found.sites},
            packed=any(site.module in packed for site in found.sites),
        ),
        notes=_notes(found, pickled),
    )


def of_gguf(file: Path) -> Inspection:
    """Describe a GGUF file by its header. ``dtypes`` are those of its conversion, which all commands work on."""
    stored = gguf.read(file)
    found = gguf.sites(stored)
    dtype = _SAFETENSORS[dequantize.dtype(stored)]
    whole, lora_form = _formats(found, {dtype}, packed=False)
    return Inspection(
        name=str(file),
        revision=None,
        architecture=found,
        dtypes={dtype: stored.elements * headers.BITS[dtype] // 8},
        files=1,
        quantization=f"GGUF, {stored.kinds}",
        formats=(whole, lora_form, _in_blocks(stored, found)),
        notes=(
            f"{file.stat().st_size / 1e9:.2f} GB as it is: converted once to {dequantize.dtype(stored)}, in the cache",
            *_notes(found, pickled=False),
        ),
    )


def _in_blocks(stored: gguf.Gguf, found: Architecture) -> Format:
    """Whether heads can go in place. Tried on the first of each layer: what fails is one that ends inside a block."""
    for site in found.sites:
        try:
            row_zeros(stored.tensors[site.tensor].kind, site.shape[1], [(0, site.width)])
        except EditkitError as error:
            return Format("gguf", False, f"{site.tensor}: {error}")
    return Format("gguf", True, "the same file, with the heads' weights zero in their quantized blocks")


def _of_repository(name: str, revision: str | None) -> Inspection:
    from editkit.hub.metadata import fetch
    from editkit.hub.remote import connect

    with tempfile.TemporaryDirectory() as folder:
        try:
            commit = fetch(connect(), name, revision, Path(folder))
        except Unreachable as error:
            snapshot = cached(name, revision)
            if snapshot is None:
                reason = str(error).removeprefix(f"{name}: ")
                raise Unreachable(f"{name}: no such directory here, and as a Hub id: {reason}") from error
            return of_directory(snapshot, name=name, revision=snapshot.name)
        return of_directory(Path(folder), name=name, revision=commit)


def _formats(found: Architecture, dtypes: set[str], *, packed: bool) -> tuple[Format, ...]:
    """The forms; an adapter's rank is the width of all heads it takes out of one layer."""
    if packed or dtypes - ZERO_IS_ZERO:
        why = f"the output projections are packed integers ({', '.join(sorted(dtypes))}): {REMEDY}"
        return tuple(Format(name, False, why) for name in ("checkpoint", "lora"))
    whole = Format("checkpoint", True, "the same files, with the heads' bytes zeroed")
    if dtypes - lora.DTYPES.keys():
        listed = ", ".join(sorted(dtypes - lora.DTYPES.keys()))
        return whole, Format("lora", False, f"weights in {listed} carry scales of their own; use checkpoint")
    widest = max((site.width for site in found.sites), default=0)
    layer = max((site.width * site.units for site in found.sites), default=0)
    most = lora.SERVABLE[-1]
    fits = most // widest if widest else 0
    limit = f"; vLLM serves up to {most}, so at most {fits} heads of a layer" if layer > most else ""
    return whole, Format("lora", True, f"rank {widest} per head in a layer, {layer} for a whole layer{limit}")


def _notes(found: Architecture, pickled: bool) -> tuple[str, ...]:
    notes = ["pickled weights: baking converts them to safetensors first"] if pickled else []
    notes += [
        f"layer {site.layer} is used again in layer {', '.join(map(str, site.shared))}: an edit there acts in all"
        for site in found.sites
        if site.shared
    ]
    groups = [site for site in found.sites if site.groups is not None and site.groups < site.units]
    if groups:
        notes.append(f"grouped queries: {groups[0].units // (groups[0].groups or 1)} query heads share keys and values")
    return tuple(notes)


def _quantization(config: Mapping[str, Any]) -> str | None:
    value = config.get("quantization_config")
    if not isinstance(value, dict):
        return None
    bits = value.get("bits") or value.get("w_bit")
    if value.get("load_in_4bit") or value.get("load_in_8bit"):
        bits = 4 if value.get("load_in_4bit") else 8
    return f"{value.get('quant_method', 'unknown')}{f', {bits} bits' if bits else ''}"


def _linear_maps(
    tensors: Mapping[str, TensorInfo], config: Mapping[str, Any], fields: Fields
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Path -> the shape the map has when it computes; path -> the tensor it is packed in, for those that are packed."""
    shapes: dict[str, tuple[int, ...]] = {}
    packed: dict[str, str] = {}
    for name, tensor in tensors.items():
        path, _, last = name.rpartition(".")
        shape = tensor.shape
        if last == "weight" and len(shape) == 2 and f"{name}.absmax" in tensors:
            hidden = int(fields.get("hidden_size") or shape[0])
            shapes[path], packed[path] = (hidden, 2 * shape[0] * shape[1] // hidden), name
        elif last == "weight" and len(shape) == 2 and tensor.dtype == "U8" and _quantization(config):
            shapes[path], packed[path] = (shape[0], shape[1] * 2), name  # two 4-bit floats in a byte
        elif last == "weight" and len(shape) == 2:
            shapes[path] = shape
        elif last == "qweight" and len(shape) == 2:
            is_awq = "awq" in (_quantization(config) or "")
            per_word = 32 // _bits(config)
            shapes[path] = (shape[1] * per_word, shape[0]) if is_awq else (shape[1], shape[0] * per_word)
            packed[path] = name
        elif last == "weight_packed" and len(shape) == 2:
            shapes[path], packed[path] = (shape[0], shape[1] * 32 // _bits(config)), name
    return shapes, packed


def _bits(config: Mapping[str, Any]) -> int:
    """Bits per weight, wherever the quantizer wrote them; 4 is what nearly all use."""
    for found in json.dumps(config.get("quantization_config")).replace(" ", "").split(",")[:500]:
        for name in ('"bits":', '"w_bit":', '"num_bits":'):
            if name in found and found.split(name)[1].rstrip("}]").isdigit():
                return min(max(int(found.split(name)[1].rstrip("}]")), 1), 32)
    return 4
