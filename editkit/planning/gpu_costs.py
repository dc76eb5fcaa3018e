"""What a model, a task and a GPU are, as numbers: what the cost of a study is made of.

shape = published().models["meta-llama/Llama-3.1-8B-Instruct"]     # 1024 heads, 8.03 billion parameters
seconds(shape, published().gpus["h100"], read=1e6, steps=500)      # 56.3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from editkit.planning.inspection import Inspection

EFFICIENCY = 0.4
"""The share of a GPU's data-sheet operations that forward passes of transformers reach; our assumption."""
TRAFFIC = 0.6
"""The share of its data-sheet memory traffic; our assumption."""
STEP = 0.03
"""Seconds that a step of generation takes at least, whatever the model: Python and kernel launches; our assumption."""
BATCH = 131_072
"""Tokens in a full batch on a GPU (``model.TOKENS_PER_BATCH``)."""
LIBRARIES = 1 << 30
"""Bytes that the libraries and the GPU's context take."""


@dataclass(frozen=True)
class Shape:
    """A model by its numbers. ``cache``: bytes of keys and values per token. ``inner``: the widest activation."""

    heads: int
    parameters: int
    bytes: int
    cache: int
    inner: int

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Shape:
        """From the fields of a ``config.json`` of a Llama or Qwen2, in bfloat16."""
        hidden, layers, width = config["hidden_size"], config["num_hidden_layers"], config["head_dim"]
        queries, keys = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
        biases = queries + 2 * keys if config["model_type"] == "qwen2" else 0
        block = 2 * hidden * (queries + keys) + biases + 3 * hidden * config["intermediate_size"] + 2 * hidden
        tables = 1 if config["tie_word_embeddings"] else 2
        parameters = layers * block + hidden + tables * config["vocab_size"] * hidden
        heads = layers * config["num_attention_heads"]
        return cls(heads, parameters, 2 * parameters, 4 * layers * keys, config["intermediate_size"])

    @classmethod
    def of_inspection(cls, found: Inspection) -> Shape:
        """From a checkpoint's metadata; without grouped queries, keys and values are as wide as the heads."""
        sites, parameters = found.architecture.sites, found.parameters
        wide = found.bytes / parameters
        cache = sum(2 * (site.groups or site.units) * site.width for site in sites) * wide
        return cls(
            len(found.architecture.heads), parameters, found.bytes, int(cache), 4 * max(site.shape[0] for site in sites)
        )


@dataclass(frozen=True)
class Length:
    """One example: ``requests`` texts of ``prompt`` tokens, each with ``answer`` tokens, written or only scored."""

    requests: float
    prompt: float
    answer: float
    generated: bool = False
    size: int | None = None
    """How many examples the task has; None: as many as are asked for."""


@dataclass(frozen=True)
class Gpu:
    """Operations and bytes of memory traffic a second by its data sheet, and bytes of memory."""

    name: str
    operations: float
    traffic: float
    memory: float


@dataclass(frozen=True)
class Published:
    """Models, GPUs and tasks whose numbers come with editkit (``recipes/paper/costs.yaml``)."""

    models: Mapping[str, Shape]
    gpus: Mapping[str, Gpu]
    tasks: Mapping[str, Length]


@lru_cache(maxsize=1)
def published() -> Published:
    """The numbers of the paper's models and benchmarks: nothing is downloaded for them."""
    value = yaml.safe_load((files("editkit.recipes") / "paper" / "costs.yaml").read_text("utf-8"))
    return Published(
        {name: Shape.of_config(config) for name, config in value["models"].items()},
        {name: Gpu(**gpu) for name, gpu in value["gpus"].items()},
        {name: Length(**task) for name, task in value["tasks"].items()},
    )


def seconds(shape: Shape, gpu: Gpu, *, read: float, steps: float) -> float:
    """The time to read so many tokens, and to take so many steps of generation: one token for each row of a batch."""
    step = max(STEP, shape.bytes / (TRAFFIC * gpu.traffic))
    return 2 * shape.parameters * read / (EFFICIENCY * gpu.operations) + steps * step


def least_memory(shape: Shape) -> int:
    """Bytes that one example at a time needs: batches shrink to what there is."""
    return int(1.15 * shape.bytes) + LIBRARIES


def full_memory(shape: Shape) -> int:
    """Bytes with full batches: keys and values, and three of the widest activations."""
    return shape.bytes + LIBRARIES + BATCH * (shape.cache + 3 * 2 * shape.inner)
