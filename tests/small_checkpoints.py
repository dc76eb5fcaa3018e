"""Small Llama checkpoints written by hand, without a model class: for the tests of files rather than of logits.

write(tmp_path / "base", shards=2)     config.json, model-00001-of-00002.safetensors, ..., README.md, tokenizer.json
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from editkit.checkpoints.headers import BITS

HIDDEN, HEADS, WIDTH, LAYERS = 16, 4, 6, 3
"""heads * width != hidden, so that the general path is the tested one."""

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    **{"hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": WIDTH},
    "auto_map": {"AutoModelForCausalLM": "modeling_custom.Custom"},
    **{"num_hidden_layers": LAYERS, "intermediate_size": 20, "vocab_size": 40, "tie_word_embeddings": True},
}


def write(directory: Path, *, dtype: str = "F32", shards: int = 1, config: Mapping[str, object] | None = None) -> Path:
    """A whole checkpoint with random bytes as weights, and the small files that come with one."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | dict(config or {})))
    (directory / "README.md").write_text("---\nlicense: mit\n---\n# The base\n")
    (directory / "tokenizer.json").write_text('{"version": "1.0"}')
    (directory / "modeling_custom.py").write_text("raise SystemExit('never executed')\n")
    names = sorted(shapes())
    files = [
        f"model-{place + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        for place in range(shards)
    ]
    weight_map = {name: files[place * shards // len(names)] for place, name in enumerate(names)}
    for file in files:
        write_tensors(directory / file, {name: (dtype, shapes()[name]) for name in names if weight_map[name] == file})
    if shards > 1:
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A scratch folder, in memory where there is such: every output is flushed to disk, and disks are slow."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (40, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        found |= {
            f"{prefix}.self_attn.q_proj.weight": (HEADS * WIDTH, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": (2 * WIDTH, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": (2 * WIDTH, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": (HIDDEN, HEADS * WIDTH),
            f"{prefix}.mlp.gate_proj.weight": (20, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": (20, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": (HIDDEN, 20),
            f"{prefix}.input_layernorm.weight": (HIDDEN,),
            f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
        }
    return found


def write_tensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, seed: int = 0) -> None:
    """A safetensors file; every byte of its tensors is random and not zero."""
    sizes = {name: math.prod(shape) * BITS[dtype] // 8 for name, (dtype, shape) in tensors.items()}
    header: dict[str, object] = {}
    place = 0
    for name, (dtype, shape) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + sizes[name]]}
        place += sizes[name]
    raw = json.dumps(header).encode()
    data = np.random.default_rng([seed, len(path.name)]).integers(1, 56, place, dtype=np.uint8)
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data.tobytes())


def files(directory: Path) -> dict[str, bytes]:
    """Every file of a directory, by name."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}
