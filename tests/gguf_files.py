"""Small GGUF files for tests: random weights in every type, and a whole Llama with a tokenizer.

write(tmp_path / "a.gguf", "Q4_K", heads=4, width=64)      2 blocks of attention, in blocks of random bytes
write_llama(tmp_path / "llama.gguf")                       transformers loads it
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

from editkit.writing.gguf_blocks import ZEROING

LAYERS, ROWS = 2, 6

_WORDS = ["<s>", "</s>", *(chr(33 + code) for code in range(60)), "Ġ", "AB"]


def write(path: Path, kind: str, *, heads: int, width: int, architecture: str = "llama", seed: int = 0) -> Path:
    """Two blocks with an ``attn_output`` of ``kind`` and a norm, of random bytes but for scales, which are finite."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    _count(writer, heads=heads, embedding=heads * width, layers=LAYERS)
    for layer in range(LAYERS):
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", rng.standard_normal(heads * width, dtype=np.float32))
        rows = blocks(kind, ROWS, heads * width, rng)
        writer.add_tensor(f"blk.{layer}.attn_output.weight", rows, raw_dtype=Kind[kind])
        writer.add_tensor(f"blk.{layer}.odd.weight", rng.standard_normal((3, 5), dtype=np.float32))
    _close(writer)
    return path


def blocks(kind: str, rows: int, inputs: int, rng: np.random.Generator) -> np.ndarray:
    """uint8[rows, bytes]: random bytes; those that are float16 scales become numbers near 1."""
    values, size = gguf.GGML_QUANT_SIZES[Kind[kind]]
    if kind in ("F64", "F32", "F16"):
        return rng.standard_normal((rows, inputs)).astype(f"f{size}").view(np.uint8)
    found = rng.integers(0, 256, (rows, inputs // values, size), dtype=np.uint8)
    if kind == "BF16":
        found[..., 1] = 0x3F
    elif kind == "MXFP4":
        found[..., 0] = rng.integers(120, 130, found.shape[:2])
    elif kind == "IQ1_M":
        numbers = found[..., 48:56].view("<u2") & 0x0FFF | np.array([0, 0, 12, 3], "<u2") << 12
        found[..., 48:56] = numbers.view(np.uint8)
    elif kind != "NVFP4":
        for byte in {bits.byte // 2 * 2 for bits in ZEROING[kind].whole}:
            numbers = rng.uniform(0.5, 2, found.shape[:2]).astype("<f2")
            found[..., byte : byte + 2] = numbers[..., None].view(np.uint8)
    return found.reshape(rows, -1)


def write_llama(path: Path, *, kind: str = "Q4_0", width: int = 32, seed: int = 0) -> Path:
    """A Llama of two layers, four heads and two key/value groups, with a byte-level tokenizer and a licence."""
    rng = np.random.default_rng(seed)
    heads, groups, inner, embedding = 4, 2, 64, 4 * width
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_license("mit")
    _count(writer, heads=heads, embedding=embedding, layers=LAYERS, groups=groups)
    writer.add_context_length(128)
    writer.add_feed_forward_length(inner)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(_WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(_WORDS)
    writer.add_token_types([3, 3] + [1] * (len(_WORDS) - 2))
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)

    def add(name: str, *shape: int, quantized: bool = True) -> None:
        numbers = rng.standard_normal(shape, dtype=np.float32) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1)
        stored = Kind[kind] if quantized else Kind.F32
        numbers = numbers + (0 if len(shape) > 1 else 1)
        writer.add_tensor(name, gguf.quantize(numbers.astype(np.float32), stored), raw_dtype=stored)

    add("token_embd.weight", len(_WORDS), embedding)
    add("output_norm.weight", embedding, quantized=False)
    for layer in range(LAYERS):
        for name, rows, inputs in (
            *(("attn_q", embedding, embedding), ("attn_k", groups * width, embedding)),
            *(("attn_v", groups * width, embedding), ("attn_output", embedding, embedding)),
            *(("ffn_gate", inner, embedding), ("ffn_up", inner, embedding), ("ffn_down", embedding, inner)),
        ):
            add(f"blk.{layer}.{name}.weight", rows, inputs)
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", embedding, quantized=False)
    _close(writer)
    return path


def _count(writer: gguf.GGUFWriter, *, heads: int, embedding: int, layers: int, groups: int | None = None) -> None:
    writer.add_block_count(layers)
    writer.add_embedding_length(embedding)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups or heads)


def _close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
