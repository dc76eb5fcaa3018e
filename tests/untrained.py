"""Random checkpoints with a real tokenizer, the organism's: for what must run on any model, whatever it answers.

untrained.checkpoint(tmp_path / "gpt2", "gpt2", window=64)      learned positions: token 65 would be an error
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from editkit import organism

VOCABULARY = 1400
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "qwen2": {
        **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2},
    },
}


def checkpoint(folder: Path, kind: str, *, window: int) -> Path:
    """A seeded random model of ``kind`` that reads ``window`` tokens, as files."""
    from transformers import AutoConfig, AutoModelForCausalLM

    ends = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    config = AutoConfig.for_model(kind, **SHAPES[kind], **ends)
    config.max_position_embeddings = window
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for path in Path(organism.path()).iterdir():
        if path.name.startswith(("tokenizer", "chat_template")):
            shutil.copy(path, folder)
    return folder
