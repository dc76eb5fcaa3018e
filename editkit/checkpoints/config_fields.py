"""What ``config.json`` says about layers and heads, whatever names a model type uses for them.

{"model_type": "gpt2", "n_layer": 12, "n_head": 12, ...}  ->  layers 12, query heads 12 in every layer
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from editkit.checkpoints.files import inside, printable
from editkit.errors import EditkitError

Fields = Mapping[str, Any]

LAYERS = ("num_layers_per_stack", "decoder_layers", "num_decoder_layers", "num_hidden_layers", "n_layer", "n_layers")
LAYERS += ("num_layers",)
HEADS = ("decoder_attention_heads", "num_decoder_attention_heads", "num_attention_heads", "n_head", "n_heads")
HEADS += ("num_heads", "attention_heads")
GROUPS = ("num_key_value_heads", "num_kv_heads")
HEADLESS = {
    "linear_attention": "linear attention or a state space layer",
    "mamba": "Mamba",
    "mamba2": "Mamba",
    "recurrent": "a recurrent block",
    "conv": "a short convolution",
    "moe": "a mixture of experts only",
    "mlp": "an MLP only",
}
"""Layer kinds that never have softmax heads, as configs spell them."""

CANONICAL = frozenset({"kimi_linear", "bailing_hybrid", "dots3_note", "dots3_note_text", "laguna"})
CANONICAL |= {"inkling_text", "inkling2_text"}
"""Types whose published configs differ from what transformers makes of them, in the fields read here."""

SHARED = frozenset({"zamba", "zamba2"})
"""Types whose "hybrid" layers share their attention blocks."""

_LARGEST = 100_000
"""No real model has this many layers or heads; a config that says so is not worth building lists for."""
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, ImportError)
_BROKEN += (OSError, RuntimeError)


def read_json(directory: Path) -> dict[str, Any]:
    """``config.json`` as it stands.

    Raises:
        EditkitError: if it is absent, no regular file, not JSON, names no model type or weights of its own, or holds
            absurd sizes.
    """
    path = Path(directory) / "config.json"
    try:
        path.lstat()
        value = json.loads(inside(path.parent, path.name).read_text(encoding="utf-8"))
        _check_sizes(value, path)
    except OSError as error:
        raise EditkitError(f"{path} cannot be read: {error.strerror}. Expected a Hugging Face checkpoint.") from error
    except (ValueError, RecursionError) as error:
        raise EditkitError(f"{path} is not JSON: {error}.") from error
    if not isinstance(value, dict) or not isinstance(value.get("model_type"), str):
        raise EditkitError(f'{path}: expected an object with a "model_type"; is this a Hugging Face checkpoint?')
    if (named := value.get("transformers_weights")) is not None:
        raise EditkitError(
            f'{path}: "transformers_weights" names a file of weights, {printable(repr(named))}. Not every program '
            "follows it. Rename that file model.safetensors (or model.safetensors.index.json) and take this key out."
        )
    return value


def _check_sizes(value: Any, path: Path) -> None:
    """Refuse counts that no model has, however deep they are, before anything makes lists of that length."""
    if isinstance(value, list):
        for child in value:
            _check_sizes(child, path)
    for name, child in value.items() if isinstance(value, dict) else ():
        if name in (*LAYERS, *HEADS, *GROUPS) and isinstance(child, int) and not 0 <= child <= _LARGEST:
            raise EditkitError(f'{path}: "{name}" is {child}; no model has that many.')
        _check_sizes(child, path)


def from_json(value: Mapping[str, Any]) -> Fields:
    """The language model's fields; completed by transformers' config class only where the file does not say enough."""
    for section in ("text_config", "decoder", "generator"):
        if isinstance(value.get(section), dict):
            fields = {**value, **value[section]}
            break
    else:
        fields = dict(value)
    if value["model_type"] not in CANONICAL and _first(fields, HEADS) and depth(fields):
        return fields
    return _complete(value) or fields


def from_config(config: Any) -> Fields:
    """The language model's fields of a live config object."""
    text = config.get_text_config(decoder=True)
    return {**config.to_dict(), **text.to_dict()}


