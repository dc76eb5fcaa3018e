"""Which files of a checkpoint do not go into an edited copy of it, and why.

why("pytorch_model.bin", ("model.safetensors",))     "another copy of the unedited weights, or a pickle"
why("tokenizer.json", ("model.safetensors",))        None: it goes along
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatch

from editkit.checkpoints.headers import INDEX, SINGLE

OTHER_WEIGHTS = (
    *("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.keras", "*.msgpack", "*.gguf", "*.ggml", "*.onnx", "*.onnx_data"),
    *("*.tflite", "*.ot", "*.npz", "*.nemo", "*.mlmodel", "*.mlpackage/*", "*.pdparams", "*.llamafile", "*.pkl"),
    *("original/*", "onnx/*", "openvino/*", "coreml/*", "consolidated*.safetensors", "*.bin.index.json"),
)
"""Copies of the weights in other formats, and pickles: never downloaded, never shipped, as they are unedited."""

SERVERS_OWN = (".gitattributes", ".gitignore")
"""What a server puts beside the files of a repository: it may be there or not, and a push leaves it alone."""
DESKTOP = (".ds_store", "thumbs.db", "desktop.ini")
"""What file managers leave in any folder they show, in lower case."""
NOT_MODEL = "not part of the model"
_NOT_MODEL = (
    *(".git/*", ".cache/*", ".huggingface/*", "*/__pycache__/*", "__pycache__/*", ".ipynb_checkpoints/*"),
    ".gitattributes",  # each server writes its own: the Hub adds a line for every large file
)


def why(name: str, weights: Collection[str]) -> str | None:
    """Why the file is left out; None if it goes along.

    Args:
        weights: the safetensors files that hold the model; every other weights file is left out.
    """
    if name in weights:
        return None
    lower = name.lower()
    if lower.rpartition("/")[2] in DESKTOP or any(fnmatch(lower, pattern) for pattern in _NOT_MODEL):
        return NOT_MODEL
    if any(fnmatch(lower, pattern) for pattern in OTHER_WEIGHTS):
        return "another copy of the unedited weights, or a pickle"
    is_own = name.startswith("editkit/") or name.endswith("/adapter_model.safetensors")
    is_spare = lower.endswith(".safetensors") and not is_own
    if SINGLE in weights and (is_spare or name == INDEX):
        return f"weights that are not loaded, or their index: {SINGLE} goes first"
    return "weights that the checkpoint's index does not name" if is_spare else None
