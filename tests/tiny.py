"""A small random model of every causal model type, made from its config alone: no network, a few ten thousand weights.

model, config = build("gemma2")      # hidden 32, 4 query heads, 2 layers of different kinds, seeded
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from editkit.checkpoints import architecture
from editkit.checkpoints.architecture import Architecture

_NAMES = """
afmoe apertus arcee aria_text axk1 axk2 bailing_hybrid bamba bart beam bert bert-generation big_bird bigbird_pegasus
biogpt blenderbot blenderbot-small bloom camembert codegen cohere cohere2 cohere2_moe cohere_compass_text cpmant
ctrl cwm data2vec-text dbrx deepseek_v2 deepseek_v3 deepseek_v32 doge dots1 dots3_note dots3_note_text electra emu3
ernie ernie4_5 ernie4_5_moe exaone4 exaone_moe falcon falcon_h1 flex_olmo flint fuyu gemma gemma2 gemma3 gemma3_text
gemma3n_text gemma4 gemma4_text gemma4_unified gemma4_unified_text git glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa
got_ocr2 gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_swa granitemoe
granitemoe_swa granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4
hyperclovax inkling2_text inkling_text internlm3 iquestcoder jais2 jamba kimi_linear kolibri1 laguna lfm2 lfm2_moe
lfm3 llama llama4 llama4_text longcat_flash marian mbart megatron-bert mellum mimo_v2_flash minicpm3 minimax
minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mixtral mllama modernbert-decoder moshi
moss_transcribe_diarize mpt mvp nanochat nemotron nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt
pegasus persimmon phi phi3 phi4_multimodal phimoe plbart prophetnet qwen2 qwen2_moe qwen3 qwen3_5 qwen3_5_moe
qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen4_exp qwen4_exp_text recurrent_gemma rembert roberta
roberta-prelayernorm roc_bert roformer seed_oss smollm3 solar_open stablelm starcoder2 trocr vaultgemma whisper xglm
xlm-roberta xlm-roberta-xl xmod youtu zamba zamba2 zaya
"""
KNOWS_ALL = {"transformers": "5.23"}
NEEDS = {"cohere_compass_text": KNOWS_ALL} | dict.fromkeys(("qwen4_exp", "qwen4_exp_text"), {"torch": "2.9"})
"""What a type needs to run; where it is older, or does not know a type yet, the type's tests are skipped."""
TYPES: tuple[str, ...] = tuple(_NAMES.split())
"""Every causal model type of transformers 5.23 that is supported and can be built small: the law runs over all."""

_DIFFERENT = """
bart bert bloom cpmant dbrx deepseek_v3 falcon gemma4 gpt2 gpt_oss hrm_text inkling2_text jamba llama longcat_flash
mixtral nemotron_h qwen3_next zamba
"""
DIFFERENT: frozenset[str] = frozenset(_DIFFERENT.split())
"""Types of which no two are built alike: where the projection lies, what it cuts, what runs beside or around it."""

UNBUILT = {"gemma3n": "its vision tower needs the timm library; its language model is gemma3n_text"}
"""Supported by the rule, but not built here, and why."""