def depth(fields: Fields) -> int | None:
    """How many layers one stack has, if the config says so."""
    kinds = _kinds(fields)
    return _first(fields, LAYERS) or (len(kinds) if kinds else None)


def query_heads(fields: Fields, layer: int) -> int:
    """Query heads of one layer.

    Raises:
        EditkitError: if the config does not say.
    """
    swa = _first(fields, ("swa_num_attention_heads",))
    if swa and "sliding" in (kind(fields, layer) or ""):
        return swa
    count = _of_layer(fields, layer, HEADS)
    if not count:
        raise EditkitError(
            f"config.json does not say how many attention heads layer {layer} has: "
            f"expected one of {', '.join(HEADS)}. Without it the width of a head is unknown."
        )
    return count


def groups(fields: Fields, layer: int, heads: int) -> int | None:
    """Key/value groups of one layer; None where heads share a latent (MLA) or the config does not say."""
    if fields.get("kv_lora_rank"):
        return None
    if fields.get("multi_query") and not fields.get("new_decoder_architecture"):
        return 1
    attention = fields.get("attn_config")
    count = _first(attention, ("kv_n_heads",)) if isinstance(attention, dict) else _of_layer(fields, layer, GROUPS)
    return count if count and heads % count == 0 else None


def head_width(fields: Fields, layer: int) -> int | None:
    """The width of a head, where the config states it outright (value heads may be narrower than key heads)."""
    if fields.get("model_type") in SHARED:
        return None
    return _of_layer(fields, layer, ("v_head_dim",)) or _of_layer(fields, layer, ("head_dim",))


def owner(fields: Fields, layer: int) -> int:
    """The layer whose attention weights this layer uses: itself, but for Zamba's blocks, which take turns."""
    if fields.get("model_type") not in SHARED or kind(fields, layer) != "hybrid":
        return layer
    hybrids = [at for at, name in enumerate(_kinds(fields) or []) if name == "hybrid"]
    return hybrids[hybrids.index(layer) % (_first(fields, ("num_mem_blocks",)) or 1)]


def has_experts(fields: Fields) -> bool:
    """Whether the config speaks of several experts to choose from, in whichever layers."""
    return any("expert" in name and _first(fields, (name,)) not in (None, 1) for name in fields)


def kind(fields: Fields, layer: int) -> str | None:
    """What the config calls this layer: ``full_attention``, ``linear_attention``, ..."""
    kinds = _kinds(fields)
    return str(kinds[layer]) if kinds and layer < len(kinds) else None


def _kinds(fields: Fields) -> list[Any] | None:
    for name in ("layer_types", "layers_block_type"):
        if isinstance(fields.get(name), list):
            return fields[name]
    return None


def _of_layer(fields: Fields, layer: int, names: tuple[str, ...]) -> int | None:
    """A per-layer value if there is one, else the model's."""
    exceptions = fields.get("per_layer_config")
    exceptions = exceptions if isinstance(exceptions, dict) else {}
    exception = next((exceptions[key] for key in exceptions if str(key) == str(layer)), {})
    listed = fields.get("num_attention_heads_per_layer") if names is HEADS else None
    if isinstance(listed, list) and layer < len(listed):
        return _first({"heads": listed[layer]}, ("heads",))
    return (_first(exception, names) if isinstance(exception, dict) else None) or _first(fields, names)


def _first(fields: Fields, names: tuple[str, ...]) -> int | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _complete(value: Mapping[str, Any]) -> Fields | None:
    """The same config with transformers' defaults filled in; None for a type that transformers does not know."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if value["model_type"] not in CONFIG_MAPPING:
        return None
    try:
        return from_config(CONFIG_MAPPING[value["model_type"]].from_dict(_decoded(value)))
    except (*_BROKEN, StrictDataclassError) as error:
        said = " ".join(str(error).split())[:300]
        raise EditkitError(f"transformers cannot read this {value['model_type']} config: {said}") from error


def _decoded(value: Any) -> Any:
    """transformers writes an infinite number as {"__float__": "Infinity"}."""
    if isinstance(value, Mapping):
        if set(value) == {"__float__"}:
            return float(str(value["__float__"]))
        return {name: _decoded(child) for name, child in value.items()}
    return [_decoded(child) for child in value] if isinstance(value, list) else value
