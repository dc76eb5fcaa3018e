"""How far an unmerged adapter is from the baked weights, measured in logits.

Deviation(dtype="bfloat16", largest=0.0078, edit=2.1, positions=32)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class Spanned(Protocol):
    """A linear map and the spans of its inputs that are switched off."""

    @property
    def module(self) -> str: ...
    @property
    def axis(self) -> int: ...
    @property
    def spans(self) -> tuple[tuple[int, int], ...]: ...


@dataclass(frozen=True)
class Deviation:
    """``largest`` is max |logit of adapter - logit of bake|; ``edit``, for scale, max |logit of base - of bake|."""

    dtype: str
    largest: float
    edit: float
    positions: int


def measure(base: Path, adapter: Path, maps: Sequence[Spanned], *, wide: bool = True) -> tuple[Deviation, ...]:
    """The deviation in float32 and, where it is another, in the checkpoint's own dtype.

    Args:
        wide: in float32 too, which takes four bytes of memory a weight. The dtype on disk takes next to none: weights
            stay in the file until they are asked for, and may go back there.

    Raises:
        ValueError, ImportError: if transformers has no class of its own for the model: remote code is never run here.
    """
    import torch
    from transformers import AutoConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    stored: Any = AutoConfig.from_pretrained(base, trust_remote_code=False).dtype or torch.float32
    dtypes = dict.fromkeys((torch.float32, stored) if wide else (stored,))
    return tuple(_measure(base, adapter, maps, dtype) for dtype in dtypes)


def _measure(base: Path, adapter: Path, maps: Sequence[Spanned], dtype: torch.dtype) -> Deviation:
    import torch
    from peft import PeftModel
    from transformers import AutoConfig

    auto = model_class(AutoConfig.from_pretrained(base, trust_remote_code=False))
    model: Any = auto.from_pretrained(base, dtype=dtype, trust_remote_code=False).eval()
    ids = probe(model.config.get_text_config())
    with torch.no_grad():
        before = model(ids).logits.float()
        adapted: Any = PeftModel.from_pretrained(model, str(adapter)).eval()
        unmerged = adapted(ids).logits.float()
        for each in maps:
            layer = adapted.get_base_model().get_submodule(each.module).base_layer
            for start, stop in each.spans:
                layer.weight.narrow(each.axis, start, stop - start).zero_()
        with adapted.disable_adapter():
            baked = adapted(ids).logits.float()
    name = str(dtype).removeprefix("torch.")
    return Deviation(name, _distance(unmerged, baked), _distance(before, baked), ids.numel())


def model_class(config: Any) -> Any:
    """The class of transformers that opens such a model: the one the checkpoint names, else one for text.

    A model for text and images may have a class for either, with other module paths: servers take the one it names.

    Raises:
        ValueError: if there is none: the model runs on code of its own, or is not made to continue text.
    """
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
    )

    known: Any = (
        (MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM),
        (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoModelForImageTextToText),
    )
    classes = {auto: mapping[type(config)].__name__ for mapping, auto in known if type(config) in mapping}
    if not classes:
        raise ValueError(f"transformers opens no {config.model_type} to continue text.")
    return next((auto for auto, name in classes.items() if name in (config.architectures or ())), next(iter(classes)))


def probe(config: Any) -> torch.Tensor:
    """Two rows of 16 token ids, or as many as the model's context takes, always the same."""
    import torch

    length = min(16, getattr(config, "max_position_embeddings", None) or 16)
    return torch.randint(3, config.vocab_size, (2, length), generator=torch.Generator().manual_seed(0))


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())