SMALL: dict[str, int | float] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim", "lru_width"), 32),
    **dict.fromkeys(("ple_embed_dim", "adapter_in_dim", "adapter_out_dim", "adapter_input_size"), 32),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "n_inner", "dff", "dim_ff"), 48
    ),
    **dict.fromkeys(("dim_ff", "d_inner", "ffn_hidden_size", "intermediate_size_mlp", "feed_forward_size"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 24),
    **dict.fromkeys(("shared_intermediate_size", "shared_experts_intermediate_size"), 24),
    **dict.fromkeys(("moe_shared_expert_intermediate_size", "router_hidden_size"), 24),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_decoder_attention_heads", "num_encoder_attention_heads"), 4),
    **dict.fromkeys(("attention_heads", "swa_num_attention_heads", "num_query_groups"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "swa_head_dim", "kv_channels", "dim_head", "attention_head_size"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(("sliding_window", "window_size", "sliding_window_size", "attention_window_size"), 8),
    **dict.fromkeys(("chunk_size", "mamba_chunk_size", "attention_chunk_size", "block_multiple_of"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group", "n_shared_experts", "num_shared_experts"), 1),
    **dict.fromkeys(("moe_num_shared_experts", "zero_expert_num"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_head_dim", "index_head_dim", "attention_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "hc_lowrank", "adapter_rank", "o_lora_rank", "d_rel"), 8),
    **{
        "v_head_dim": 12,
        "index_n_heads": 2,
        "index_topk": 4,
        "vocab_size": 96,
        "decoder_vocab_size": 96,
        "rotary_dim": 4,
        "rel_extent": 16,
    },
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size", "linear_key_head_dim"), 8),
    **dict.fromkeys(("linear_value_head_dim", "linear_head_dim"), 8),
    **dict.fromkeys(("mamba_n_heads", "mamba_dt_rank", "mamba_num_heads", "time_step_rank"), 4),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "mamba_headdim"), 16),
    **{"mamba_n_groups": 1, "mamba_ngroups": 1, "n_groups": 1, "mamba_d_ssm": 64, "n_mamba_heads": 2},
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_num_heads": 4},
    **{
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 96,
        "laurel_rank": 4,
        "attention_hidden_size": 64,
    },
    **{"ngram_vocab_size_base": 64, "make_ngram_vocab_size_divisible_by": 1, "split_ngram_parts": 1},
    **{"encoder_hash_byte_group_vocab": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "dropout": 0.0},
}
"""Config fields wherever they occur, and the small value each gets."""

DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers")
DEPTH += ("num_decoder_layers", "num_encoder_layers")

KEPT_OUT = {"transformers_version", "architectures", "model_type", "_name_or_path", "id2label", "label2id", "dtype"}
KEPT_OUT |= {"rope_parameters", "num_attention_heads_per_layer"}
"""Fields that the config class works out again from the small ones."""

HYBRID = ["linear_attention", "full_attention"]
BLOCKS = {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2}
INDEXER = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 8,
    "indexer_compress_ratio": 2,
}

OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "attn_pdrop": 0.0, "rope_theta": 10000.0}},
    "deepseek_v2": {"n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "dots3_note": {"text_config": {"head_dim": 24}, "vision_config": {"per_layer_config": {}}},
    "dots3_note_text": {"head_dim": 24},
    "gemma3n_text": {"intermediate_size": 48, "num_kv_shared_layers": 0},
    "got_ocr2": {"vision_config": {"output_channels": 8, "image_size": 32, "mlp_dim": 32}},
    "granitemoehybrid": {"layer_types": HYBRID},
    "hrm_text": {"num_layers_per_stack": 2, "num_hidden_layers": 16},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8, "num_experts": 4, "moe_topk": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "phi4_multimodal": {
        "audio_config": {
            "num_blocks": 2,
            "nemo_conv_channels": 8,
            "ext_pw_out_channel": 32,
            "depthwise_separable_out_channel": 32,
        },
        "vision_config": {"image_size": 28, "crop_size": 28},
    },
    "qwen4_exp": {"text_config": INDEXER},
    "qwen4_exp_text": INDEXER,
    "recurrent_gemma": {"num_hidden_layers": 3},
    "roc_bert": {
        "shape_vocab_size": 32,
        "shape_embed_dim": 8,
        "pronunciation_vocab_size": 32,
        "pronunciation_embed_dim": 8,
    },
    "xlm": {"causal": True, "is_encoder": False},
    "xmod": {"default_language": "en_XX"},
    "zamba": {**BLOCKS, "attention_head_dim": 16},
    "zamba2": {**BLOCKS, "hybrid_layer_ids": [1, 3], "mamba_headdim": 32, "n_mamba_heads": 2, "attention_head_dim": 16},
    "zaya": {"num_experts_per_tok": 1},
}
"""What the general rule of ``shrink`` gets wrong."""


