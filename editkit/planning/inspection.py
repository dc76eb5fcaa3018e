"""What can be known of a model before any weight is read or downloaded: ``editkit inspect``.

inspect("meta-llama/Llama-3.2-1B-Instruct")
Inspection(name="meta-llama/Llama-3.2-1B-Instruct", architecture=<16 layers x 32 heads of width 64, 8 groups>,
           dtypes={"BF16": 2471645608}, files=1, quantization=None,
           formats=(Format("checkpoint", True, ...), Format("lora", True, "rank 64 ...")))
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from editkit.checkpoints import answering, architecture, config_fields, convert, dequantize, gguf, headers
from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.headers import TensorInfo
from editkit.checkpoints.source import BUNDLED, NOWHERE, cached, here, hub_id, is_bundled, weight_files
from editkit.errors import EditkitError, Unreachable
from editkit.units import PLAIN
from editkit.writing.export import lora
from editkit.writing.gguf_pieces import piece_of
from editkit.writing.serving import RANKS
from editkit.writing.slices import ZERO_IS_ZERO

_SAFETENSORS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""torch's names of dtypes -> those of safetensors."""


@dataclass(frozen=True)
class Format:
    """What one ``--format`` can do with this model."""

    name: str
    works: bool
    note: str
    neurons: str | None = None
    """Why it cannot hold an edit of neurons; None: it can, if it works at all."""

    def describe(self) -> str:
        """One line for the terminal."""
        return ("" if self.works else "no: ") + self.note + (f"; neurons: no, {self.neurons}" if self.neurons else "")


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
    refusal: str = ""
    """Why nothing can be asked of it, if so: it can be baked all the same."""

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
        facts |= {f"--format {each.name}": each.describe() for each in self.formats}
        return facts | {"note" if len(self.notes) == 1 else f"note {at}": note for at, note in enumerate(self.notes, 1)}

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        model = self.architecture
        sites = [
            {"layer": site.layer, "heads": site.units, "width": site.width, "groups": site.groups}
            | {"tensor": site.tensor, "shape": list(site.shape), "axis": site.axis, "shared_with": list(site.shared)}
            for site in model.sites
        ]
        unreachable, unreachable_neurons = (
            [{"layers": list(group.layers), "reason": group.reason} for group in groups]
            for groups in (model.unreachable, model.unreachable_neurons)
        )
        return {
            "model": self.name,
            "revision": self.revision,
            "model_type": model.model_type,
            "layers": model.layers,
            "heads": len(model.heads),
            "sites": sites,
            "unreachable": unreachable,
            "neurons": model.neurons,
            "neuron_sites": [
                {"layer": site.layer, "expert": None if site.expert == PLAIN else site.expert, "neurons": site.units}
                | {"tensor": site.tensor, "shape": list(site.shape), "axis": site.axis}
                | {"shared_with": list(site.shared)}
                for site in model.neuron_sites
            ],
            "unreachable_neurons": unreachable_neurons,
            "dtypes": dict(self.dtypes),
            "files": self.files,
            "bytes": self.bytes,
            "quantization": self.quantization,
            "formats": [asdict(format) for format in self.formats],
            "notes": list(self.notes),
            "refusal": self.refusal,
        }


def inspect(model: str | Path | None = None, *, revision: str | None = None) -> Inspection:
    """Describe a model from its config and its safetensors headers; from the Hub, those alone are fetched.
    Where the Hub does not answer, a copy in the Hub's cache is described.
    A local directory of pickles is described from their tables, which are read without running anything in them.

    Args:
        model: a local directory, a Hub id, or None for the bundled organism.

    Raises:
        EditkitError: if the model cannot be found, is of a type whose heads cannot be edited, or is packed.
    """
    file = gguf.file_of(model)
    if file is not None:
        return of_gguf(file)
    directory = here(model)
    if directory is not None:
        return of_directory(directory, name=BUNDLED if is_bundled(model) else str(model))
    return _of_repository(hub_id(model), revision)


def of_directory(directory: Path, *, name: str, revision: str | None = None, whole: bool = True) -> Inspection:
    """Describe a checkpoint on this machine.

    Args:
        whole: whether all its files are there; in the Hub's cache some may be missing.
    """
    pickled, config = weight_files(directory)[0].endswith(".bin"), config_fields.read_json(directory)
    fields = config_fields.from_json(config)
    if pickled:
        stored = convert.described(directory)
        shapes = {path.removesuffix(".weight"): each.shape for path, each in stored.tensors.items() if _is_map(each)}
        experts = {path: each.shape for path, each in stored.tensors.items() if len(each.shape) == 3}
        model = architecture.describe(config["model_type"], fields, shapes, experts=experts)
    else:
        stored, model = headers.read(directory), architecture.read(directory)
    cut = {stored.tensors[site.tensor].dtype for site in model.sites}
    if packed := sorted(cut - ZERO_IS_ZERO):
        raise EditkitError(
            f"{name}: the output projections are packed integers ({', '.join(packed)}), which cannot be cut at heads. "
            "Edit the unquantized checkpoint, then quantize the result."
        )
    dtypes = Counter[str]()
    for tensor in stored.tensors.values():
        dtypes[tensor.dtype] += tensor.end - tensor.start
    return Inspection(
        name=name,
        revision=revision,
        architecture=model,
        dtypes=dict(dtypes.most_common()),
        files=len(stored.files),
        quantization=_quantization(config),
        formats=_formats(
            model,
            cut,
            neurons={stored.tensors[site.tensor].dtype for site in model.neuron_sites},
            routed=config_fields.has_experts(fields),
        ),
        notes=_notes(model, pickled),
        refusal=answering.refusal(config, os.listdir(directory) if whole else None),
    )


