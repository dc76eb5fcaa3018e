"""What a checkpoint is made of, and so which files of a base do not go into an edited copy of it, and why.

why("pytorch_model.bin", ("model.safetensors",))     "another copy of the unedited weights, or a pickle"
why(".ssh/id_rsa", ("model.safetensors",))           "not part of the model"
why("tokenizer.json", ("model.safetensors",))        None: it goes along

A folder on somebody's disk holds more than the model: what is not known to be part of one stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from editkit.checkpoints.headers import INDEX, SINGLE

OTHER_WEIGHTS = (
    *("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.keras", "*.msgpack", "*.gguf", "*.ggml", "*.onnx", "*.onnx_data"),
    *("*.tflite", "*.ot", "*.npz", "*.nemo", "*.mlmodel", "*.mlpackage/*", "*.pdparams", "*.llamafile", "*.pkl"),
    *("original/*", "onnx/*", "openvino/*", "coreml/*", "consolidated*.safetensors", "*.bin.index.json"),
)
"""Copies of the weights in other formats, and pickles: never downloaded, never shipped, as they are unedited."""

_TOKENIZERS = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model*"),
    *("vocab.*", "*_vocab.json", "vocab-*.json", "merges.txt", "bpe.codes", "dict.txt", "encoder.json", "tekken.json"),
    *("spiece.model", "spm*.model", "sentencepiece*.model", "tiktoken.model", "*.spm", "*.tiktoken"),
)
"""What a tokenizer is read from, in lower case: those of transformers' own classes."""

_PARTS = (
    *("config.json", "configuration.json", "generation_config.json", "params.json"),
    *("quantize_config.json", "quantization_config.json", "quant_config.json", "hf_quant_config.json"),
    *(*_TOKENIZERS, "special_tokens_map.json", "added_tokens.json"),
    *("normalizer.json", "byte_maps.json", "emoji.json", "word_shape.json", "word_pronunciation.json"),
    *("preprocessor_config.json", "processor_config.json", "image_processor_config.json", "feature_extractor.json"),
    *("video_preprocessor_config.json", "audio_tokenizer_config.json", "modelcard.json"),
    *("chat_template*.json", "chat_template*.jinja", "chat_template.txt", "additional_chat_templates/*.jinja"),
    *("readme*", "model_card*", "*licen[sc]e*", "licen[sc]es/*", "*notice*", "*use_policy*", "copying*", "citation*"),
    *("*/adapter_config.json", "*/adapter_model.safetensors"),
)
"""Files of a model beside its weights, in lower case; a ``*`` stays within a folder."""
_CODE = "*.py"
CODE_CONFIGS = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
"""Where transformers looks for ``auto_map``, which names the Python files that a checkpoint runs on."""

FIGURES = ("heads", "neurons", "deltas", "frontier")
_RECORDS = (
    *("edit.json", "localization.json", "report.json", "report.html", "undo.safetensors", "provenance.json"),
    *("attacks.json", "examples.jsonl.gz", "manifest.json", "override.json"),
    *(f"{name}.png" for name in FIGURES),
)

SERVERS_OWN = (".gitattributes", ".gitignore")
"""What a server puts beside the files of a repository: it may be there or not, and a push leaves it alone."""
DESKTOP = (".ds_store", "thumbs.db", "desktop.ini")
"""What file managers leave in any folder they show, in lower case."""
NOT_MODEL = "not part of the model"


def why(name: str, weights: Collection[str], *, code: bool = True) -> str | None:
    """Why the file is left out; None if it goes along.

    Args:
        weights: the safetensors files that hold the model; every other weights file is left out.
        code: whether Python files go along (``names_code``).
    """
    if name in weights or is_record(name):
        return None
    lower = name.lower()
    if any(step.startswith(".") for step in lower.split("/")):
        return NOT_MODEL
    if any(fnmatchcase(lower, pattern) for pattern in OTHER_WEIGHTS):
        return "another copy of the unedited weights, or a pickle"
    if _is_like(lower, INDEX) or (lower.endswith(".safetensors") and not _is_part(lower)):
        if SINGLE in weights:
            return f"weights that are not loaded, or their index: {SINGLE} goes first"
        return None if name == INDEX else "weights that the checkpoint's index does not name"
    return None if _is_part(lower) or (code and _is_like(lower, _CODE)) else NOT_MODEL


def is_tokenizer(name: str) -> bool:
    """Whether a tokenizer may be read from a file of this name."""
    return any(_is_like(name.lower(), pattern) for pattern in _TOKENIZERS)


def is_record(name: str) -> bool:
    """Whether the file is one that editkit writes into its own folder: also of a base that was edited before."""
    folder, _, rest = name.partition("/")
    if folder != "editkit":
        return False
    inner = rest.removeprefix("base/")
    return rest in _RECORDS or (inner != rest and (inner == "README.md" or is_record(inner)))


def names_code(configs: Iterable[bytes]) -> bool:
    """Whether a checkpoint runs on Python files of its own, by the content of its ``CODE_CONFIGS``."""
    return any(b'"auto_map"' in config for config in configs)


def _is_part(lower: str) -> bool:
    return any(_is_like(lower, pattern) for pattern in _PARTS)


def _is_like(name: str, pattern: str) -> bool:
    return name.count("/") == pattern.count("/") and fnmatchcase(name, pattern)