def build(model_type: str) -> tuple[Any, Any]:
    """A seeded random model in eval mode and its config."""
    from transformers import AutoModelForCausalLM

    config = configure(model_type)
    with torch.device("meta"):
        size = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    assert size < 500_000, f"{model_type}: the shrunk config still makes {size} weights"
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return _enliven(model), config


def configure(model_type: str) -> Any:
    """The smallest useful config of a type: every kind of layer once, at least two layers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for library, needed in NEEDS.get(model_type, {} if model_type in CONFIG_MAPPING else KNOWS_ALL).items():
        if Version(version(library)) < Version(needed):
            pytest.skip(f"{model_type} needs {library} {needed}")
    kind = CONFIG_MAPPING[model_type]
    config = kind(**_merge(shrink(kind()), OVERRIDES.get(model_type, {})))
    config.is_decoder = True
    return config


def shrink(config: Any) -> dict[str, Any]:
    """The arguments of a small config of the same class, sub-configs included."""
    fields = config.to_dict()
    depth = next((fields[name] for name in DEPTH if isinstance(fields.get(name), int)), 0)
    per_layer = {name: value for name, value in fields.items() if isinstance(value, list) and len(value) == depth > 2}
    chosen = _each_kind_once(list(zip(*per_layer.values(), strict=True)))
    small: dict[str, Any] = {}
    for name, value in fields.items():
        part = getattr(config, name, None) if name.endswith("_config") else None
        if name in KEPT_OUT or (value is None and not name.endswith("_token_id")):
            continue
        if name in per_layer:
            small[name] = [per_layer[name][layer] for layer in chosen]
        elif name in DEPTH:
            small[name] = len(chosen)
        elif name == "per_layer_config":
            small[name] = _per_layer(dict(value or {}), chosen)
        elif hasattr(part, "to_dict"):
            small[name] = shrink(part)
        elif name in SMALL and not isinstance(value, bool | list | dict):
            small[name] = SMALL[name]
        else:
            small[name] = value
    if "kv_lora_rank" in small:
        small["num_key_value_heads"] = small["num_attention_heads"]
    return small


def _merge(small: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    parts = {name: small[name] | value for name, value in overrides.items() if isinstance(small.get(name), dict)}
    return small | overrides | parts


def _each_kind_once(rows: list[tuple[Any, ...]]) -> list[int]:
    """The first layer of each kind, at most four, at least two."""
    first = {repr(row): place for place, row in reversed(list(enumerate(rows)))}
    chosen = sorted(first.values())[:4]
    return chosen if len(chosen) > 1 else [0, 1]


def _per_layer(value: dict[str, dict[str, Any]], chosen: list[int]) -> dict[int, dict[str, Any]]:
    """Exceptions of single layers: their heads and widths stay different from the rest, but small."""
    small = {
        "head_dim": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 16,
    }
    exceptions = {int(layer): fields for layer, fields in value.items()}
    return {
        place: {name: small.get(name, field) for name, field in exceptions[layer].items()}
        for place, layer in enumerate(chosen)
        if layer in exceptions
    }


@torch.no_grad()
def _enliven(model: torch.nn.Module) -> torch.nn.Module:
    """Weights large enough that every head matters; biases that are not zero, because they must survive an edit."""
    for name, weight in model.named_parameters():
        if weight.ndim >= 2 and weight.is_floating_point():
            weight.normal_(std=weight.shape[-1] ** -0.5)
        elif name.endswith("bias"):
            weight.normal_(std=0.02)
    return model


def stored(model: Any) -> Architecture:
    """What ``architecture.read`` makes of the model's own checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        return architecture.read(Path(directory))