def of_gguf(file: Path) -> Inspection:
    """Describe a GGUF file by its header. ``dtypes`` are those of its conversion, which all commands work on."""
    stored = gguf.read(file)
    model = gguf.sites(stored)
    dtype = _SAFETENSORS[dequantize.dtype(stored)]
    routed = any("_exps." in name for name in stored.tensors)
    whole, lora_form = _formats(model, {dtype}, neurons={dtype}, routed=routed)
    return Inspection(
        name=str(file),
        revision=None,
        architecture=model,
        dtypes={dtype: stored.elements * headers.BITS[dtype] // 8},
        files=1,
        quantization=f"GGUF, {stored.kinds}",
        formats=(whole, lora_form, _in_blocks(stored, model)),
        notes=(
            f"{file.stat().st_size / 1e9:.2f} GB as it is: converted once to {dequantize.dtype(stored)}, in the cache",
            *_notes(model, pickled=False),
        ),
    )


def _in_blocks(stored: gguf.Gguf, model: Architecture) -> Format:
    """Whether units can go in place. Tried on one of each layer: what fails is one that ends inside a block."""
    for site in model.sites:
        try:
            piece_of(stored, site, [0])
        except EditkitError as error:
            return Format("gguf", False, f"{site.tensor}: {error}")
    note, rows = "the same file, with the units' weights zero in their quantized blocks", False
    reason = None if model.neuron_sites else "none are in reach"
    for site in model.neuron_sites:
        try:
            rows |= piece_of(stored, site, [1]).axis == 0
        except EditkitError as error:
            reason = f"{site.tensor}: {error}"
    return Format("gguf", True, note + (", neurons by their rows of ffn_up" if rows else ""), reason)


def _of_repository(name: str, revision: str | None) -> Inspection:
    from editkit.hub.metadata import fetch
    from editkit.hub.remote import connect

    with tempfile.TemporaryDirectory() as folder:
        try:
            commit = fetch(connect(), name, revision, Path(folder))
        except Unreachable as error:
            snapshot = cached(name, revision)
            if snapshot is None:
                raise Unreachable(f"{name}: {NOWHERE}") from error
            return of_directory(snapshot, name=name, revision=snapshot.name, whole=False)
        return of_directory(Path(folder), name=name, revision=commit)


def _formats(model: Architecture, dtypes: set[str], *, neurons: set[str], routed: bool) -> tuple[Format, ...]:
    """The forms; an adapter's rank is the width of all heads it takes out of one layer.

    Args:
        dtypes, neurons: those of the weights that are cut for heads, and for neurons.
        routed: whether the model is a mixture of experts.
    """
    stuck = "its MLPs are packed integers" if neurons - ZERO_IS_ZERO else None if neurons else "none are in reach"
    whole = Format("checkpoint", True, "the same files, with the units' bytes zeroed", stuck)
    if dtypes - lora.DTYPES.keys():
        listed = ", ".join(sorted(dtypes - lora.DTYPES.keys()))
        return whole, Format("lora", False, f"weights in {listed} carry scales of their own; use checkpoint")
    widest = max((site.width for site in model.sites), default=0)
    layer = max((site.width * site.units for site in model.sites), default=0)
    most = RANKS[-1]
    fits = most // widest if widest else 0
    limit = f"; vLLM serves up to {most}, so at most {fits} heads of a layer" if layer > most else ""
    if not stuck and neurons - lora.DTYPES.keys():
        stuck = "their weights carry scales of their own"
    elif not stuck and routed:
        stuck = "peft knows the MLPs of a mixture of experts by the experts alone"
    return whole, Format("lora", True, f"rank {widest} per head in a layer, {layer} for a whole layer{limit}", stuck)


def _notes(model: Architecture, pickled: bool) -> tuple[str, ...]:
    notes = ["pickled weights: baking converts them to safetensors first"] if pickled else []
    notes += [
        f"layer {site.layer} is used again in layer {', '.join(map(str, site.shared))}: an edit there acts in all"
        for site in model.sites
        if site.shared
    ]
    groups = [site for site in model.sites if site.groups is not None and site.groups < site.units]
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


def _is_map(tensor: TensorInfo) -> bool:
    return tensor.name.endswith(".weight") and len(tensor.shape) == 2
