"""A GGUF file as an ordinary checkpoint, made once by transformers and kept in the user's cache.

    converted(read(Path("SmolLM2-135M-Instruct.Q4_1.gguf")), "b179c95...") -> ~/.cache/editkit/converted/gguf-b179c95...

Every weight is the number that its block stands for: float32 holds it exactly, and is what is written, but for files
that are float16 or bfloat16 throughout. ``README.md`` carries the licence that the file names.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache as cached
from pathlib import Path
from typing import Any

from editkit.checkpoints import gguf
from editkit.checkpoints.files import printable, stamp
from editkit.checkpoints.gguf import Gguf, stored_error
from editkit.checkpoints.staging import beside, check_free, size
from editkit.errors import EditkitError, first_line
from editkit.progress import Stages, silent
from editkit.workspace import cache

_HALVES = {"F16": "float16", "BF16": "bfloat16"}

_CARD = ("license", "license_name", "license_link")
"""What a model card says of the licence; GGUF has the same with dots under ``general``."""


def dtype(stored: Gguf) -> str:
    """The dtype of the conversion; vectors, such as norms, are float32 in every file and do not count."""
    kinds = {tensor.kind for tensor in stored.tensors.values() if len(tensor.shape) > 1}
    return _HALVES.get(next(iter(kinds)), "float32") if len(kinds) == 1 else "float32"


def converted(stored: Gguf, digest: str, stages: Stages = silent) -> Path:
    """The checkpoint in the cache; converted now if it is not there yet.

    Args:
        digest: sha256 of the file.
        stages: told while it is converted.

    Raises:
        EditkitError: an architecture that transformers does not read, metadata that do not fit the tensors, weights
            that are missing, or no room.
    """
    gguf.sites(stored)
    target = cache() / "converted" / f"gguf-{digest[:32]}"
    if target.is_dir():
        return target
    if importlib.util.find_spec("gguf") is None:
        raise stored_error(stored.path, "reading a GGUF file takes the gguf package: pip install 'editkit[gguf]'")
    check_free(target, needed=stored.elements * (4 if dtype(stored) == "float32" else 2))
    before = stamp(stored.path)
    file = f"{printable(stored.path.name)} ({size(stored.path.stat().st_size)})"
    try:
        with (
            stages(f"Converting to {dtype(stored)}, once: {file}, kept in {target.parent}", None),
            beside(target) as folder,
        ):
            _convert(stored, folder)
            _write_card(stored, digest, folder)
            if stamp(stored.path) != before:
                raise stored_error(stored.path, "changed while it was converted")
    except EditkitError:
        if not target.is_dir():  # else another process finished first
            raise
    return target


def _convert(stored: Gguf, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with tempfile.TemporaryDirectory() as alone, _quiet(), _read_once():
        Path(alone, "model.gguf").symlink_to(stored.path.resolve())  # so that no file around it has a say
        named: dict[str, Any] = {"gguf_file": "model.gguf", "local_files_only": True}
        try:
            config = AutoConfig.from_pretrained(alone, **named)
            _check_size(stored, config)
            tokenizer = AutoTokenizer.from_pretrained(alone, **named)
            model, loaded = AutoModelForCausalLM.from_pretrained(
                alone,
                config=config,
                quantization_config=GgufConfig(dequantize=True),
                dtype=getattr(torch, dtype(stored)),
                output_loading_info=True,
                **named,
            )  # pyright: ignore[reportGeneralTypeIssues]
            _check_whole(stored, loaded)
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        except EditkitError:
            raise
        except Exception as error:  # tokenizers raises nothing more precise
            raise stored_error(
                stored.path,
                f"transformers cannot read this GGUF of architecture {printable(stored.architecture)!r} "
                f"({printable(first_line(error)).rstrip('.')})",
            ) from error


def _check_size(stored: Gguf, config: Any) -> None:
    """Refuse metadata that describe more weights than the file has: transformers would make the rest up in memory."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    described = sum(weight.numel() for weight in model.parameters())
    if max(described, sum(buffer.numel() for buffer in model.buffers())) > stored.elements:
        raise stored_error(
            stored.path, f"its metadata describe {described} weights, its tensors hold {stored.elements}"
        )


def _check_whole(stored: Gguf, loaded: Any) -> None:
    """Refuse a model that is random numbers in part."""
    lacking = sorted(map(str, [*loaded["missing_keys"], *loaded["mismatched_keys"]]))
    if lacking:
        raise stored_error(
            stored.path, f"{len(lacking)} weights are missing or of another shape, {printable(lacking[0])} among them"
        )


def _write_card(stored: Gguf, digest: str, folder: Path) -> None:
    """The licence as front matter, where the card of the edited model looks for it, and what was converted."""
    said = {key: stored.metadata.get(f"general.{key.replace('_', '.')}") for key in _CARD}
    front = [f"{key}: {json.dumps(value[:200])}" for key, value in said.items() if isinstance(value, str) and value]
    lines = ["---", *front, "---", "", f"Converted from a GGUF file, sha256 {digest}: {stored.kinds}.", ""]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


@contextmanager
def _read_once() -> Iterator[None]:
    """transformers reads the file for the config, the tokenizer and the weights, and the names for every module: half
    of the time of a conversion."""
    package: Any = importlib.import_module("gguf")
    kept = {name: getattr(package, name) for name in ("GGUFReader", "get_tensor_name_map")}
    try:
        for name, slow in kept.items():
            setattr(package, name, cached(slow))
        yield
    finally:
        for name, slow in kept.items():
            setattr(package, name, slow)


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no warnings: what they would warn of is an error here, or no matter."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
