"""A small random model of every causal model type, made from its config alone: no network, a few ten thousand weights.

    model, config = build("gemma2")      # hidden 32, 4 query heads, 2 layers of different kinds, seeded

``python -m tests.tiny --table > docs/architectures.md`` writes the table of supported types.
"""

from __future__ import annotations

from typing import Any

import torch

SMALL: dict[str, int | float] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim", "lru_width"), 32),
    **dict.fromkeys(("ple_embed_dim", "attn_hidden_size"), 32),
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

OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "attn_pdrop": 0.0, "rope_theta": 10000.0}},
    "deepseek_v2": {"n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "gemma3n_text": {"intermediate_size": 48, "num_kv_shared_layers": 0},
    "granitemoehybrid": {"layer_types": HYBRID},
    "hrm_text": {"num_layers_per_stack": 2, "num_hidden_layers": 16},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8, "num_experts": 4, "moe_topk": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
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


def build(model_type: str) -> tuple[torch.nn.Module, Any]:
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

    kind = CONFIG_MAPPING[model_type]
    config = kind(**(shrink(kind()) | OVERRIDES.get(model_type, {})))
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
            small[name] = [value[layer] for layer in chosen]
        elif name in DEPTH:
            small[name] = len(chosen)
        elif name == "per_layer_config":
            small[name] = _per_layer(value, chosen)
        elif hasattr(part, "to_dict"):
            small[name] = shrink(part)
        elif name in SMALL and not isinstance(value, bool | list | dict):
            small[name] = SMALL[name]
        else:
            small[name] = value
    if "kv_lora_rank" in small:
        small["num_key_value_heads"] = small["num_attention_heads"]
    return small


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
