"""Whether a copy of a model is the model: the same weights, settings, tokenizer, precision and libraries, by digests.

differences(facts(model), {"weights": "9f31...", "device": "cuda", ...})
["weights: 52ab... here, 9f31... there"]
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch

import editkit
from editkit.measuring.ledger import settings_of
from editkit.models.language_model import LanguageModel

PROCESSOR = "processor"
"""The fact in which the machines of a mixed pool may differ: another processor rounds otherwise."""
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def facts(model: LanguageModel) -> dict[str, str]:
    """All that answers depend on besides the requests and their batches."""
    cut = {"prefixes": model.prefixes, "padded": model.padded, "shared layers": model.blocks is not None}
    return {
        "editkit": editkit.__version__,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "weights": _weights(model.network),
        "config": settings_of(model.network),
        "units": model.architecture.layout,
        "tokenizer": model.tokenizer_digest,
        "dtype": model.dtype,
        "device": model.device.type,
        "what batches share": ", ".join(name for name, shares in cut.items() if shares),
        PROCESSOR: _processor(model.device),
    }


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Which facts differ -> both, for a message."""
    return {
        name: f"{name}: {here.get(name, 'nothing'):.60} here, {there.get(name, 'nothing'):.60} there"
        for name in dict.fromkeys((*here, *there))
        if here.get(name) != there.get(name)
    }


def _weights(network: Any) -> str:
    """Digest of each tensor's name, shape, and the sum of its bits as whole numbers.

    Another revision, a damaged or a differently rounded tensor changes it, and it costs one pass through the memory. It
    does not tell apart tensors that were crafted to agree.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted((*network.named_parameters(), *network.named_buffers())):
        there = tensor.device.type != "meta"  # else its values are on the disk
        kind = _WHOLE.get(tensor.element_size(), torch.int8)
        total = int(tensor.detach().contiguous().view(kind).sum(dtype=torch.int64)) if there and tensor.dim() else 0
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {total}\n".encode())
    return digest.hexdigest()


def _processor(device: torch.device) -> str:
    """A GPU's name; of a CPU the instructions that kernels use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}" if device.type == "cpu" else device.type
