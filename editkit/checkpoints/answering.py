"""Whether a checkpoint can be asked anything at all, by its config and the names of its files.

refusal({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, ["config.json", "vocab.txt"])
"bert is an encoder: it reads a text from both sides and writes none, so no answers can be measured. ..."

A run would find out as well, but only after the weights were read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from editkit.checkpoints.files import printable
from editkit.checkpoints.unshipped import is_tokenizer

ENCODERS = frozenset({"bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie"})
ENCODERS |= {"megatron-bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta"}
ENCODERS |= {"xlm-roberta-xl", "xmod"}
"""Types that read from left to right only with ``is_decoder: true``: transformers says so in their code."""

_CAUSAL = ("ForCausalLM", "LMHeadModel")
"""How the classes of most causal language models end: of these transformers need not be asked."""


def refusal(config: Mapping[str, Any], files: Collection[str] | None) -> str:
    """Why nothing can be asked of a model, and what to do; "" where something can.

    Args:
        config: its ``config.json``.
        files: the names of all files beside it; None where not all of them are known.
    """
    kind = str(config.get("model_type"))
    if kind in ENCODERS and not config.get("is_decoder"):
        return (
            f"{kind} is an encoder: it reads a text from both sides and writes none, so no answers can be measured. "
            'Give a causal language model; a decoder of this type has "is_decoder": true in its config.json.'
        )
    if config.get("is_encoder_decoder") is True and not _is_causal(config, kind):
        return (
            f"{printable(kind)} reads with an encoder and writes with a decoder, so no answers can be measured. Give a "
            "causal language model, such as those of docs/architectures.md."
        )
    if not _is_causal(config, kind):
        return (
            f"{printable(kind)} is not a causal language model, so no answers can be measured. Give a model that "
            "writes text, such as those of docs/architectures.md."
        )
    if files is not None and not any(map(is_tokenizer, files)):
        return (
            "no tokenizer beside the weights, so nothing can be asked. Expected tokenizer.json, or what this type has "
            "instead: download the model again, or copy these files there."
        )
    return ""


def _is_causal(config: Mapping[str, Any], kind: str) -> bool:
    """By the class that it was saved from, by code of its own, or by what transformers makes of its type."""
    classes, own = config.get("architectures"), config.get("auto_map")
    if isinstance(classes, list) and any(str(each).endswith(_CAUSAL) for each in classes):
        return True
    if isinstance(own, Mapping) and "AutoModelForCausalLM" in own:
        return True
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
